"""`pageloom bench` without a device: what a shape must move and compute, and the lines that are printed."""

from __future__ import annotations

import pytest

from pageloom.cli import main
from pageloom.commands.bench import cache_lines, shape_lines
from pageloom.commands.bench_calls import Measured
from pageloom.commands.bench_device import Rates
from pageloom.commands.bench_output import choose_shapes
from pageloom.commands.bench_shapes import FULL, HEADLINES, PEER_SECONDS, QUICK, SMALL, Shape
from pageloom.errors import InvalidArgument


def test_the_bytes_of_a_shape_are_the_cache_the_new_tokens_and_the_output() -> None:
    decode = Shape(batch=2, num_heads=4, kv_num_heads=2, head_size=8, past=100)
    cached, new, query_and_output = 2 * 2 * 100 * 2 * 8 * 2, 2 * 2 * 2 * 8 * (2 + 2), 2 * 2 * 4 * 8 * 2
    assert decode.num_bytes == cached + new + query_and_output
    int8 = Shape(batch=2, num_heads=4, kv_num_heads=2, head_size=8, past=100, cache="int8")
    assert int8.num_bytes == cached // 2 + new * 3 // 4 + query_and_output


def test_the_operations_of_a_prefill_are_those_of_the_causal_triangle() -> None:
    shape = Shape(batch=3, num_heads=2, kv_num_heads=1, head_size=8, past=5, new=4)
    keys = sum(5 + row + 1 for row in range(4))
    assert shape.num_operations == 3 * 2 * keys * 8 * 2 * 2


def test_the_limit_is_that_of_the_slower_of_moving_and_computing() -> None:
    shape = Shape(batch=1, num_heads=32, kv_num_heads=8, head_size=128, past=4095)
    assert shape.limit_seconds(1e9, 1e30) == shape.num_bytes / 1e9
    assert shape.limit_seconds(1e30, 1e9) == shape.num_operations / 1e9


def test_the_shapes_are_told_apart_by_their_names() -> None:
    for shapes in (FULL, QUICK, SMALL):
        assert len({str(shape) for shape in shapes}) == len(shapes)
    assert str(HEADLINES[4]) == "decode  8/4096 32/8 D=128 int8"
    assert str(HEADLINES[-1]) == "prefill 1x2048 32/8 D=128"


def test_a_line_has_the_median_the_limit_and_the_ratio_to_gathering() -> None:
    shape = Shape(batch=1, num_heads=32, kv_num_heads=8, head_size=128, past=511)
    measured = [
        Measured(shape, "direct-gpu", (20e-6, 18e-6, 21e-6), attention_seconds=(15e-6, 14e-6, 16e-6)),
        Measured(shape, "direct-software", reason="no such luck"),
        Measured(shape, "gather-then-flash", (60e-6, 60e-6)),
    ]
    rates = Rates(read=shape.num_bytes / 10e-6, compute=1e30)
    direct, software, gather = (line.split() for line in shape_lines(measured, rates, quotes=False))
    assert direct == [*str(shape).split(), "direct-gpu", "20.0", "15", "%", "15.0", "10.0", "1.50", "3.00"]
    assert " ".join(software).endswith("direct-software not run: no such luck")
    assert gather[4:] == ["gather-then-flash", "60.0", "0", "%", "-", "10.0", "6.00", "1.00"]


def test_an_int8_cache_is_compared_with_the_same_calls_over_a_float16_cache() -> None:
    half = Measured(HEADLINES[2], "direct-gpu", (9e-5,), attention_seconds=(8e-5,))
    int8 = Measured(HEADLINES[4], "direct-gpu", (7e-5,), attention_seconds=(6e-5,))
    (line,) = cache_lines([int8], [half, int8])
    assert "takes 0.75 of the float16 cache's time" in line
    assert cache_lines([half], [half, int8]) == []
    assert cache_lines([int8], [int8]) == []


def test_the_peers_figure_stands_beside_its_own_shapes_on_its_own_gpu() -> None:
    rates = Rates(1e12, 1e13)
    for shape, seconds in PEER_SECONDS.items():
        (line,) = shape_lines([Measured(shape, "direct-gpu", (2 * seconds,))], rates, quotes=True)
        assert f"2.00 of {seconds * 1e6:.1f} µs (ONNX Runtime 1.31.1 CUDA" in line
    other = Measured(SMALL[-1], "direct-gpu", (1e-6,))
    assert "ONNX" not in shape_lines([other], rates, quotes=True)[0]
    assert "ONNX" not in shape_lines([Measured(HEADLINES[0], "direct-gpu", (1e-6,))], rates, quotes=False)[0]


def test_shapes_are_chosen_by_their_names_and_a_pattern_of_none_is_a_wrong_argument() -> None:
    assert choose_shapes(HEADLINES, "decode * int8") == [HEADLINES[4], HEADLINES[5]]
    assert choose_shapes(["a", "b"], "*b*", lambda name: name * 2) == ["b"]
    with pytest.raises(InvalidArgument, match="no shape matches 'encode"):
        choose_shapes(HEADLINES, "encode*")


def test_no_repeats_are_a_wrong_argument(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--repeats", "0"]) == 2
    assert "at least 1" in capsys.readouterr().err
