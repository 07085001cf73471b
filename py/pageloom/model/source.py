"""Where the bytes of a model come from: anything that can be read a range at a time."""

from __future__ import annotations

import asyncio
import os
from typing import Protocol, Self

from pageloom.errors import BadModelFile, NotSupported


class RangedSource(Protocol):
    """A file, Blob or URL that is read in ranges and never held whole."""

    @property
    def size(self) -> int:
        """Length in bytes."""
        ...

    async def read(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset`. Raises `BadModelFile` where the range leaves the source."""
        ...

    def close(self) -> None:
        """Give back what the source holds open; it is read no more. Safe to call twice."""
        ...


def check_range(offset: int, length: int, size: int) -> None:
    """Raises `BadModelFile` unless `[offset, offset + length)` lies within `[0, size)`."""
    if offset < 0 or length < 0 or offset + length > size:
        raise BadModelFile(f"bytes {offset} to {offset + length} (exclusive) lie outside the source of {size} bytes")


class BytesSource:
    """A source that is already in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    @property
    def size(self) -> int:
        return len(self._data)

    async def read(self, offset: int, length: int) -> bytes:
        check_range(offset, length, len(self._data))
        return self._data[offset : offset + length]

    def close(self) -> None:
        """Nothing is held open."""


class FileSource:
    """A local file, read in place; use as a context manager or call `close`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        try:
            self._descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        except OSError as error:
            raise BadModelFile(f"cannot open {os.fspath(path)}: {error.strerror}", param="model") from error
        self._size = os.fstat(self._descriptor).st_size

    @property
    def size(self) -> int:
        return self._size

    async def read(self, offset: int, length: int) -> bytes:
        check_range(offset, length, self._size)
        parts: list[bytes] = []
        position, end = offset, offset + length
        while position < end:  # one pread returns at most 2 GiB
            try:
                part = os.pread(self._descriptor, end - position, position)
            except OSError as error:
                raise BadModelFile(f"the file can no longer be read: {error.strerror}", param="model") from error
            if not part:
                raise BadModelFile(f"the file was cut short while it was read: no byte at {position} of {self._size}")
            parts.append(part)
            position += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        """Closes the file; calling it again does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class HttpSource:
    """A file behind HTTP range requests (outside the browser). Made by `open`.

    Every answer must be the range that was asked for, out of the same file: a server that ignores ranges would send
    the whole model each time, and is refused.
    """

    def __init__(self, url: str, size: int, entity_tag: str | None) -> None:
        self._url = url
        self._size = size
        self._entity_tag = entity_tag

    @classmethod
    async def open(cls, url: str) -> Self:
        """Asks for the first byte to learn the size. Raises `BadModelFile` where the URL cannot be read, and
        `NotSupported` where it is not http(s) or the server does not serve ranges."""
        if not url.startswith(("http://", "https://")):
            raise NotSupported(f"{url} is neither an http nor an https URL", param="model")
        _, size, entity_tag = await asyncio.to_thread(_fetch_range, url, 0, 1)
        return cls(url, size, entity_tag)

    @property
    def size(self) -> int:
        return self._size

    async def read(self, offset: int, length: int) -> bytes:
        check_range(offset, length, self._size)
        if length == 0:
            return b""
        data, size, entity_tag = await asyncio.to_thread(_fetch_range, self._url, offset, length)
        if (size, entity_tag) != (self._size, self._entity_tag):
            raise BadModelFile(f"the file at {self._url} changed while it was read: load it again", param="model")
        return data

    def close(self) -> None:
        """Nothing is held open: every read is a request of its own."""


def _fetch_range(url: str, offset: int, length: int) -> tuple[bytes, int, str | None]:
    """The bytes, the size of the whole file and its entity tag."""
    import http.client  # noqa: PLC0415 - slow to import, and of no use in a browser
    import urllib.request  # noqa: PLC0415

    last = offset + length - 1
    headers = {"Range": f"bytes={offset}-{last}", "Accept-Encoding": "identity"}
    try:
        request = urllib.request.Request(url, headers=headers)
        with urllib.request.urlopen(request, timeout=60) as response:
            if response.status != 206:
                raise NotSupported(f"the server of {url} ignores byte ranges; download the file instead", param="model")
            served, _, size = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("/")
            data = response.read(length + 1)
            if served != f"{offset}-{last}" or not size.isdecimal() or len(data) != length:
                raise BadModelFile(
                    f"asked for bytes {offset}-{last} of {url}, the server sent {len(data)} bytes as {served}/{size}",
                    param="model",
                )
            return data, int(size), response.headers.get("ETag")
    except (OSError, http.client.HTTPException, ValueError) as error:  # a ValueError is for a URL that is none
        raise BadModelFile(f"cannot read {url}: {error}", param="model") from error
