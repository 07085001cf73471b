"""From the form that an answer is asked to have to what the engine needs to keep it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pageloom.answer_form import AnswerForm
from pageloom.engine.batch import mask_bytes
from pageloom.engine.classification import Label
from pageloom.engine.constraint import Constraint
from pageloom.grammar.grammars import Grammars
from pageloom.model.gguf_tokenizer import GgufTokenizer


@dataclass(frozen=True, slots=True)
class AnswerRule:
    """What keeps one answer to its form; for one request."""

    constraint: Constraint | None
    labels: tuple[Label, ...]


def answer_rules(tokenizer: GgufTokenizer, vocab_size: int) -> Callable[[AnswerForm], AnswerRule]:
    """Makes the rules of one model, whose logits have `vocab_size` tokens. The first JSON takes a moment; any thread
    may wait for it."""
    grammars = Grammars(
        tokenizer.token_bytes,
        tokenizer.vocab_size,
        end_ids=tokenizer.stop_ids,
        mask_bytes=mask_bytes(vocab_size),
    )

    def rule_of(form: AnswerForm) -> AnswerRule:
        grammar = form.grammar
        return AnswerRule(
            None if grammar is None else grammars.constraint(grammar),
            tuple(Label(text, tuple(tokenizer.encode_continuation(text))) for text in form.choices),
        )

    return rule_of
