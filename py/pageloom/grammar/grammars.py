"""The grammars that are in use over one model's vocabulary."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import cached_property
from threading import Lock

from pageloom.grammar.automaton import Automaton
from pageloom.grammar.json_string import BODY
from pageloom.grammar.spellings import Spellings
from pageloom.grammar.token_masks import GrammarConstraint, TokenMasks

MOST_KEPT = 8


class Grammars:
    """Makes constraints; those of one grammar share their masks. For any thread."""

    def __init__(
        self, token_bytes: Callable[[int], bytes], num_tokens: int, *, end_ids: Iterable[int], mask_bytes: int
    ) -> None:
        """`token_bytes(i)` for i below `num_tokens` is what a token stands for; the rest as `TokenMasks` has it."""
        self._token_bytes = token_bytes
        self._num_tokens = num_tokens
        self._end_ids = frozenset(end_ids)
        self._mask_bytes = mask_bytes
        self._masks: OrderedDict[Automaton, TokenMasks] = OrderedDict()
        self._lock = Lock()

    def constraint(self, automaton: Automaton) -> GrammarConstraint:
        """A text of the grammar from its beginning. The first call of all takes a moment for a large vocabulary."""
        with self._lock:
            masks = self._masks.get(automaton)
            if masks is None:
                masks = TokenMasks(automaton, self._spellings, end_ids=self._end_ids, mask_bytes=self._mask_bytes)
                self._masks[automaton] = masks
            self._masks.move_to_end(automaton)
            if len(self._masks) > MOST_KEPT:
                self._masks.popitem(last=False)
        return GrammarConstraint(masks)

    @cached_property
    def _spellings(self) -> Spellings:
        # A stop token ends the answer however it is spelt: it is never text.
        spellings = Spellings(
            [b"" if token_id in self._end_ids else self._token_bytes(token_id) for token_id in range(self._num_tokens)]
        )
        spellings.string_tokens(BODY)  # every grammar needs it, and it is better waited for here than within a step
        return spellings
