"""The JavaScript side of the tab as one module: passed in by the page's worker, or loaded out of the wheel."""

from __future__ import annotations

from importlib import resources
from typing import Any

from pyodide.code import run_js
from pyodide.ffi import to_js

_current: Any = None


def use_bridge(bridge: Any) -> None:
    """Take the module that the page has already imported."""
    global _current  # noqa: PLW0603 (one interpreter has one bridge)
    _current = bridge


async def load_bridge() -> Any:
    """The bridge in use; at the first call outside the page, the one that the wheel carries as `bridge.mjs`."""
    if _current is None:
        code = resources.files("pageloom.tab").joinpath("bridge.mjs").read_bytes()
        use_bridge(await run_js(_IMPORT_MODULE)(to_js(code)))
    return _current


def loaded_bridge() -> Any:
    """The bridge, once `load_bridge` has returned; a bug elsewhere otherwise."""
    if _current is None:
        raise RuntimeError("load_bridge() comes before anything that needs the bridge")
    return _current


_IMPORT_MODULE = """
async (code) => {
  const url = URL.createObjectURL(new Blob([code], { type: 'text/javascript' }));
  try {
    return await import(/* @vite-ignore */ url);
  } finally {
    URL.revokeObjectURL(url);
  }
}
"""
