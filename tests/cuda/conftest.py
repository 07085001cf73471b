"""Devices for the tests of the CUDA backend: the GPU, or the CPU under Triton's interpreter where there is none.

The interpreter runs one program after another, so what it is given is small. It multiplies no bfloat16 and rounds
float8 wrongly across powers of two, so it is not asked for them.
"""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import numpy as np
import pytest

from pageloom.backends.cuda import CudaOperators
from pageloom.backends.cuda.availability import why_unavailable

WHY_NO_GPU = why_unavailable()
HAS_TORCH = all(importlib.util.find_spec(name) for name in ("torch", "triton"))
if WHY_NO_GPU and HAS_TORCH:
    os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture(scope="session")
def device() -> Any:
    """A `torch.device` that the operators run on."""
    if not HAS_TORCH:
        pytest.skip(f"no device: {WHY_NO_GPU}")
    if WHY_NO_GPU and np.lib.NumpyVersion(np.__version__) >= "2.4.0":
        pytest.skip(f"no GPU, and Triton's interpreter fails with numpy {np.__version__}; install one before 2.4")
    import torch  # noqa: PLC0415 - optional

    return torch.device("cpu" if WHY_NO_GPU else "cuda")


@pytest.fixture
def operators(device: Any) -> CudaOperators:
    """The operators of that device, with plans of their own."""
    return CudaOperators(device)


@pytest.fixture
def gpu(device: Any) -> Any:
    """The device, where it is a GPU; a test that takes it is skipped elsewhere."""
    if WHY_NO_GPU:
        pytest.skip(f"no GPU: {WHY_NO_GPU}")
    return device
