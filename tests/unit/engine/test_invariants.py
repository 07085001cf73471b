"""`validate_invariants` finds what it promises to find: each fault is made by hand in a sound snapshot."""

from dataclasses import replace

import pytest

from pageloom.engine.config import EngineConfig
from pageloom.engine.invariants import validate_invariants
from pageloom.engine.snapshot import EngineSnapshot, RequestView
from tests.fake_runner import FakeRunner, limits
from tests.unit.engine.rig import Rig, prompt


async def sound() -> EngineSnapshot:
    """Two requests that share a block, one that waits; 12 blocks, some evictable."""
    rig = Rig(
        runner=FakeRunner(limits(num_blocks=12, max_sequences=2, max_blocks_per_sequence=12)),
        config=EngineConfig(pipeline_depth=1),
    )
    rig.add(prompt(9, 5), max_tokens=1)
    await rig.run()
    for i in range(3):
        rig.add([*prompt(1, 4), i, i], ignore_eos=True)
    await rig.step()
    await rig.step()
    return rig.core.snapshot()


def first_running(snapshot: EngineSnapshot, **changes: object) -> EngineSnapshot:
    view, *others = snapshot.running
    return replace(snapshot, running=(replace(view, **changes), *others))  # type: ignore[arg-type]


def block(snapshot: EngineSnapshot, index: int, **changes: object) -> EngineSnapshot:
    blocks = list(snapshot.blocks)
    blocks[index] = replace(blocks[index], **changes)  # type: ignore[arg-type]
    return replace(snapshot, blocks=tuple(blocks))


async def test_a_sound_engine_has_no_violations_and_the_snapshot_shows_who_owns_what() -> None:
    snapshot = await sound()
    assert validate_invariants(snapshot) == []
    first, second = snapshot.running
    shared = first.block_ids[0]
    assert snapshot.blocks[shared].owners == (first.id, second.id)
    assert [view.id for view in snapshot.waiting] == ["request-3"]
    assert sum(view.cached and not view.owners for view in snapshot.blocks) == 1
    assert [(step.prefill_tokens, step.decode_tokens) for step in snapshot.steps] == [(5, 0), (6, 0), (2, 1)]


FAULTS = {
    "a leaked reference": lambda s: block(s, s.reuse_order[0], references=1),
    "a lost reference": lambda s: block(s, s.running[0].block_ids[0], references=1),
    "a shared block that is not cached": lambda s: block(s, s.running[0].block_ids[0], serial=None),
    "an owned block up for reuse": lambda s: replace(s, reuse_order=(s.running[0].block_ids[-1], *s.reuse_order)),
    "a block that nobody owns and nobody can get": lambda s: replace(s, reuse_order=s.reuse_order[1:]),
    "a block up for reuse twice": lambda s: replace(s, reuse_order=(*s.reuse_order, s.reuse_order[-1])),
    "a cached block before a free one": lambda s: replace(s, reuse_order=s.reuse_order[::-1]),
    "a foreign block": lambda s: first_running(s, block_ids=(*s.running[0].block_ids, 12)),
    "a block twice in a table": lambda s: first_running(s, block_ids=s.running[0].block_ids * 2),
    "an unfinished block that is cached": lambda s: block(s, s.running[0].block_ids[-1], serial=99),
    "too few blocks": lambda s: first_running(s, num_submitted=40, num_known=41, length_limit=60),
    "more committed than submitted": lambda s: first_running(s, num_committed=s.running[0].num_submitted + 1),
    "more tokens than allowed": lambda s: first_running(s, length_limit=5),
    "a token of no step": lambda s: first_running(s, num_pending=1),
    "a running request in another state": lambda s: first_running(s, state="waiting"),
    "too many running": lambda s: replace(s, max_running=1),
    "running out of order": lambda s: replace(s, running=s.running[::-1]),
    "a waiting request that holds blocks": lambda s: replace(s, waiting=(waiting(s, block_ids=(0,)),)),
    "a waiting request in another state": lambda s: replace(s, waiting=(waiting(s, state="running"),)),
    "a waiting request with a token of no step": lambda s: replace(s, waiting=(waiting(s, num_pending=1),)),
}


def waiting(snapshot: EngineSnapshot, **changes: object) -> RequestView:
    return replace(snapshot.waiting[0], **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_is_found(fault: str) -> None:
    assert validate_invariants(FAULTS[fault](await sound())) != []
