"""`com.microsoft.GroupQueryAttention` on an NVIDIA GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pageloom.attention.group_query.check import GroupQueryAttentionShape, check_lengths, check_shapes
from pageloom.attention.group_query.spec import GroupQueryAttentionSpec
from pageloom.attention.validation import require
from pageloom.backends.cuda.context import Context
from pageloom.backends.cuda.group_query_call import ALIASES, GroupQueryCall
from pageloom.backends.cuda.operator import CudaOperator, Prepared
from pageloom.backends.cuda.tensors import Operand, as_operand, require_apart, same_memory
from pageloom.backends.cuda.tiers import CACHED_TIERS
from pageloom.errors import InvalidArgument


class CudaGroupQueryAttention(CudaOperator):
    """The operator with its attributes; see `CudaOperator` for how inputs go in.

    `present_key` and `present_value` may be given as the tensors of past_key and past_value: tokens are then appended
    in place. Otherwise they are new, and hold the past and the new tokens. `total_sequence_length` stays on the host.
    """

    name = "GroupQueryAttention"
    tiers = CACHED_TIERS
    appends = True

    def __init__(self, context: Context, spec: GroupQueryAttentionSpec) -> None:
        super().__init__(context)
        self.spec = spec

    def _prepared(self, given: dict[str, Any]) -> Prepared:
        device = self._context.device
        operands = {name: as_operand(name, value, device) for name, value in given.items() if value is not None}
        aliases = {name: operands.pop(name) for name in ALIASES if name in operands}
        total = _total(operands)
        shape = check_shapes(self.spec, {name: operand.info for name, operand in operands.items()}, total)
        operands.pop("total_sequence_length")
        in_place = self._in_place(shape, operands, aliases)
        lengths = operands["seqlens_k"].host
        rows = operands.get("query_seqlens")
        if lengths is not None and (rows is None or rows.host is not None):
            new = None if rows is None or rows.host is None else rows.host.tolist()
            check_lengths(self.spec, shape, lengths.tolist(), new)
        return GroupQueryCall(self._context, self.spec, shape, operands, in_place=in_place)

    def _in_place(
        self, shape: GroupQueryAttentionShape, operands: Mapping[str, Operand], aliases: Mapping[str, Operand]
    ) -> bool:
        if not aliases:
            return False
        for name, alias in aliases.items():
            past = operands.get(ALIASES[name])
            require(
                len(aliases) == 2 and past is not None and same_memory(alias.tensor, past.tensor),
                f"{name} is not the memory of {ALIASES[name]}; give both of the past's tensors to append in place, or "
                f"leave {name} out",
                name,
            )
        require(
            shape.present_length == shape.past_length,
            f"present_key has {shape.past_length} rows and {shape.present_length} are needed; a longer past is "
            "appended to in place",
            "present_key",
        )
        caches = {name: operands[name].tensor for name in ALIASES.values()}
        require_apart(caches, {name: operand.tensor for name, operand in operands.items()})
        return True


def _total(operands: Mapping[str, Operand]) -> int:
    total = operands.get("total_sequence_length")
    if total is None:
        raise InvalidArgument("total_sequence_length is missing; it is always required", param="total_sequence_length")
    if total.host is None:
        raise InvalidArgument(
            "total_sequence_length is in device memory; it sizes grids and must be in host memory",
            param="total_sequence_length",
        )
    require(
        total.host.size == 1 and total.host.dtype.kind == "i",
        f"total_sequence_length is {total.host.dtype} {total.host.shape}; one integer is expected",
        "total_sequence_length",
    )
    return int(total.host.reshape(-1)[0])
