"""Which adapter is opened, on machines that this one is not, and how a driver is found where there is no GPU."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pageloom.backends.webgpu import native_drivers
from pageloom.backends.webgpu.native_adapters import choose_adapter, webgpu_limits
from pageloom.errors import NotSupported


@dataclass
class FakeAdapter:
    """What wgpu-py tells of an adapter."""

    summary: str
    kind: str
    features: set[str] = field(default_factory=lambda: {"core-features-and-limits"})

    @property
    def info(self) -> dict[str, Any]:
        return {"adapter_type": self.kind}


SOFTWARE = FakeAdapter("SwiftShader (CPU) via Vulkan", "CPU")
LAVAPIPE = FakeAdapter("llvmpipe (CPU) via Vulkan", "CPU")
BUILT_IN = FakeAdapter("Intel Arc via Vulkan", "IntegratedGPU")
CARD = FakeAdapter("NVIDIA via Vulkan", "DiscreteGPU")
OLD = FakeAdapter("Radeon via OpenGLES", "DiscreteGPU", set())
EVERY = [SOFTWARE, OLD, BUILT_IN, LAVAPIPE, CARD]


@pytest.mark.parametrize(
    ("found", "prefer", "name", "chosen"),
    [
        (EVERY, None, None, CARD),
        (EVERY, "gpu", "intel", BUILT_IN),
        (EVERY, "software", None, SOFTWARE),
        (EVERY, None, "LLVMpipe", LAVAPIPE),
        ([SOFTWARE, BUILT_IN], None, None, BUILT_IN),
        ([SOFTWARE], None, None, SOFTWARE),
    ],
)
def test_the_fastest_kind_that_is_allowed_is_chosen(found: list[Any], prefer: Any, name: str, chosen: Any) -> None:
    assert choose_adapter(found, prefer, name) is chosen


@pytest.mark.parametrize(
    ("found", "prefer", "name", "told"),
    [
        ([], None, None, "of any kind (present: none)"),
        ([SOFTWARE], "gpu", None, "gpu (present: SwiftShader"),
        ([CARD], "gpu", "Arc", "gpu named 'Arc' (present: NVIDIA"),
        ([OLD], None, None, "of any kind (present: Radeon"),
    ],
)
def test_where_no_adapter_is_left_the_error_tells_what_is_there(
    found: list[Any], prefer: Any, name: str | None, told: str
) -> None:
    with pytest.raises(NotSupported) as refusal:
        choose_adapter(found, prefer, name)
    assert f"no WebGPU adapter {told}" in refusal.value.message


def test_limits_take_the_names_that_webgpu_gives_them() -> None:
    assert webgpu_limits({"max-buffer-size": 1, "max-texture-dimension-1d": 2, "max-compute-workgroup-size-x": 3}) == {
        "maxBufferSize": 1,
        "maxTextureDimension1D": 2,
        "maxComputeWorkgroupSizeX": 3,
    }


@pytest.fixture
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_ADD_DRIVER_FILES", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, "")  # so that it is put back
        monkeypatch.delenv(name)
    monkeypatch.setattr("sys.platform", "linux")
    return monkeypatch


def test_the_driver_of_a_browser_is_offered_to_the_loader(
    tmp_path: Path, clean_environment: pytest.MonkeyPatch
) -> None:
    manifest = tmp_path / "ms-playwright" / "chromium-1200" / "chrome-linux" / "vk_swiftshader_icd.json"
    manifest.parent.mkdir(parents=True)
    manifest.write_text("{}")
    clean_environment.setattr(native_drivers, "BROWSER_FOLDERS", (str(tmp_path / "absent"),))
    clean_environment.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path / "ms-playwright"))
    native_drivers.prepare_environment()
    assert os.environ["VK_ADD_DRIVER_FILES"] == str(manifest)
    assert Path(os.environ["XDG_RUNTIME_DIR"]).is_dir()


def test_drivers_that_the_user_has_chosen_are_left_alone(clean_environment: pytest.MonkeyPatch) -> None:
    clean_environment.setenv("VK_DRIVER_FILES", "/my/driver.json")
    native_drivers.prepare_environment()
    assert "VK_ADD_DRIVER_FILES" not in os.environ
