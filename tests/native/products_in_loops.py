"""Subgroup matrices for adapters that have none: their operations written out in WGSL, each thread on its own.

A subgroup is 32 neighbours of the workgroup. A thread holds row t / 2 of a left matrix of 16 rows, four columns of a
right one of eight, and the four results where they meet; exchanges within a subgroup go through workgroup memory.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from pageloom.backends.webgpu.device import BYTE_MATRICES, SUBGROUP_MATRICES, DeviceInfo
from pageloom.backends.webgpu.native import NativeDevice, NativePipeline

DECLARATIONS = """
struct Codes { words: array<u32, 8> }
struct Limbs { words: array<array<u32, 8>, 4> }
struct Sums { words: vec4<i32> }
var<private> own: u32;
var<workgroup> exchanged: array<vec4<f32>, SIZE>;
var<workgroup> exchanged_words: array<u32, SIZE>;

fn multiplied(left: Codes, right: Limbs, sums: Sums) -> Sums {
  var result = sums;
  for (var j = 0u; j < 4u; j++) {
    for (var i = 0u; i < 8u; i++) {
      result.words[j] += dot4I8Packed(left.words[i], right.words[j][i]);
    }
  }
  return result;
}

fn neighbour(x: f32, turn: u32) -> f32 {
  workgroupBarrier();
  exchanged[own] = vec4<f32>(x);
  workgroupBarrier();
  return exchanged[own ^ turn].x;
}

fn neighbour_word(x: u32, turn: u32) -> u32 {
  workgroupBarrier();
  exchanged_words[own] = x;
  workgroupBarrier();
  return exchanged_words[own ^ turn];
}

fn largest_of_subgroup(x: f32) -> f32 {
  workgroupBarrier();
  exchanged[own] = vec4<f32>(x);
  workgroupBarrier();
  var largest = x;
  for (var i = 0u; i < 32u; i++) {
    largest = max(largest, exchanged[own / 32u * 32u + i].x);
  }
  return largest;
}
"""


class DeviceWithLoops:
    """`device` as if it had matrices of bytes and subgroups of 32."""

    def __init__(self, device: NativeDevice) -> None:
        self._device = device
        self.info: DeviceInfo = replace(
            device.info,
            features=device.info.features | {SUBGROUP_MATRICES},
            matrix_shapes=frozenset({BYTE_MATRICES}),
            subgroup_min_size=32,
            subgroup_max_size=32,
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    async def pipeline(self, code: str, label: str = "") -> NativePipeline:
        return await self._device.pipeline(written_out(code), label)


def written_out(code: str) -> str:
    """The program without subgroups; a program without matrices stays as it is."""
    if "enable chromium_experimental_subgroup_matrix;" not in code:
        return code
    types = dict(re.findall(r"var<[^>]*> (\w+): array<(vec4<u32>|\w+)", code))
    functions: dict[str, str] = {}

    def word(buffer: str, index: str) -> str:
        if types[buffer] == "vec4<u32>":
            return f"{buffer}[({index}) / 4u][({index}) % 4u]"
        return f"{buffer}[{index}]"

    def load(match: re.Match[str]) -> str:
        kind, buffer, offset, row = match.groups()
        name, unit = f"load_{kind}_of_{buffer}", 4 if types[buffer] == "vec4<u32>" else 1
        if kind == "Codes":
            at = word(buffer, f"{unit}u * (offset + own % 32u / 2u * row) + i")
            body = f"for (var i = 0u; i < 8u; i++) {{ result.words[i] = {at}; }}"
        else:
            at = word(buffer, f"{unit}u * (offset + (own % 2u * 4u + j) * row) + i")
            inner = f"for (var i = 0u; i < 8u; i++) {{ result.words[j][i] = {at}; }}"
            body = f"for (var j = 0u; j < 4u; j++) {{ {inner} }}"
        functions[name] = f"fn {name}(offset: u32, row: u32) -> {kind} {{ var result: {kind}; {body} return result; }}"
        return f"{name}({offset}, {row})"

    code = re.sub(r"enable (subgroups|chromium_experimental_subgroup_matrix);|diagnostic\(off, .*\);", "", code)
    code = re.sub(r"alias (Codes|Limbs|Sums) = .*;", "", code)
    code = re.sub(r"subgroupMatrixLoad<(\w+), \w+>\(&(\w+), (.*?), (\d+u)\)", load, code)
    code = re.sub(r"subgroupMatrixStore<col_major>\(&results, (.*), (\w+), (\d+u)\)", r"store(\1, \2, \3)", code)
    code = code.replace("subgroupMatrixMultiplyAccumulate(", "multiplied(")
    code = re.sub(r"subgroupShuffleXor\((word|pair), ", r"neighbour_word(\1, ", code)
    code = code.replace("subgroupShuffleXor(", "neighbour(").replace("subgroupMax(", "largest_of_subgroup(")
    code = code.replace("let lane = thread % 32u;", "let lane = thread % 32u; own = thread;")
    stores = "for (var j = 0u; j < 4u; j++) { results[at + (own % 2u * 4u + j) * row + own % 32u / 2u] = x.words[j]; }"
    functions["store"] = f"fn store(at: u32, x: Sums, row: u32) {{ {stores} }}"
    # Each team has one of the four heads, which the uniformity of a barrier in the loop must see.
    code = re.sub(r"for \(var head = team; .*\) {", "for (var turn = 0u; turn < 1u; turn++) { let head = team;", code)
    size = re.search(r"@workgroup_size\((\d+)\)", code)
    assert size is not None
    main = code.index("@compute")
    return code[:main] + DECLARATIONS.replace("SIZE", size[1]) + "\n".join(functions.values()) + "\n" + code[main:]
