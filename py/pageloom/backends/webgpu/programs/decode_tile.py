"""What a decode workgroup takes, whichever program it runs: pure arithmetic of splits.

A split is a run of keys that one workgroup attends to at a time; splits are joined by a second program. Their size
depends on the sequence alone, so a token's result does not depend on the batch or the bucket.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pageloom.backends.webgpu.program import ParameterValue
from pageloom.backends.webgpu.programs.attention_form import AttentionForm

HEADS = 4
"""Query heads that a workgroup serves at most: its sums stay in registers."""
SHORT_LENGTH = 1024
"""Keys of the shortest sequence whose splits are the long ones."""
FULL_GRID = 2**15
"""Threads that keep a large GPU busy: more of them would each start anew where one could go on."""


@dataclass(frozen=True, slots=True)
class DecodeTile:
    """A decode workgroup: a split of the keys, or a run of splits, for up to `heads_per_group` heads of one KV head."""

    template: str
    heads_per_group: int
    workgroup_size: int
    workgroup_bytes: int
    short_split: int
    long_split: int
    own: dict[str, ParameterValue] = field(default_factory=dict)
    """Template parameters of this program alone."""
    left_out: tuple[str, ...] = ()
    """Fields of the form that this program has no use for."""
    takes_runs: bool = False
    """Whether a workgroup goes on from split to split, and so must know their size."""

    def parts(self, form: AttentionForm) -> int:
        """Workgroups that share the query heads of one KV head."""
        return -(-form.group // self.heads_per_group)

    def splits(self, form: AttentionForm, max_kv_len: int) -> int:
        """Splits that cover every key a query may see, wherever its window starts, in sequences of any length up to
        `max_kv_len`."""

        def most(split: int, length: int) -> int:
            splits = -(-length // split)
            return splits if form.window < 1 else min(splits, -(-(form.window - 1) // split) + 1)

        longest = most(self.long_split, max_kv_len) if max_kv_len > SHORT_LENGTH else 1
        return max(longest, most(self.short_split, min(max_kv_len, SHORT_LENGTH)))

    def runs(self, form: AttentionForm, max_sequences: int, splits: int) -> int:
        """Workgroups that share the splits of a sequence, of at most `splits`."""
        if not self.takes_runs:
            return splits
        full_grid = FULL_GRID // self.workgroup_size
        return min(splits, -(-full_grid // (form.kv_num_heads * self.parts(form) * max_sequences)))

    @property
    def parameters(self) -> dict[str, ParameterValue]:
        """Template parameters beside the form's and those that every decode has."""
        return self.own | (self.split_parameters if self.takes_runs else {})

    @property
    def split_parameters(self) -> dict[str, ParameterValue]:
        """How the size of a split follows from a sequence's length, for all programs that must agree on it."""
        return {"short_split": self.short_split, "long_split": self.long_split, "short_length": SHORT_LENGTH}
