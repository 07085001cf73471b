"""Labels for the fake model, and what it makes of them without engine or pages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pageloom.engine.classification import Label
from pageloom.engine.events import Completion
from tests.fake_runner import logits_of, states_of
from tests.unit.engine.rig import EOS, letter


def labels(*spellings: Sequence[int]) -> list[Label]:
    return [Label("".join(map(letter, token_ids)), tuple(token_ids)) for token_ids in spellings]


LABELS = labels([3], [3, 7], [5, 5, 9, 1, 2, 8], [12, 4])


def oracle(prompt_ids: list[int], label: Label) -> float:
    """The sum over the label and EOS, from the model without engine or pages."""
    total = 0.0
    token_ids = list(prompt_ids)
    for token_id in (*label.token_ids, EOS):
        logits = np.array(logits_of(states_of(token_ids)[-1]))
        total += logits[token_id] - np.logaddexp.reduce(logits)
        token_ids.append(token_id)
    return total


def check_labels(prompt_ids: list[int], completion: Completion, *, greedy: bool = True) -> None:
    """The probabilities are those of the model, and the answer is the best of the labels where it is not drawn."""
    wanted = np.array([oracle(prompt_ids, label) for label in LABELS])
    np.testing.assert_allclose([score.logprob for score in completion.labels], wanted, rtol=1e-9)
    shares = np.exp(wanted) / np.exp(wanted).sum()
    np.testing.assert_allclose([score.probability for score in completion.labels], shares, rtol=1e-9)
    best = LABELS[int(wanted.argmax())]
    assert not greedy or (completion.text, completion.output_ids) == (best.text, best.token_ids)
    assert completion.finish_reason == "stop"
