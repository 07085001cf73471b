"""The native home: Dawn for the device, files and HTTP for the model, `tokenizers` for the tokenizer."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pageloom.backends.webgpu.device import Device
from pageloom.backends.webgpu.native import open_native_device
from pageloom.errors import InvalidArgument
from pageloom.model.native_core import NativeTokenizerCore
from pageloom.model.source import FileSource, HttpSource, RangedSource
from pageloom.model.tokenizer import TokenizerCore


async def open_device(
    *, prefer: Literal["gpu", "software"] | None = None, limits: Mapping[str, int] | None = None
) -> Device:
    return await open_native_device(prefer=prefer, limits=limits)


async def open_source(model: str | os.PathLike[str] | RangedSource) -> RangedSource:
    if not isinstance(model, (str, os.PathLike)):
        return model
    text = os.fspath(model)
    if text.startswith(("http://", "https://")):
        return await HttpSource.open(text)
    if not Path(text).is_file():
        raise InvalidArgument(f"there is no model file at {text!r}; give the path of a .gguf file", param="model")
    return FileSource(text)


def tokenizer_core(tokenizer_json: str) -> TokenizerCore:
    return NativeTokenizerCore(tokenizer_json)
