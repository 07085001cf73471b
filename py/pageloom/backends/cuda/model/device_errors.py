"""What PyTorch raises for a device, as errors of the project."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from pageloom.errors import DeviceLost, OutOfMemory


@contextmanager
def device_errors() -> Iterator[None]:
    """Raise `OutOfMemory` and `DeviceLost` for what they are. A fault of a kernel leaves CUDA unusable in the whole
    process, and is told by whichever call comes next."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise OutOfMemory(f"the GPU has no room: {_first_line(error)}; take fewer KV blocks or tokens") from error
    except torch.AcceleratorError as error:
        raise DeviceLost(f"CUDA failed, and can no longer be used in this process: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
