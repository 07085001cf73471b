"""Kinds of arrays that the CPU operators take."""

from __future__ import annotations

import array
from typing import Any

import numpy as np
import pytest

from pageloom.attention.cases.case import Case, compare
from pageloom.attention.cases.matrix import all_cases
from pageloom.attention.numerics.dtypes import Array, as_tensor
from pageloom.backends.cpu.arrays import LINE_BYTES, view, zeros_on_lines
from pageloom.backends.cpu.operators import CpuOperators

CASES = {case.name: case for case in all_cases(quick=True)}
DECODE = CASES["group_query/ragged/decode_nan"]


def outputs_of(case: Case, **changes: Any) -> dict[str, Array]:
    return CpuOperators().group_query_attention(case.spec)(**case.inputs() | changes)


class Foreign:
    """An array of another library, as numpy sees it."""

    def __init__(self, inside: Array) -> None:
        self._inside = inside

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        return self._inside


def test_what_has_the_buffer_protocol_is_used_where_it_lies() -> None:
    lengths = array.array("i", [32, 6, 0])
    seen = view("seqlens_k", lengths)
    lengths[1] = 5
    assert seen.tolist() == [32, 5, 0]
    assert seen.dtype == np.int32


@pytest.mark.parametrize("kind", [memoryview, as_tensor, Foreign])
def test_arrays_of_any_kind_give_the_same_answer(kind: Any) -> None:
    inputs = DECODE.inputs()
    assert compare(DECODE, outputs_of(DECODE, query=kind(inputs["query"]), seqlens_k=kind(inputs["seqlens_k"]))).passed


def test_a_past_with_gaps_is_copied_into_the_present() -> None:
    past = np.repeat(DECODE.inputs()["past_key"], 2, axis=3)[..., ::2]
    assert not past.flags.c_contiguous
    assert compare(DECODE, outputs_of(DECODE, past_key=past)).passed


def test_a_past_that_may_only_be_read_is_left_alone() -> None:
    past = DECODE.inputs()["past_key"]
    past.flags.writeable = False
    before = past.tobytes()
    assert compare(DECODE, outputs_of(DECODE, past_key=past)).passed
    assert past.tobytes() == before


def test_presents_given_are_the_outputs_whether_in_place_or_apart() -> None:
    for in_place in (True, False):
        inputs = DECODE.inputs()
        keys = inputs["past_key"] if in_place else np.full_like(inputs["past_key"], np.nan)
        outputs = outputs_of(DECODE, past_key=inputs["past_key"], present_key=keys)
        assert outputs["present_key"] is keys
        assert compare(DECODE, outputs).passed


def test_rows_past_the_new_ones_are_zeros_apart_and_kept_in_place() -> None:
    inputs = DECODE.inputs()
    apart = outputs_of(DECODE)["present_key"]
    in_place = outputs_of(DECODE, past_key=inputs["past_key"], present_key=inputs["past_key"])["present_key"]
    for row, last in enumerate(inputs["seqlens_k"]):
        assert not apart[row, :, last + 1 :].any()
        assert np.isnan(in_place[row, :, last + 1 :]).all()


@pytest.mark.parametrize("shape", [(3, 5), (1000, 1000), (0, 4)])
def test_zeros_on_lines_begin_on_a_cache_line(shape: tuple[int, ...]) -> None:
    for dtype in (np.float16, np.float32, np.int8):
        zeros = zeros_on_lines(shape, dtype)
        assert (zeros.shape, zeros.dtype, zeros.flags.c_contiguous) == (shape, dtype, True)
        assert not zeros.any()
        assert zeros.size == 0 or zeros.ctypes.data % LINE_BYTES == 0
