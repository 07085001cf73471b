"""The tab's home: WebGPU of the browser, Files, Blobs and URLs as models, the tokenizer in JavaScript."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, cast

from pyodide.ffi import JsProxy

from pageloom.backends.webgpu.browser import JsSource, open_browser_device, typed_errors
from pageloom.backends.webgpu.device import Device
from pageloom.model.source import FileSource, RangedSource
from pageloom.model.tokenizer import TokenizerCore
from pageloom.tab.bridge import load_bridge
from pageloom.tab.tokenizer_core import TabTokenizerCore


async def open_device(
    *, prefer: Literal["gpu", "software"] | None = None, limits: Mapping[str, int] | None = None
) -> Device:
    return await open_browser_device(await load_bridge(), prefer=prefer, limits=limits)


async def open_source(model: Any) -> RangedSource:
    """A model from what it is given as: a JavaScript File, Blob or source; a URL, relative to the page; a file that
    Pyodide's own file system holds; or a `RangedSource`.

    Raises `BadModelFile` for a URL that cannot be read, `NotSupported` for a server that cannot serve it.
    """
    if isinstance(model, (str, os.PathLike)):
        model = os.fspath(model)
        if Path(model).is_file():
            return FileSource(model)
    elif not isinstance(model, JsProxy):
        return cast(RangedSource, model)
    bridge = await load_bridge()
    with typed_errors():
        return JsSource(await bridge.openSource(model))


def tokenizer_core(tokenizer_json: str) -> TokenizerCore:
    return TabTokenizerCore(tokenizer_json)
