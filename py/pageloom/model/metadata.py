"""Typed access to the metadata of a GGUF file."""

from __future__ import annotations

from array import array
from typing import Any, TypeAlias

from pageloom.errors import BadModelFile

NumericArray: TypeAlias = "array[int] | array[float]"
MetadataValue: TypeAlias = "bool | int | float | str | NumericArray | list[Any]"


class Metadata(dict[str, MetadataValue]):
    """Key to value. Numeric arrays are `array.array`, arrays of strings, bools and arrays are lists.

    Every accessor raises `BadModelFile`, naming the key, for a value of another type or out of its bounds, and for a
    missing key unless there is a default.
    """

    def integer(self, key: str, default: int | None = None, *, minimum: int = 0, maximum: int = 2**31 - 1) -> int:
        """An integer of `[minimum, maximum]`, both inclusive."""
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong_type(key, value, "an integer")
        if not minimum <= value <= maximum:
            raise BadModelFile(f"{key} is {value}; allowed is {minimum} to {maximum}", param=key)
        return value

    def number(self, key: str, default: float | None = None, *, minimum: float = 1e-30, maximum: float = 1e30) -> float:
        """A number of `[minimum, maximum]`, both inclusive; by default where a few of them multiply to a finite one."""
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong_type(key, value, "a number")
        if not minimum <= value <= maximum:  # false for NaN too
            raise BadModelFile(f"{key} is {value}; allowed is {minimum} to {maximum}", param=key)
        return float(value)

    def flag(self, key: str, default: bool | None = None) -> bool:
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise self._wrong_type(key, value, "a bool")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        value = self._get(key, default)
        if not isinstance(value, str):
            raise self._wrong_type(key, value, "a string")
        return value

    def texts(self, key: str) -> list[str]:
        """An array of strings."""
        value = self._get(key, None)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self._wrong_type(key, value, "an array of strings")
        return value

    def numbers(self, key: str) -> NumericArray:
        """An array of integers or floats."""
        value = self._get(key, None)
        if not isinstance(value, array):
            raise self._wrong_type(key, value, "an array of numbers")
        return value

    def _get(self, key: str, default: MetadataValue | None) -> MetadataValue:
        value = self.get(key, default)
        if value is None:
            raise BadModelFile(f"the metadata has no {key}", param=key)
        return value

    @staticmethod
    def _wrong_type(key: str, value: MetadataValue, wanted: str) -> BadModelFile:
        return BadModelFile(f"{key} is of type {type(value).__name__}; it must be {wanted}", param=key)
