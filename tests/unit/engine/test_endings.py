"""How requests end, and what they have said by then."""

import pytest

from pageloom.engine.config import EngineConfig
from pageloom.engine.events import FinishEvent, TokenEvent
from pageloom.engine.output_text import OutputText
from pageloom.engine.sampling_params import SamplingParams
from pageloom.errors import CapacityExceeded, InvalidArgument, PageloomError
from pageloom.model.text_stream import TextStream
from tests.fake_runner import FakeRunner, greedy, limits
from tests.unit.engine.rig import EOS, Rig, alone, letter, prompt

WITH_EOS = next(ids for ids in (prompt(i, 4) for i in range(100)) if EOS in greedy(ids, 6)[2:])
"""A prompt whose greedy output has the stop token a few tokens in."""


async def test_the_stop_token_is_an_output_token_and_no_text() -> None:
    completion = await alone(WITH_EOS)
    tokens = greedy(WITH_EOS, 8)
    wanted = tokens[: tokens.index(EOS) + 1]
    assert list(completion.output_ids) == wanted
    assert completion.text == "".join(map(letter, wanted[:-1]))
    assert (completion.finish_reason, completion.stop_reason) == ("stop", EOS)
    assert completion.usage.completion_tokens == len(wanted)


async def test_ignore_eos_goes_on_but_not_past_the_callers_own_stop_tokens() -> None:
    tokens = greedy(WITH_EOS, 8)
    completion = await alone(WITH_EOS, ignore_eos=True)
    assert (list(completion.output_ids), completion.finish_reason) == (tokens, "length")
    completion = await alone(WITH_EOS, ignore_eos=True, stop_token_ids=(EOS,))
    assert (completion.finish_reason, completion.stop_reason) == ("stop", EOS)


async def test_a_stop_string_is_cut_from_the_text_and_its_tokens_are_kept() -> None:
    tokens = greedy(prompt(3, 4), 8)
    text = "".join(map(letter, tokens))
    rig = Rig()
    request = rig.add(prompt(3, 4), stop=(text[2:5], "never"), ignore_eos=True)
    completion = (await rig.run())[0]
    assert (completion.text, completion.stop_reason, completion.finish_reason) == (text[:2], text[2:5], "stop")
    assert list(completion.output_ids) == tokens[:5]
    deltas = [event.text_delta for event in rig.events[request.id] if isinstance(event, TokenEvent)]
    assert "".join(deltas) == text[:2]
    assert len(deltas) == 5


async def test_text_held_back_for_a_stop_string_comes_with_the_last_token() -> None:
    text = "".join(map(letter, greedy(prompt(3, 4), 4)))
    rig = Rig()
    request = rig.add(prompt(3, 4), stop=(text[3] + "~",), max_tokens=4, ignore_eos=True)
    completion = (await rig.run())[0]
    assert (completion.text, completion.finish_reason) == (text, "length")
    last = rig.events[request.id][-2]
    assert isinstance(last, TokenEvent)
    assert last.text_delta == text[3]


async def test_every_token_has_one_event_and_one_logprob_even_when_its_text_is_held_back() -> None:
    text = "".join(map(letter, greedy(prompt(3, 4), 6)))
    rig = Rig()
    request = rig.add(prompt(3, 4), stop=(text[1:6] + "~",), max_tokens=6, ignore_eos=True, logprobs=2)
    completion = (await rig.run())[0]
    events = rig.events[request.id]
    tokens = [event for event in events if isinstance(event, TokenEvent)]
    assert [event.token_id for event in tokens] == list(completion.output_ids) == greedy(prompt(3, 4), 6)
    assert [event.text_delta for event in tokens] == [text[0], "", "", "", "", text[1:6]]
    assert all(event.logprob is not None and len(event.top_logprobs) == 2 for event in tokens)
    assert [entry.logprob for entry in completion.logprobs] == [event.logprob for event in tokens]
    assert isinstance(events[-1], FinishEvent)
    assert len(events) == 7


async def test_without_a_limit_a_request_goes_on_to_the_context() -> None:
    rig = Rig(context_length=20)
    rig.add(prompt(1, 7), max_tokens=None, ignore_eos=True)
    completion = (await rig.run())[0]
    assert (len(completion.output_ids), completion.finish_reason) == (13, "length")


async def test_more_tokens_than_there_is_room_for_end_by_length() -> None:
    """The pool holds 8 tokens of a request, and one more that is never fed back."""
    rig = Rig(runner=FakeRunner(limits(num_blocks=2)))
    rig.add(prompt(1, 5), max_tokens=1000, ignore_eos=True)
    completion = (await rig.run())[0]
    assert (len(completion.output_ids), completion.finish_reason) == (4, "length")


async def test_a_prompt_that_fills_the_pool_exactly_is_served() -> None:
    rig = Rig(runner=FakeRunner(limits(num_blocks=4)))
    rig.add(prompt(1, 16), ignore_eos=True)
    completion = (await rig.run())[0]
    assert list(completion.output_ids) == greedy(prompt(1, 16), 1)


