"""The engine between two steps, as a picture of it."""

from __future__ import annotations

from pageloom.engine.meter import Meter
from pageloom.engine.request import Request
from pageloom.engine.scheduler import Scheduler
from pageloom.engine.snapshot import BlockView, EngineSnapshot, RequestView


def take_snapshot(scheduler: Scheduler, meter: Meter, *, num_in_flight: int) -> EngineSnapshot:
    """`num_in_flight` steps are under way."""
    limits, pool, cache = scheduler.limits, scheduler.pool, scheduler.cache
    owners: list[list[str]] = [[] for _ in range(limits.num_blocks)]
    for request in scheduler.running:
        for block in request.table.block_ids:
            owners[block].append(request.id)
    return EngineSnapshot(
        block_size=limits.block_size,
        max_running=limits.max_sequences,
        blocks=tuple(
            BlockView(tuple(ids), pool.references(block), cache.serial_of(block)) for block, ids in enumerate(owners)
        ),
        reuse_order=pool.reuse_order(),
        running=tuple(map(_view, scheduler.running)),
        waiting=tuple(map(_view, scheduler.waiting)),
        num_in_flight=num_in_flight,
        steps=tuple(meter.timeline),
        ended=tuple(meter.ended),
    )


def _view(request: Request) -> RequestView:
    return RequestView(
        id=request.id,
        arrival=request.arrival,
        state=request.state.value,
        prompt_length=request.prompt_length,
        num_known=request.num_known,
        num_pending=request.num_pending,
        num_submitted=request.num_submitted,
        num_committed=request.table.num_committed,
        length_limit=request.length_limit,
        block_ids=tuple(request.table.block_ids),
    )
