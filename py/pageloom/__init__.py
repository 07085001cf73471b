"""Pageloom: many prompts at once over one local language model, on WebGPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pageloom.language_model import LanguageModel
    from pageloom.loading import load

__all__ = ["LanguageModel", "load"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import the façade when it is first asked for: its parts are importable without a device or a tokenizer."""
    if name in __all__:
        from pageloom import language_model, loading  # noqa: PLC0415

        return loading.load if name == "load" else language_model.LanguageModel
    raise AttributeError(f"module 'pageloom' has no attribute {name!r}")
