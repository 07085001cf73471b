"""What tests of the compiled kernels share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pageloom.attention.cases.case import Case
from pageloom.attention.numerics.dtypes import Array
from pageloom.backends.cpu.facts import cpu_facts
from pageloom.backends.cpu.operators import CpuOperators
from pageloom.backends.cpu.operators.operator import CpuOperator

LEVELS = cpu_facts().levels
needs_kernels = pytest.mark.skipif(not LEVELS, reason=cpu_facts().why_no_kernels or "")


def operator_of(operators: CpuOperators, case: Case) -> CpuOperator:
    """The operator of a case."""
    makers: dict[str, Callable[[Any], CpuOperator]] = {
        "paged_attention": operators.paged_attention,
        "group_query_attention": operators.group_query_attention,
        "onnx_attention": operators.attention,
        "tensor_scatter": operators.tensor_scatter,
    }
    return makers[case.operator](case.spec)


def count_of(value: int) -> Array:
    """A count as the layers' kernels read it, anew at each call."""
    return np.array([value], np.int32)
