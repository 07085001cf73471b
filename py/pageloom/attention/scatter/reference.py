"""TensorScatter in numpy."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pageloom.attention.numerics.dtypes import Array, describe_all
from pageloom.attention.scatter.spec import TensorScatterSpec, check_indices, check_shapes


def tensor_scatter(spec: TensorScatterSpec, inputs: Mapping[str, Array]) -> Array:
    """`past_cache` with `update` written along the axis from `write_indices` on; bits are copied, none computed.

    Raises `InvalidArgument` where the checks do.
    """
    shape = check_shapes(spec, describe_all(dict(inputs)))
    starts = inputs.get("write_indices", np.zeros(shape.batch_size, np.int64))
    check_indices(spec, shape, starts.tolist())
    present = inputs["past_cache"].copy()
    for row, start in enumerate(starts.tolist()):
        places = (start + np.arange(shape.sequence_length)) % shape.max_sequence_length
        target = np.moveaxis(present[row], shape.axis - 1, 0)
        target[places] = np.moveaxis(inputs["update"][row], shape.axis - 1, 0)
    return present
