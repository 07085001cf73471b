"""The rotary table of `kv_write.wgsl.j2`, made once per `Rope` in double precision."""

from __future__ import annotations

import array
import math

from pageloom.model.layer_ops import Rope

FINE_POSITIONS = 64


def rope_table(rope: Rope, context_length: int) -> array.array[float]:
    """f32 `[64 + ceil(context_length / 64), rope.dim / 2, 2]`: (cos, sin) of each pair's angle.

    Row r < 64 is position r. Row 64 + r is position 64 * r, times `rope.attention_factor`. The shader multiplies the
    two as complex numbers, so position 64 * a + b is exact to a few f32 ulps however far it lies, and a table for
    8192 positions takes 192 rows.
    """
    rows = [(float(position), 1.0) for position in range(FINE_POSITIONS)]
    rows += [(float(position), rope.attention_factor) for position in range(0, context_length, FINE_POSITIONS)]
    table = array.array("f")
    for position, factor in rows:
        for frequency in rope.inverse_frequencies:
            angle = position * frequency
            table.append(factor * math.cos(angle))
            table.append(factor * math.sin(angle))
    return table
