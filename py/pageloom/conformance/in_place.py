"""Outputs that a call may write into its inputs."""

from __future__ import annotations

from pageloom.attention.vectors import Vector

PAST_OF = {"present_key": "past_key", "present_value": "past_value", "present_cache": "past_cache"}


def in_place(vector: Vector) -> dict[str, str]:
    """The outputs that can be the arrays of inputs of the same shape, with those inputs."""
    if vector.operator == "onnx_attention":
        return {}
    return {
        output: past
        for output, past in PAST_OF.items()
        if output in vector.expected
        and past in vector.inputs
        and vector.expected[output].values.info == vector.inputs[past].info
    }
