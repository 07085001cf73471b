"""`pageloom bench --backend cpu` without a measurement: pairs, shapes, limits, and what it refuses."""

from __future__ import annotations

import itertools
import sys

import pytest

from pageloom.cli import main
from pageloom.commands.bench_cpu_limits import CpuLimits
from pageloom.commands.bench_cpu_shapes import PARTS, CpuShape, shapes
from pageloom.commands.bench_pairs import Pairs, join, time_pairs

DECODE = CpuShape("decode", 1, 512, 16, 8, "int8")


def test_the_ratio_is_the_median_of_the_pairs_and_the_spread_leaves_out_a_tenth_at_each_end() -> None:
    pairs = Pairs(peer=tuple(float(n) for n in range(1, 12)), ours=(1.0,) * 11)
    assert (pairs.ratio, pairs.spread) == (6.0, (2.0, 10.0))
    assert join([pairs, Pairs((9.0,), (3.0,))]).ratio == 5.5


def test_calls_are_made_in_turns() -> None:
    made: list[str] = []
    pairs = time_pairs(lambda: made.append("peer"), lambda: made.append("ours"), pairs=2)
    assert len(pairs.peer) == len(pairs.ours) == 2
    changes = [first for first, second in itertools.pairwise(made) if first != second]
    assert changes == ["peer", "ours", "peer", "ours", "peer"]


def test_bytes_and_operations_are_those_of_the_shape() -> None:
    assert DECODE.num_bytes == 2 * 512 * 8 * 128 + 2 * (16 + 8) * 128 * 4
    assert DECODE.num_operations == 4 * 16 * 128 * 512
    prefill = CpuShape("prefill", 3, 3, 1, 1, "float32")
    assert prefill.num_operations == 4 * 128 * (1 + 2 + 3)
    assert str(CpuShape("paged", 1, 512, 16, 8, "int4", block_size=16)) == "decode T=512 16/8 int4 blocks of 16"


def test_the_limit_is_the_slower_of_reading_and_computing() -> None:
    limits = CpuLimits(operations=1e9, read_seconds={100: 2e-6})
    assert limits.limit_seconds(100, 1000) == 2e-6
    assert limits.limit_seconds(100, 10_000) == 1e-5


def test_the_main_shapes_are_some_of_all() -> None:
    every, main_ones = list(shapes(PARTS, quick=False)), list(shapes(PARTS, quick=True))
    assert set(main_ones) < set(every)
    assert {shape.part for shape in main_ones} == set(PARTS)
    assert len(set(every)) == len(every)


def test_it_refuses_parts_that_there_are_not_and_a_machine_without_kernels(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pageloom_cpu", None)
    assert main(["bench", "--backend", "cpu"]) == 3
    assert "the compiled kernels are not installed" in capsys.readouterr().err
    assert main(["bench", "--backend", "cpu", "--part", "training"]) == 2
    assert "--part is 'training'; allowed are decode, paged, split, prefill, call and memory" in capsys.readouterr().err
