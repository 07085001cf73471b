"""Reads the values of a GGUF header in file order, through a window that grows, believing nothing it reads.

A length in the file is compared with the bytes that are left of the file before anything is allocated for it.
"""

from __future__ import annotations

import struct
import sys
from array import array

from pageloom.errors import BadModelFile
from pageloom.model.metadata import MetadataValue
from pageloom.model.source import RangedSource

FIRST_READ = 256 * 1024
LARGEST_READ = 4 * 1024 * 1024
MAX_HEADER_BYTES = 256 * 1024 * 1024
"""No known model has a tenth of it; a header beyond it is refused rather than held in memory."""
MAX_ARRAY_DEPTH = 4

U32 = struct.Struct("<I")
U64 = struct.Struct("<Q")

BOOL, STRING, ARRAY = 7, 8, 9
_SCALARS = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: U32,
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    10: U64,
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
_SMALLEST_ELEMENT = {kind: scalar.size for kind, scalar in _SCALARS.items()} | {BOOL: 1, STRING: 8, ARRAY: 12}


class HeaderReader:
    """A cursor over the front of a source. Methods name `field` in the `BadModelFile` they raise."""

    def __init__(self, source: RangedSource) -> None:
        self._source = source
        self._window = b""
        self._window_start = 0
        self._cursor = 0
        self._next_read = FIRST_READ

    @property
    def position(self) -> int:
        """The absolute offset of the next byte."""
        return self._window_start + self._cursor

    @property
    def remaining(self) -> int:
        """Bytes from the cursor to the end of the file."""
        return self._source.size - self.position

    def check_count(self, count: int, smallest: int, field: str) -> None:
        """Raises unless `count` items of at least `smallest` bytes each fit the rest of the file."""
        if count * smallest > self.remaining:
            raise BadModelFile(
                f"{field} announces {count} items, at least {count * smallest} bytes, "
                f"but {self.remaining} bytes are left of the file",
                param=field,
            )

    async def unpack(self, layout: struct.Struct, field: str) -> int | float:
        await self._need(layout.size, field)
        value: int | float = layout.unpack_from(self._window, self._cursor)[0]
        self._cursor += layout.size
        return value

    async def u32(self, field: str) -> int:
        return int(await self.unpack(U32, field))

    async def u64(self, field: str) -> int:
        return int(await self.unpack(U64, field))

    async def raw(self, length: int, field: str) -> bytes:
        await self._need(length, field)
        data = self._window[self._cursor : self._cursor + length]
        self._cursor += length
        return data

    async def string(self, field: str, max_length: int = MAX_HEADER_BYTES) -> str:
        length = await self.u64(field)
        if length > max_length:
            raise BadModelFile(f"{field} is a string of {length} bytes; at most {max_length} are allowed", param=field)
        try:
            return (await self.raw(length, field)).decode()
        except UnicodeDecodeError as error:
            raise BadModelFile(f"{field} is not UTF-8: {error}", param=field) from error

    async def value(self, kind: int, field: str, depth: int = 0) -> MetadataValue:
        """One metadata value of the GGUF value type `kind`."""
        if kind in _SCALARS:
            return await self.unpack(_SCALARS[kind], field)
        if kind == BOOL:
            return _bools(await self.raw(1, field), field)[0]
        if kind == STRING:
            return await self.string(field)
        if kind == ARRAY:
            return await self._array(field, depth + 1)
        raise BadModelFile(f"{field} has the value type {kind}, which GGUF does not define", param=field)

    async def _array(self, field: str, depth: int) -> MetadataValue:
        if depth > MAX_ARRAY_DEPTH:
            raise BadModelFile(f"{field} nests arrays deeper than {MAX_ARRAY_DEPTH}", param=field)
        kind = await self.u32(field)
        count = await self.u64(field)
        if kind not in _SMALLEST_ELEMENT:
            raise BadModelFile(f"{field} is an array of value type {kind}, which GGUF does not define", param=field)
        self.check_count(count, _SMALLEST_ELEMENT[kind], field)
        if kind in _SCALARS:
            numbers = array(_SCALARS[kind].format[1:])
            numbers.frombytes(await self.raw(count * numbers.itemsize, field))
            if sys.byteorder == "big":
                numbers.byteswap()
            return numbers
        if kind == BOOL:
            return _bools(await self.raw(count, field), field)
        if kind == STRING:
            return await self._strings(count, field)
        return [await self.value(ARRAY, field, depth) for _ in range(count)]

    async def _strings(self, count: int, field: str) -> list[str]:
        """`count` strings. The loop is inlined: vocabularies have hundreds of thousands of entries."""
        strings: list[str] = []
        append, length_at = strings.append, U64.unpack_from
        window, cursor = self._window, self._cursor
        try:
            for _ in range(count):
                if cursor + 8 > len(window):
                    self._cursor = cursor
                    await self._need(8, field)
                    window, cursor = self._window, self._cursor
                start = cursor + 8
                end = start + length_at(window, cursor)[0]
                if end > len(window):
                    self._cursor = start
                    await self._need(end - start, field)
                    window, end = self._window, self._cursor + end - start
                    start = self._cursor
                append(window[start:end].decode())
                cursor = end
        except UnicodeDecodeError as error:
            raise BadModelFile(f"{field}[{len(strings)}] is not UTF-8: {error}", param=field) from error
        self._cursor = cursor
        return strings

    async def _need(self, length: int, field: str) -> None:
        """Makes the next `length` bytes available in the window."""
        available = len(self._window) - self._cursor
        if available >= length:
            return
        if length > self.remaining:
            raise BadModelFile(
                f"the file ends within {field}: {length} bytes wanted at {self.position}, {self.remaining} left",
                param=field,
            )
        if self.position + length > MAX_HEADER_BYTES:
            raise BadModelFile(f"{field} would make the header longer than {MAX_HEADER_BYTES} bytes", param=field)
        wanted = min(max(length, self._next_read) - available, self.remaining - available)
        more = await self._source.read(self.position + available, wanted)
        self._window_start, self._window, self._cursor = self.position, self._window[self._cursor :] + more, 0
        self._next_read = min(2 * self._next_read, LARGEST_READ)


def _bools(data: bytes, field: str) -> list[bool]:
    if any(byte > 1 for byte in data):
        raise BadModelFile(f"{field} holds a bool that is neither 0 nor 1", param=field)
    return [byte == 1 for byte in data]
