"""A label is as probable as the model says, whatever else runs and however often it has to begin again."""

from collections import Counter

import numpy as np
import pytest

from pageloom.engine.config import EngineConfig
from pageloom.engine.events import FinishEvent, TokenEvent
from pageloom.engine.sampling_params import SamplingParams
from pageloom.errors import CapacityExceeded, DeviceLost
from tests.fake_runner import FakeRunner, limits
from tests.unit.engine.labels import LABELS, check_labels, labels, oracle
from tests.unit.engine.rig import Rig, alone, expected, prompt


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("budget", [1, 3, 16])
async def test_probabilities_are_those_of_the_model_whatever_runs_beside(depth: int, budget: int) -> None:
    rig = Rig(config=EngineConfig(pipeline_depth=depth, token_budget=budget))
    for i in range(6):
        rig.add(prompt(i // 2, 4 + i // 2), labels=LABELS if i % 2 else (), ignore_eos=True)
    completions = await rig.run()
    for i, completion in enumerate(completions):
        if i % 2:
            check_labels(prompt(i // 2, 4 + i // 2), completion)
        else:
            wanted = SamplingParams(max_tokens=8, ignore_eos=True)
            assert list(completion.output_ids) == expected(prompt(i // 2, 4 + i // 2), wanted)


async def test_labels_that_were_tried_leave_nothing_in_shared_blocks() -> None:
    """The prompt and a label fill a block together; a prompt of just those tokens is computed anew."""
    rig = Rig()
    prompt_ids = prompt(1, 6)
    rig.add(prompt_ids, labels=LABELS)
    await rig.run()
    for label in LABELS:
        rig.add([*prompt_ids, *label.token_ids, 1, 2, 3, 4])
    for label, completion in zip(LABELS, (await rig.run())[1:], strict=True):
        assert list(completion.output_ids) == expected(
            [*prompt_ids, *label.token_ids, 1, 2, 3, 4], SamplingParams(max_tokens=8)
        )


async def test_a_preempted_classification_begins_again() -> None:
    rig = Rig(runner=FakeRunner(limits(num_blocks=5, max_blocks_per_sequence=5)))
    for i in range(2):
        rig.add(prompt(i, 4), max_tokens=12, ignore_eos=True)
    rig.add(prompt(2, 6), labels=LABELS)
    completions = await rig.run()
    assert rig.core.stats().preemptions > 0
    check_labels(prompt(2, 6), completions[2])


@pytest.mark.parametrize("lost_step", range(8))
async def test_a_classification_outlives_the_loss_of_the_device(lost_step: int) -> None:
    first = FakeRunner(limits(), fail={lost_step: DeviceLost("gone")})
    rig = Rig(runner=first, config=EngineConfig(token_budget=4), recovers=True)
    for i in range(2):
        rig.add(prompt(i, 6), labels=LABELS)
    while rig.core.has_work:
        if rig.core.lost is not None:
            rig.runner = FakeRunner(limits())
            rig.core.resume(rig.runner)
        await rig.step()
    assert rig.runner is not first
    for i, request in enumerate(rig.requests):
        check_labels(prompt(i, 6), request.completion())


async def test_a_drawn_label_comes_as_often_as_it_is_probable_and_a_seed_repeats_it() -> None:
    rig = Rig(runner=FakeRunner(limits(max_sequences=16)))
    for seed in range(400):
        rig.add(prompt(1, 3), labels=LABELS[:2], temperature=2.0, seed=seed)
    completions = await rig.run()
    weights = np.exp(np.array([oracle(prompt(1, 3), label) for label in LABELS[:2]]) / 2.0)
    share = weights[0] / weights.sum()
    counts = Counter(completion.text for completion in completions)
    assert abs(counts[LABELS[0].text] - 400 * share) < 4 * np.sqrt(400 * share * (1 - share))
    again = await alone(prompt(1, 3), labels=LABELS[:2], temperature=2.0, seed=7)
    assert again.text == completions[7].text


async def test_events_are_the_labels_tokens_and_then_its_probabilities() -> None:
    rig = Rig()
    request = rig.add(prompt(2, 5), labels=LABELS)
    await rig.run()
    *tokens, last = rig.events[request.id]
    assert isinstance(last, FinishEvent)
    assert last.labels == request.completion().labels
    assert "".join(event.text_delta for event in tokens if isinstance(event, TokenEvent)) == request.completion().text
    assert len(tokens) == last.usage.completion_tokens == len(request.completion().output_ids)


async def test_labels_without_room_are_refused() -> None:
    rig = Rig(runner=FakeRunner(limits(max_targets=3)))
    for length, spellings in ((60, [[1, 2, 3, 4, 5]]), (3, [[1], [2], [3], [4]])):
        with pytest.raises(CapacityExceeded) as refused:
            rig.add(prompt(1, length), labels=labels(*spellings))
        assert refused.value.param == "choices"
    rig.add(prompt(1, 3), labels=labels([1], [2], [3]))
    (completion,) = await rig.run()
    assert completion.finish_reason == "stop"
