"""Whatever a model likes best: an answer that is whole is JSON, and valid by another implementation of JSON Schema."""

from __future__ import annotations

import asyncio
import json
import random

import jsonschema
from hypothesis import given, settings
from hypothesis import strategies as st

from pageloom.engine.batch import mask_bytes
from pageloom.grammar.automaton import Automaton
from pageloom.grammar.json_grammar import ANY_VALUE
from pageloom.grammar.json_schema import compile_schema
from pageloom.grammar.spellings import Spellings
from pageloom.grammar.token_masks import GrammarConstraint, TokenMasks
from tests.fake_runner import VOCAB_SIZE, FakeRunner, limits
from tests.unit.engine.rig import EOS, Rig, prompt
from tests.unit.grammar.schemas import Schema, schemas

PIECES = [
    '{"', '"}', '":', '": ', '", "', "},", "]}", '"]', "[[", "{}", "[]", "true", "null", "false", ", ", ",\n", "\n  ",
    "    ", " a", "ab", "abc", "la", " la", "12", "0.5", "e+1", "-1", '\\"', "\\n", "\\u00", "é", "日本", "😀",
    '{"a": ', '"ab', 'b"', 'la"}', '"é', "\\", "\\ud8", "true}", "null,", "1]", "1,", '"],"',
]  # fmt: skip
BYTES = [bytes([value]) for value in range(256)] + [piece.encode() for piece in PIECES] + ["日".encode()[:2], b""]
STOP = len(BYTES) - 1
SPELLINGS = Spellings(BYTES)
FEW = [*'{}[]",: \n0125-.eatrufslnb\\éq', '":']
"""A vocabulary as small as the fake model's; "é" is one token of two bytes."""


def masks_of(automaton: Automaton) -> TokenMasks:
    return TokenMasks(automaton, SPELLINGS, end_ids=[STOP], mask_bytes=mask_bytes(len(BYTES)))


@settings(max_examples=80, deadline=None, derandomize=True)
@given(schemas, st.integers(0, 2**16))
def test_a_random_walk_over_allowed_tokens_ends_in_a_valid_value(schema: Schema, seed: int) -> None:
    rng = random.Random(seed)
    automaton = compile_schema(schema)
    constraint, text, positions = GrammarConstraint(masks_of(automaton)), b"", automaton.start
    for length in range(400):
        allowed = int.from_bytes(constraint.allowed(), "little")
        tokens = [token for token in range(len(BYTES)) if allowed >> token & 1]
        if length < 8:
            assert tokens == [token for token in range(len(BYTES)) if fits(automaton, positions, token)]
        closing = [token for token in tokens if any(byte in b'"]}' for byte in BYTES[token])]
        token = (
            STOP
            if STOP in tokens and rng.random() < 0.5
            else rng.choice(closing if length > 40 and closing else tokens)
        )
        if token == STOP:
            break
        text += BYTES[token]
        constraint.advance(token)
        for byte in BYTES[token]:
            positions = automaton.advance(positions, byte)
        if constraint.is_complete:
            break
    else:
        return
    jsonschema.validate(json.loads(text), schema, jsonschema.Draft202012Validator)


def fits(automaton: Automaton, positions: object, token: int) -> bool:
    """Byte by byte, without the ways around that masks take."""
    if token == STOP:
        return None in positions  # type: ignore[operator]
    for byte in BYTES[token]:
        positions = automaton.advance(positions, byte)  # type: ignore[arg-type]
    return bool(positions)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(schemas, st.sampled_from([0.0, 0.7, 2.0]), st.integers(0, 99))
def test_whole_answers_of_the_engine_are_valid(schema: Schema, temperature: float, seed: int) -> None:
    spellings = Spellings([piece.encode() for piece in FEW] + [b""] * (VOCAB_SIZE - len(FEW)))
    masks = TokenMasks(compile_schema(schema), spellings, end_ids=[EOS], mask_bytes=4)
    rig = Rig(runner=FakeRunner(limits(max_blocks_per_sequence=32)), context_length=128)
    for i in range(3):
        constraint = GrammarConstraint(masks)
        rig.add(prompt(seed + i, 5), constraint=constraint, temperature=temperature, seed=seed, max_tokens=60)
    rig.add(prompt(seed, 4), max_tokens=8)
    *answers, _ = asyncio.run(rig.run())
    for answer in answers:
        text = "".join(FEW[token] for token in answer.output_ids if token != EOS)
        assert answer.finish_reason in ("stop", "length")
        if answer.finish_reason == "stop":
            jsonschema.validate(json.loads(text), schema, jsonschema.Draft202012Validator)


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(10**14), 10**14), st.text(max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=4), inner, max_size=4)),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(json_values, st.sampled_from([None, 1, 2]), st.booleans())
def test_every_value_can_be_written_as_python_writes_it(value: object, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    if ascii_only and all(ord(character) < 0x10000 for character in text):
        text = json.dumps(value, indent=indent)
    assert accepts(Automaton(ANY_VALUE), text.encode())


def accepts(automaton: Automaton, text: bytes) -> bool:
    positions = automaton.start
    for byte in text:
        positions = automaton.advance(positions, byte)
    return None in positions
