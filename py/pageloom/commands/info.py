"""`pageloom info`: what this machine offers, and why not more."""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import subprocess
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pageloom import __version__
from pageloom.backends.cpu.facts import CpuFacts, cpu_facts
from pageloom.backends.cuda import CudaOperators
from pageloom.backends.cuda.availability import why_unavailable
from pageloom.commands.browser import find_browser
from pageloom.commands.page_files import DEFAULT_MODEL, find_page
from pageloom.commands.page_server import PageServer, serving
from pageloom.commands.tab_driver import find_adapter, open_tab
from pageloom.errors import PageloomError
from pageloom.home import current_home

_LIMITS = (
    "maxBufferSize",
    "maxStorageBufferBindingSize",
    "maxComputeWorkgroupStorageSize",
    "maxComputeInvocationsPerWorkgroup",
    "maxStorageBuffersPerShaderStage",
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that the project can use. `summary` says what is there or why it is not, `notes` why it is not more."""

    name: str
    available: bool
    summary: str
    notes: tuple[str, ...] = ()
    limits: Mapping[str, int] = field(default_factory=dict)


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "info",
        help="what this machine offers, and why not more",
        description="Says what Pageloom finds on this machine: CPU kernels, GPUs, browser, page and model.",
    )
    parser.add_argument("--json", action="store_true", help="as one JSON object")
    parser.add_argument("--browser", metavar="PATH", help="Chromium or Chrome; default: the one found")
    parser.add_argument("--model", type=Path, default=DEFAULT_MODEL, metavar="FILE", help="default: the built-in one")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    findings = [
        Finding("Pageloom", True, f"{__version__} on Python {platform.python_version()}, {platform.platform()}"),
        cpu_finding(cpu_facts()),
        cuda_finding(),
        _found("native WebGPU", _native_adapter),
        _found("browser", lambda: _browser(options.browser)),
        _found("WebGPU in the browser", lambda: _browser_adapter(options.browser)),
        _found("page", lambda: Finding("page", True, f"built, in {find_page()}")),
        _model(options.model),
    ]
    if options.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        print("\n".join(line for finding in findings for line in _lines(finding)))
    return 0


def cpu_finding(facts: CpuFacts) -> Finding:
    """The CPU's kernels: each instruction set that runs, and why not the others; or why none is compiled."""
    if facts.why_no_kernels is not None:
        note = f"{facts.why_no_kernels}; until then the numpy reference answers, slowly"
        return Finding("CPU kernels", False, f"{facts.name}, {facts.cores} cores", (note,))
    summary = f"{facts.levels[-1]} on {facts.name}, {facts.cores} cores; also {', '.join(facts.levels[:-1])}"
    notes = tuple(f"not {level}: {reason}" for level, reason in facts.unavailable.items())
    sizes = {"L1 data": facts.l1d_bytes, "L2": facts.l2_bytes, "L3": facts.l3_bytes}
    caches = {f"bytes of {name} cache": size for name, size in sizes.items()}
    return Finding("CPU kernels", True, summary, notes, caches)


def cuda_finding() -> Finding:
    """The GPU that CUDA runs on and what is missing beside it, or why CUDA is off."""
    if reason := why_unavailable():
        return Finding("CUDA", False, reason)
    facts = CudaOperators().facts
    return Finding("CUDA", True, facts.describe(), tuple(filter(None, (facts.why_no_cudnn, facts.why_no_triton))))


def adapter_notes(*, software: bool, features: Collection[str]) -> tuple[str, ...]:
    """Why an adapter is not the best that there could be, in plain words."""
    notes = []
    if software:
        notes.append("a software adapter: shaders run on the CPU, slowly; a GPU with its driver would be used instead")
    if "shader-f16" not in features:
        notes.append("no shader-f16: halves are stored two to a 32-bit word and unpacked in the shader")
    if "subgroups" not in features:
        notes.append("no subgroups: reductions go through workgroup memory")
    return tuple(notes)


def _found(name: str, look: Callable[[], Finding]) -> Finding:
    try:
        return look()
    except PageloomError as error:
        return Finding(name, False, error.message)


def _native_adapter() -> Finding:
    device = asyncio.run(current_home().open_device())
    try:
        info = device.info
        notes = adapter_notes(software=info.adapter_class == "software", features=info.features)
        return Finding("native WebGPU", True, info.description, notes, _main_limits(info.limits))
    finally:
        device.close()


def _browser(explicit: str | None) -> Finding:
    path = find_browser(explicit)
    version = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    if version.returncode:
        return Finding("browser", False, f"{path} does not start: {version.stderr.strip()[-300:]}")
    return Finding("browser", True, f"{version.stdout.strip()} at {path}")


def _browser_adapter(explicit: str | None) -> Finding:
    with serving(PageServer({})) as server, open_tab(server.url, find_browser(explicit), "auto") as tab:
        adapter = find_adapter(tab) or {}
    summary = adapter["description"] or f"{adapter['vendor']} {adapter['architecture']}"
    notes = adapter_notes(software=adapter["software"], features=adapter["features"])
    return Finding("WebGPU in the browser", True, summary, notes, _main_limits(adapter["limits"]))


def _model(path: Path) -> Finding:
    if not path.is_file():
        return Finding("model", False, f"no file at {path}; `make setup` brings the built-in one")
    return Finding("model", True, f"{path} ({path.stat().st_size / 1e6:.0f} MB)")


def _main_limits(limits: Mapping[str, int]) -> dict[str, int]:
    return {name: limits[name] for name in _LIMITS if name in limits}


def _lines(finding: Finding) -> list[str]:
    state = "" if finding.available else "not available: "
    limits = [f"    {name} {value:,}" for name, value in finding.limits.items()]
    return [f"{finding.name}: {state}{finding.summary}", *(f"  - {note}" for note in finding.notes), *limits]
