"""What has to hold between any two steps."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from pageloom.engine.snapshot import EngineSnapshot, RequestView
from pageloom.kv.block_table import blocks_for


def validate_invariants(snapshot: EngineSnapshot) -> list[str]:
    """Every violation, in words; empty where the books balance."""
    return [
        *_blocks(snapshot),
        *_queues(snapshot),
        *(fault for view in snapshot.running for fault in _running(view, snapshot)),
    ]


def _blocks(snapshot: EngineSnapshot) -> list[str]:
    faults = []
    owned = Counter(block for view in snapshot.running for block in view.block_ids)
    for block, view in enumerate(snapshot.blocks):
        if view.references != owned[block]:
            faults.append(f"block {block} has {view.references} references and is in {owned[block]} tables")
        if view.references > 1 and not view.cached:
            faults.append(f"block {block} is shared and its content is not cached")
    available = [block for block, view in enumerate(snapshot.blocks) if not view.references]
    if sorted(snapshot.reuse_order) != available:
        faults.append(f"blocks {available} have no owner, and {list(snapshot.reuse_order)} are up for reuse")
    for block in owned.keys() - set(range(len(snapshot.blocks))):
        faults.append(f"block {block} is in a table and not in the pool")
    cached = [snapshot.blocks[block].cached for block in snapshot.reuse_order]
    if cached != sorted(cached):
        faults.append("a cached block would be evicted while there are free ones")
    return faults


def _queues(snapshot: EngineSnapshot) -> list[str]:
    faults = []
    for name, queue in (("running", snapshot.running), ("waiting", snapshot.waiting)):
        if any(first.arrival >= second.arrival for first, second in pairwise(queue)):
            faults.append(f"{name} requests are not in order of arrival")
    if len(snapshot.running) > snapshot.max_running:
        faults.append(f"{len(snapshot.running)} requests run; at most {snapshot.max_running} may")
    for view in snapshot.waiting:
        if view.state not in ("waiting", "preempted"):
            faults.append(f"{view.id} waits in the state {view.state}")
        if view.block_ids or view.num_submitted or view.num_committed:
            faults.append(f"{view.id} waits and holds blocks {view.block_ids}, {view.num_submitted} tokens submitted")
        if view.num_pending and not snapshot.num_in_flight:
            faults.append(f"{view.id} waits for {view.num_pending} tokens of no step")
    return faults


def _running(view: RequestView, snapshot: EngineSnapshot) -> list[str]:
    faults = []
    if view.state != "running":
        faults.append(f"{view.id} runs in the state {view.state}")
    if len(set(view.block_ids)) != len(view.block_ids):
        faults.append(f"{view.id} has a block twice: {view.block_ids}")
    if not view.num_committed <= view.num_submitted <= view.num_known + view.num_pending:
        faults.append(
            f"{view.id}: committed {view.num_committed}, submitted {view.num_submitted}, known {view.num_known} and "
            f"pending {view.num_pending} tokens are out of order"
        )
    if not snapshot.num_in_flight and (view.num_pending or view.num_committed != view.num_submitted):
        faults.append(f"{view.id} waits for a result and no step is under way")
    if blocks_for(view.num_submitted, snapshot.block_size) > len(view.block_ids):
        faults.append(f"{view.id} has {len(view.block_ids)} blocks for {view.num_submitted} tokens")
    if view.num_known + view.num_pending > view.length_limit:
        faults.append(f"{view.id} has {view.num_known + view.num_pending} tokens; its limit is {view.length_limit}")
    cached = {block for block, state in enumerate(snapshot.blocks) if state.cached}
    for block in cached.intersection(view.block_ids[view.num_committed // snapshot.block_size :]):
        faults.append(f"{view.id}: block {block} is cached, and not all of its tokens are committed")
    return faults
