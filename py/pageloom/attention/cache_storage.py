"""How the elements of a K or V cache are stored, and the rules that tie attributes, tensors and scales together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pageloom.attention.tensors import DType, TensorInfo
from pageloom.attention.validation import Inputs, require, require_dtype

QuantType = Literal["NONE", "PER_TENSOR", "PER_CHANNEL"]
QUANT_TYPES: tuple[QuantType, ...] = ("NONE", "PER_TENSOR", "PER_CHANNEL")

Element = Literal["float32", "float16", "bfloat16", "int8", "float8e4m3fn", "int4"]
"""Logical type of one cached number. int4 is packed two to a uint8: the even channel in the low four bits, code + 8."""

QUANTIZED_ELEMENTS: tuple[Element, ...] = ("int8", "float8e4m3fn", "int4")


@dataclass(frozen=True, slots=True)
class CacheStorage:
    """The element and the granularity of its scale; `quant_type` is NONE exactly when the element is unquantised."""

    element: Element
    quant_type: QuantType

    @property
    def quantized(self) -> bool:
        """Whether a stored number is a code that a scale multiplies."""
        return self.quant_type != "NONE"

    @property
    def tensor_dtype(self) -> DType:
        """Element type of the tensor that holds the cache."""
        return "uint8" if self.element == "int4" else self.element

    def row_width(self, head_size: int) -> int:
        """Elements of the cache tensor that one head's row takes: half of head_size, rounded up, for int4."""
        return (head_size + 1) // 2 if self.element == "int4" else head_size


def check_storage(param: str, element: Element, quant_type: QuantType, dtype: DType) -> CacheStorage:
    """The storage of cache `param`: quantised elements exactly with a quant type, else the operator's own `dtype`."""
    quant_param = f"{param[0]}_quant_type"
    if element in QUANTIZED_ELEMENTS:
        require(
            quant_type != "NONE",
            f"{param} holds {element} codes but {quant_param} is 'NONE'; say PER_TENSOR or PER_CHANNEL",
            quant_param,
        )
    else:
        require(
            quant_type == "NONE",
            f"{quant_param} is {quant_type!r} but {param} holds {element}; say 'NONE', or store quantised codes",
            quant_param,
        )
        require(
            element == dtype,
            f"{param} has element type {element}; an unquantised cache has the query's type, {dtype}",
            param,
        )
    return CacheStorage(element, quant_type)


def check_scale(inputs: Inputs, param: str, storage: CacheStorage, kv_num_heads: int, head_size: int) -> None:
    """`param` (float32) is there exactly for a quantised cache: 1 element PER_TENSOR, a row of head_size for each
    K/V head PER_CHANNEL, in any shape of kv_num_heads * head_size elements whose last dimension is head_size."""
    if not storage.quantized:
        inputs.forbid(param, f"the cache is not quantised, its {param[0]}_quant_type is 'NONE'")
        return
    scale = inputs.need(param, f"a cache of {storage.element} codes needs its scale")
    require_dtype(param, scale, "float32")
    if storage.quant_type == "PER_TENSOR":
        require(scale.num_elements == 1, f"{param} has shape {scale.shape}; PER_TENSOR takes one element", param)
    else:
        require(
            scale.num_elements == kv_num_heads * head_size and scale.shape[-1:] == (head_size,),
            f"{param} has shape {scale.shape}; PER_CHANNEL takes {(kv_num_heads, 1, head_size)}",
            param,
        )


def check_cache_dtype(param: str, name: str, cache: TensorInfo, cache_param: str) -> Element:
    """The logical element that attribute `param` = `name` gives to tensor `cache`.

    '' stands for the tensor's own type; 'int4' is the only reading of uint8.
    """
    require_dtype(cache_param, cache, "float32", "float16", "bfloat16", "int8", "float8e4m3fn", "uint8")
    if cache.dtype == "uint8":
        require(
            name == "int4",
            f"{cache_param} is uint8 but {param} is {name!r}; uint8 holds packed codes and needs 'int4'",
            param,
        )
        return "int4"
    require(
        name in ("", cache.dtype),
        f"{param} is {name!r} but {cache_param} holds {cache.dtype}; say '' or {cache.dtype!r}",
        param,
    )
    element: Element = cache.dtype  # type: ignore[assignment]  # narrowed by require_dtype above
    return element
