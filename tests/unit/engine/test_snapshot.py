"""What the engine tells of its blocks and of requests that have ended."""

from pageloom.engine.config import EngineConfig
from tests.fake_runner import FakeRunner, limits
from tests.unit.engine.rig import Rig, prompt


async def test_content_that_is_given_up_is_counted_and_its_block_holds_another_serial() -> None:
    rig = Rig(runner=FakeRunner(limits(num_blocks=6)), config=EngineConfig(pipeline_depth=1))
    rig.add(prompt(1, 12), max_tokens=1)
    await rig.run()
    before = {block: view.serial for block, view in enumerate(rig.core.snapshot().blocks) if view.cached}
    assert len(before) == 3
    assert rig.core.stats().evictions == 0
    rig.add(prompt(2, 20), max_tokens=1)
    await rig.run()
    blocks = rig.core.snapshot().blocks
    given_up = [block for block, serial in before.items() if blocks[block].serial != serial]
    assert len(given_up) == rig.core.stats().evictions == 2
    assert not {blocks[block].serial for block in given_up} & set(before.values())


async def test_content_that_is_taken_up_again_keeps_its_serial_and_is_no_eviction() -> None:
    rig = Rig()
    for _ in range(2):
        rig.add(prompt(1, 13), max_tokens=1)
        await rig.run()
    assert {view.serial for view in rig.core.snapshot().blocks if view.cached} == {0, 1, 2}
    assert rig.core.stats().evictions == 0


async def test_requests_that_ended_are_told_in_that_order_with_their_tokens_and_times() -> None:
    rig = Rig()
    rig.add(prompt(1, 5), max_tokens=6, ignore_eos=True)
    rig.add(prompt(2, 7), max_tokens=2, ignore_eos=True)
    stopped = rig.add(prompt(3, 5), max_tokens=6)
    rig.core.abort(stopped.id)
    await rig.run()
    ended = rig.core.snapshot().ended
    assert [(one.prompt_tokens, one.output_tokens, one.finish_reason) for one in ended] == [
        (5, 0, "abort"),
        (7, 2, "length"),
        (5, 6, "length"),
    ]
    assert ended[0].first_token is None
    assert all(one.first_token is not None and 0 < one.first_token <= one.finished for one in ended[1:])