class TestRefusals:
    def test_a_prompt_larger_than_the_pool_is_refused_with_the_numbers(self) -> None:
        rig = Rig(runner=FakeRunner(limits(num_blocks=4)))
        with pytest.raises(CapacityExceeded, match=r"17 tokens needs 5 blocks of 4; one request can have 4"):
            rig.add(prompt(1, 17))
        assert not rig.core.has_work

    def test_a_prompt_wider_than_a_block_table_is_refused(self) -> None:
        rig = Rig(runner=FakeRunner(limits(max_blocks_per_sequence=2)))
        with pytest.raises(CapacityExceeded, match="needs 3 blocks of 4; one request can have 2"):
            rig.add(prompt(1, 9))

    def test_a_prompt_that_leaves_no_room_in_the_context_is_refused(self) -> None:
        rig = Rig(context_length=10)
        rig.add(prompt(1, 9))
        with pytest.raises(CapacityExceeded, match="10 tokens and one new token exceed the context of 10"):
            rig.add(prompt(1, 10))

    def test_a_full_queue_refuses(self) -> None:
        rig = Rig(config=EngineConfig(max_waiting=2))
        rig.add(prompt(1, 3))
        rig.add(prompt(2, 3))
        with pytest.raises(CapacityExceeded, match="the queue holds 2"):
            rig.add(prompt(3, 3))

    def test_any_number_of_requests_may_wait_unless_the_queue_is_bounded(self) -> None:
        rig = Rig()
        for seed in range(5_000):
            rig.add(prompt(seed, 1))
        assert len(rig.core.snapshot().waiting) == 5_000

    @pytest.mark.parametrize("token_ids", [[], [32], [-1], [1, True], [1.0], ["a"]])
    def test_tokens_outside_the_vocabulary_are_refused(self, token_ids: list[int]) -> None:
        with pytest.raises(InvalidArgument) as caught:
            Rig().add(token_ids)
        assert caught.value.param == "prompt"

    @pytest.mark.parametrize(
        ("changes", "param"),
        [
            ({"logit_bias": {32: 1.0}}, "logit_bias"),
            ({"top_k": 9}, "top_k"),
            ({"logprobs": 9}, "logprobs"),
            ({"logit_bias": dict.fromkeys(range(9), 1.0)}, "logit_bias"),
            ({"presence_penalty": 1.0, "max_tokens": 9}, "repetition_penalty"),
            ({"repetition_penalty": 1.1, "max_tokens": 6}, "repetition_penalty"),
        ],
    )
    def test_sampling_that_the_runner_has_no_room_for_is_refused(self, changes: dict[str, object], param: str) -> None:
        rig = Rig(runner=FakeRunner(limits(max_adjustments=8)))
        with pytest.raises(PageloomError) as caught:
            rig.add([1, 2, 3], **changes)
        assert caught.value.param == param

    def test_an_id_in_use_is_refused(self) -> None:
        rig = Rig()
        rig.add(prompt(1, 3))
        rig.core.add(prompt(1, 3), SamplingParams(), lambda _: None, request_id="mine")
        with pytest.raises(InvalidArgument, match="'mine' is in use"):
            rig.core.add(prompt(1, 3), SamplingParams(), lambda _: None, request_id="mine")

    @pytest.mark.parametrize("field", ["token_budget", "max_waiting", "pipeline_depth", "timeline_length"])
    def test_a_configuration_that_cannot_work_is_refused(self, field: str) -> None:
        with pytest.raises(InvalidArgument, match=field):
            EngineConfig(**{field: 0})


class Bytes:
    """Token i is the i-th of these byte strings, decoded as they come."""

    PIECES = (b"caf", b"\xc3", b"\xa9", b" STOP\xe2", b"\x82\xac", b"\xff")

    def __init__(self) -> None:
        self._stream = TextStream()

    def feed(self, token_id: int) -> str:
        return self._stream.push(self.PIECES[token_id])

    def finish(self) -> str:
        return self._stream.finish()


def spoken(stops: tuple[str, ...], token_ids: list[int]) -> tuple[list[str], str | None]:
    """What is shown with each token, the rest at the end included, and the stop string."""
    text = OutputText(Bytes(), stops)
    shown = []
    for token_id in token_ids:
        scan = text.feed(token_id)
        shown.append(scan.text)
        if scan.stopped_by:
            return shown, scan.stopped_by
    rest = text.finish()
    return [*shown, rest.text], rest.stopped_by


def test_a_character_of_several_tokens_is_shown_and_stops_when_it_is_complete() -> None:
    assert spoken((), [0, 1, 2, 3, 4]) == (["caf", "", "é", " STOP", "€", ""], None)
    assert spoken(("é",), [0, 1, 2, 3]) == (["caf", "", ""], "é")
    assert spoken(("é STOP€",), [0, 1, 2, 3, 4]) == (["caf", "", "", "", ""], "é STOP€")


def test_a_stop_string_before_half_a_character_needs_no_other_half() -> None:
    assert spoken(("STOP",), [0, 3, 4]) == (["caf", " "], "STOP")


def test_half_a_character_at_the_end_is_shown_as_replaced_and_may_stop_too() -> None:
    assert spoken((), [0, 1]) == (["caf", "", "\ufffd"], None)
    assert spoken(("\ufffd",), [0, 1]) == (["caf", "", ""], "\ufffd")
    assert spoken((), [0, 5, 0]) == (["caf", "\ufffd", "caf", ""], None)


async def test_text_held_back_comes_with_the_stop_token_too() -> None:
    tokens = greedy(WITH_EOS, 8)
    last = letter(tokens[tokens.index(EOS) - 1])
    rig = Rig()
    request = rig.add(WITH_EOS, stop=(last + "~",))
    completion = (await rig.run())[0]
    event = rig.events[request.id][-2]
    assert isinstance(event, TokenEvent)
    assert (event.token_id, event.text_delta) == (EOS, last)
    assert completion.text.endswith(last)
