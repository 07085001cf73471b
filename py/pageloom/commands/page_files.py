"""Where the built page and the default model are."""

from __future__ import annotations

from pathlib import Path

from pageloom.errors import InvalidArgument, NotSupported

CHECKOUT = Path(__file__).resolve().parents[3]
DEFAULT_PAGE = CHECKOUT / "dist"
DEFAULT_MODEL = CHECKOUT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
_ENTRY = "pageloom.js"
"""The built file that exports the JavaScript API."""


def find_page(explicit: Path | None = None) -> Path:
    """The folder of a built page: `explicit`, else `dist/` of this checkout.

    Raises `InvalidArgument` for an explicit folder without a built page, `NotSupported` where there is no page at all.
    """
    folder = explicit or DEFAULT_PAGE
    if (folder / _ENTRY).is_file():
        return folder
    if explicit:
        raise InvalidArgument(f"{str(explicit)!r} is no built page: it has no {_ENTRY}", param="page")
    raise NotSupported("the page is not built; run `make setup` in a checkout, or name a built page", param="page")
