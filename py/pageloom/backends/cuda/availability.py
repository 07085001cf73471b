"""What this machine offers to the CUDA backend, and why not more. PyTorch is imported when it is asked for."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass
from typing import Any

from pageloom.errors import NotSupported

INSTALL = "pip install 'pageloom[cuda]'"


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What the choice of tiers depends on.

    `capability` is the compute capability, (0, 0) for a CPU under Triton's interpreter; `cudnn` the version of the
    cuDNN library (90300 is 9.3), 0 without it or its frontend; `why_no_cudnn` says so.
    """

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    cudnn: int
    why_no_cudnn: str
    why_no_triton: str

    def describe(self) -> str:
        """The device in a line."""
        major, minor = self.capability
        cudnn = f"cuDNN {self.cudnn}" if self.cudnn else "no cuDNN"
        return f"{self.name}, compute capability {major}.{minor}, {self.multiprocessors} multiprocessors, {cudnn}"


def is_interpreted() -> bool:
    """Whether Triton was told to run kernels on the CPU, one program after another."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def overlaps_launches(device: Any) -> bool:
    """Whether a kernel there may start while the one before it ends (programmatic dependent launch)."""
    import torch  # noqa: PLC0415 - optional

    return bool(device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0))


def why_unavailable() -> str:
    """Why nothing can run on a GPU here, or ""."""
    if importlib.util.find_spec("torch") is None:
        return f"PyTorch is not installed: {INSTALL}"
    import torch  # noqa: PLC0415 - optional

    if torch.version.cuda is None:
        return f"PyTorch {torch.__version__} was built without CUDA; install a build with it"
    if not torch.cuda.is_available():
        return f"PyTorch {torch.__version__} finds no NVIDIA GPU, or no driver for CUDA {torch.version.cuda}"
    return ""


def device_facts(device: Any) -> DeviceFacts:
    """Facts of a `torch.device`: a GPU, or the CPU under Triton's interpreter. Raises `NotSupported` for another."""
    import torch  # noqa: PLC0415 - optional

    why_no_triton = "" if importlib.util.find_spec("triton") else f"Triton is not installed: {INSTALL}"
    if device.type == "cpu" and is_interpreted():
        return DeviceFacts("CPU, in Triton's interpreter", (0, 0), 1, 0, "there is no GPU", why_no_triton)
    if device.type != "cuda":
        raise NotSupported(f"the CUDA backend runs on NVIDIA GPUs; {device} is none", param="device")
    if reason := why_unavailable():
        raise NotSupported(f"CUDA is off: {reason}", param="device")
    properties = torch.cuda.get_device_properties(device)
    version, why_no_cudnn = _cudnn()
    return DeviceFacts(
        name=properties.name,
        capability=(properties.major, properties.minor),
        multiprocessors=properties.multi_processor_count,
        cudnn=version,
        why_no_cudnn=why_no_cudnn,
        why_no_triton=why_no_triton,
    )


def _cudnn() -> tuple[int, str]:
    """(version of cuDNN, or 0; why it cannot be used, or "")."""
    if importlib.util.find_spec("cudnn") is None:
        return 0, f"nvidia-cudnn-frontend is not installed: {INSTALL}"
    import cudnn  # noqa: PLC0415 - optional

    try:
        return int(cudnn.backend_version()), ""
    except Exception as error:  # the library is loaded on first use, and raises what its loader raises
        return 0, f"cuDNN does not load: {error}"
