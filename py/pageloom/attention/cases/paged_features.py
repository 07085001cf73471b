"""PagedAttention cases of what a token sees and what is stored: windows, sinks, slots, metadata, device values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pageloom.attention.cases.case import Case, Inputs
from pageloom.attention.cases.paged_case import paged_case

RAGGED: dict[str, Any] = {"new": (33, 1, 0, 16), "past": (95, 64, 7, 0)}
WINDOWS = (
    ((1, 1, 1), (0, 3, 65), 4), ((4, 2, 0), (15, 1, 0), 4), ((8, 3, 1), (63, 0, 17), 1), ((4, 2, 1), (0, 1, 3), 16),
    ((31, 9, 0), (63, 4, 0), 7), ((32, 17, 1), (31, 0, 3), 4), ((65, 33, 0, 2), (0, 0, 0, 0), 4),
    ((137, 67, 0, 9), (97, 31, 0, 15), 4),
)  # fmt: skip
Lengths = tuple[int, ...]
SINK_LENGTHS: tuple[tuple[str, Lengths, Lengths], ...] = (
    ("decode", (1, 1, 1), (0, 15, 150)),
    ("prefill", (70, 33, 1), (0, 64, 30)),
)


def cases() -> Iterator[Case]:
    """All features."""
    yield from _windows()
    yield from _bidirectional()
    yield from _softmax_variants()
    yield from _slots()
    yield from _metadata()
    yield from _device_values()


def _windows() -> Iterator[Case]:
    for index, (new, past, window) in enumerate(WINDOWS):
        for causal in (True, False):
            for recycle in (False, True):
                yield paged_case(
                    f"window/{index}_{'causal' if causal else 'both'}{'_recycled' if recycle else ''}",
                    new=new,
                    past=past,
                    local_window_size=window,
                    is_causal=causal,
                    recycle=recycle,
                    packed=True,
                    quick=recycle and (causal or index in (0, 7)),
                    guards="the window held W + 1 keys; tiles wholly outside it spoilt the reduction",
                )
    for window in (1, 2, 15, 16, 17, 63, 64, 65, 200):
        yield paged_case(
            f"window/size_{window}",
            new=(1, 1, 1, 40),
            past=(130, 64, 16, 77),
            local_window_size=window,
            recycle=True,
            quick=window in (1, 17, 64, 200),
        )
    wide: dict[str, Any] = {
        "heads": (64, 8),
        "block_size": 256,
        "local_window_size": 128,
        "packed": True,
        "do_rotary": True,
    }
    yield paged_case("window/wide_group_prefill", new=(16, 9), past=(240, 192), head_sink=True, **wide)
    yield paged_case("window/wide_group_decode", new=(1, 1), past=(255, 192), head_sink=True, quick=True, **wide)
    yield paged_case("window/large_poison", new=(1, 20), past=(90, 50), local_window_size=9, poison="large", quick=True)


def _bidirectional() -> Iterator[Case]:
    yield paged_case("noncausal/ragged", is_causal=False, quick=True, **RAGGED)
    yield paged_case("noncausal/mapped", is_causal=False, new=(137, 67, 0, 9), past=(97, 31, 0, 15), head_size=128)
    yield paged_case("noncausal/packed_rotary", is_causal=False, packed=True, do_rotary=True, quick=True, **RAGGED)
    yield paged_case("noncausal/decode", is_causal=False, new=(1, 1), past=(0, 65), quick=True)


def _softmax_variants() -> Iterator[Case]:
    for cap in (0.5, 5.0, 50.0):
        for name, new, past in (("decode", (1, 1), (15, 64)), ("prefill", (33, 17), (0, 20))):
            yield paged_case(
                f"softcap/{cap:g}_{name}",
                new=new,
                past=past,
                softcap=cap,
                magnitude=3.0,
                quick=cap != 0.5,
                guards="softcap was taken and dropped on one path",
            )
    yield paged_case(
        "softcap/window_sink", softcap=5.0, magnitude=2.0, local_window_size=20, head_sink=True, quick=True, **RAGGED
    )
    for name, sink_new, sink_past in SINK_LENGTHS:
        lengths: dict[str, Any] = {"new": sink_new, "past": sink_past}
        yield paged_case(
            f"sink/{name}",
            new=sink_new,
            past=sink_past,
            head_sink=True,
            quick=True,
            guards="the sink was added once for every tile of keys",
        )
        yield paged_case(f"smooth_softmax/{name}", use_smooth_softmax=True, quick=True, **lengths)
        yield paged_case(
            f"sink/{name}_window", new=sink_new, past=sink_past, head_sink=True, local_window_size=5, quick=True
        )
    yield paged_case("scale/explicit", scale=0.3, quick=True, **RAGGED)
    yield paged_case("scale/zero_is_unset", scale=0.0, new=(1, 5), past=(9, 3), quick=True)


def _slots() -> Iterator[Case]:
    for slots in ("given", "holes", "out_of_range"):
        needs = frozenset({"device_slots"}) if slots == "out_of_range" else frozenset[str]()
        yield paged_case(
            f"slot_mapping/{slots}_prefill",
            new=(7, 18),
            past=(0, 33),
            slots=slots,
            quick=True,
            needs=needs,
            adjust=_fill_unstored,
            poison="large",
        )
        yield paged_case(
            f"slot_mapping/{slots}_decode",
            new=(1, 1, 1),
            past=(4, 0, 31),
            slots=slots,
            packed=True,
            do_rotary=True,
            adjust=_fill_unstored,
            needs=needs,
            quick=slots == "holes",
            poison="large",
        )


def _fill_unstored(inputs: Inputs) -> None:
    """A token that is not stored is still attended, through what its slot holds: let that be ordinary numbers."""
    for name in ("key_cache", "value_cache"):
        cache = inputs[name]
        cache[cache > 1000] = 0.5
        cache[cache < -1000] = -0.25


def _metadata() -> Iterator[Case]:
    bounds: dict[str, tuple[int, ...]] = {
        "exact": (33, 128),
        "loose": (1000, 100000),
        "unknown": (0, 0),
        "lower": (33, 128, 97),
        "zero_query": (0, 128),
    }
    for name, metadata in bounds.items():
        yield paged_case(f"metadata/{name}", metadata=metadata, quick=name in ("loose", "lower"), **RAGGED)
    yield paged_case("metadata/decode", metadata=(1, 64, 1), new=(1, 1), past=(40, 63), local_window_size=9, quick=True)
    yield paged_case("metadata/ragged", metadata=(2, 2, 0), new=(2, 0), past=(0, 1), quick=True)


def _device_values() -> Iterator[Case]:
    device = frozenset({"device_lengths"})

    def invalid_past(inputs: Inputs) -> None:
        inputs["past_seqlens"][:] = [-1, 20, 2**31 - 1, 16 * inputs["block_table"].shape[1]]

    for name, new in (("decode", (1, 1, 1, 1)), ("prefill", (20, 5, 3, 4))):
        yield paged_case(
            f"device_values/invalid_past_{name}",
            new=new,
            past=(0, 20, 0, 33),
            adjust=invalid_past,
            needs=device,
            quick=True,
            guards="an invalid past length wrote into other sequences' blocks",
        )

    def short_prefix_sum(inputs: Inputs) -> None:
        inputs["cumulative_sequence_length"][:] = [0, 4, 7]

    yield paged_case(
        "device_values/tokens_of_no_sequence",
        new=(4, 6),
        past=(18, 3),
        adjust=short_prefix_sum,
        needs=device,
        quick=True,
        guards="a search over the prefix sum came to sequence batch_size and read past the tables",
    )

    def unmapped_history(inputs: Inputs) -> None:
        inputs["block_table"][0, 1] = -1
        inputs["block_table"][1, 0] = 2**31 - 1

    for softcap in (0.0, 2.0):
        yield paged_case(
            f"device_values/unmapped_pages{'_softcap' if softcap else ''}",
            new=(1, 18),
            past=(60, 16),
            softcap=softcap,
            adjust=unmapped_history,
            quick=True,
            guards="an unmapped page was read as zeros, or as block 0; a softcap brought it back into sight",
        )

    def unmapped_all(inputs: Inputs) -> None:
        inputs["block_table"][0] = -1

    for sink in (False, True):
        yield paged_case(
            f"device_values/nothing_visible_{'sink' if sink else 'plain'}",
            new=(3, 2),
            past=(20, 9),
            head_sink=sink,
            adjust=unmapped_all,
            quick=True,
            guards="a row that sees no key became NaN or the mean of V",
        )
