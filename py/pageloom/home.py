"""Where the same Python runs: natively or in a browser tab. A home opens what only it can reach."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import Any, Literal, Protocol, cast

from pageloom.backends.webgpu.device import Device
from pageloom.model.source import RangedSource
from pageloom.model.tokenizer import TokenizerCore


class Home(Protocol):
    """Implemented by the modules `pageloom.native_home` and `pageloom.tab.home`."""

    async def open_device(
        self, *, prefer: Literal["gpu", "software"] | None = None, limits: Mapping[str, int] | None = None
    ) -> Device:
        """The best adapter of this machine, or the kind preferred. Raises `NotSupported` where there is none."""
        ...

    async def open_source(self, model: Any) -> RangedSource:
        """A path or URL (and in the tab a File, Blob or URL) as a source. Raises `InvalidArgument`, `BadModelFile`."""
        ...

    def tokenizer_core(self, tokenizer_json: str) -> TokenizerCore: ...


def current_home() -> Home:
    """The home of this interpreter; imported only when asked for, since each needs packages the other lacks."""
    name = "pageloom.tab.home" if sys.platform == "emscripten" else "pageloom.native_home"
    return cast(Home, importlib.import_module(name))
