"""PagedAttention cases that vary sizes: lengths round block and tile edges, blocks, heads, element types."""

from __future__ import annotations

from collections.abc import Iterator

from pageloom.attention.cases.case import Case
from pageloom.attention.cases.paged_case import paged_case

EDGES = (1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129)


def cases() -> Iterator[Case]:
    """All sweeps."""
    yield from _lengths()
    yield from _blocks()
    yield from _heads()
    yield from _element_types()
    yield from _long()


def _lengths() -> Iterator[Case]:
    pasts = tuple(edge - 1 for edge in EDGES)
    for poison in ("nan", "large"):
        yield paged_case(
            f"decode/edges_{poison}",
            new=(1,) * len(EDGES),
            past=pasts,
            poison=poison,
            quick=True,
            guards="a stale tail of the last block took part in the softmax; a slot was left unwritten but attended",
        )
    yield paged_case("prefill/edges", new=EDGES, past=(0,) * len(EDGES), quick=True)
    yield paged_case(
        "prefill/edges_large_poison", new=EDGES[:10], past=(0,) * 10, poison="large", table_tail="dirty", quick=True
    )
    yield paged_case(
        "chunk/edges",
        new=(1, 2, 3, 15, 16, 17, 31, 32, 33, 65),
        past=(63, 15, 16, 17, 1, 31, 33, 64, 7, 129),
        quick=True,
        guards="a past computed from padded lengths leaked future keys where new lengths differ",
    )
    for new in EDGES:
        for past in (0, 1, 15, 16, 17, 63, 64, 65):
            yield paged_case(f"lengths/new_{new}_past_{past}", new=(new,), past=(past,), heads=(2, 1), head_size=32)
    for total in range(1, 65):
        yield paged_case(
            f"lengths/decode_total_{total}",
            new=(1,),
            past=(total - 1,),
            heads=(4, 2),
            head_size=32,
            guards="page ids advanced past a head's end, wrong for some lengths only",
        )


def _blocks() -> Iterator[Case]:
    for block_size in (16, 32, 64, 128, 256):
        yield paged_case(
            f"block_size/{block_size}/decode",
            new=(1, 1, 1),
            past=(block_size - 1, block_size, 2 * block_size + 1),
            block_size=block_size,
            quick=True,
            guards="a tile of 32 keys read the block that lies next in memory",
        )
        yield paged_case(
            f"block_size/{block_size}/prefill",
            new=(block_size + 1, 33, 5),
            past=(0, block_size - 1, block_size),
            block_size=block_size,
            quick=block_size in (16, 64, 256),
        )
    yield paged_case("block_size/512", new=(3, 1), past=(510, 512), block_size=512)
    yield paged_case("table/wide", new=(1, 5), past=(20, 0), extra_columns=61, quick=True)
    yield paged_case("table/no_spare", new=(1, 5), past=(31, 11), extra_columns=0, spare_blocks=0, quick=True)
    for tail in ("out_of_range", "dirty"):
        yield paged_case(
            f"table/{tail}_tail",
            new=(1, 17, 0),
            past=(20, 0, 5),
            table_tail=tail,
            poison="large",
            extra_columns=4,
            quick=True,
            guards="table entries that no position needs were followed",
        )


def _heads() -> Iterator[Case]:
    quick_sizes = (32, 40, 80, 128, 192, 256, 512)
    for head_size in (*range(32, 257, 8), 512):
        yield paged_case(
            f"head_size/{head_size}/decode",
            new=(1, 1),
            past=(19, 64),
            head_size=head_size,
            quick=head_size in quick_sizes,
        )
        yield paged_case(
            f"head_size/{head_size}/prefill",
            new=(21, 3),
            past=(0, 30),
            head_size=head_size,
            quick=head_size in (40, 256, 512),
        )
    for heads in ((1, 1), (4, 4), (4, 1), (6, 3), (8, 2), (9, 9), (9, 3), (14, 2), (16, 1), (25, 5), (32, 8), (64, 8)):
        quick = heads in ((1, 1), (9, 3), (14, 2), (32, 8))
        name = f"heads/{heads[0]}_{heads[1]}"
        yield paged_case(f"{name}/decode", new=(1, 1, 1), past=(3, 33, 70), heads=heads, head_size=32, quick=quick)
        yield paged_case(
            f"{name}/prefill", new=(18, 7), past=(0, 40), heads=heads, head_size=64, quick=heads == (16, 1)
        )


def _element_types() -> Iterator[Case]:
    for dtype in ("float32", "bfloat16"):
        for name, new, past in (("decode", (1, 1, 1), (0, 33, 64)), ("prefill", (33, 0, 18), (0, 5, 47))):
            for head_size in (64, 128):
                yield paged_case(
                    f"{dtype}/{name}_{head_size}",
                    new=new,
                    past=past,
                    head_size=head_size,
                    dtype=dtype,
                    quick=head_size == 64,
                )
        yield paged_case(f"{dtype}/odd_head", new=(5, 1), past=(0, 40), head_size=40, dtype=dtype)
        yield paged_case(f"{dtype}/packed_rotary", new=(5, 1), past=(9, 40), packed=True, do_rotary=True, dtype=dtype)


def _long() -> Iterator[Case]:
    lengths = ((3, 1024), (1, 339), (408, 800), (333, 799), (64, 2048), (17, 49), (257, 257), (459, 459), (1025, 2047))
    for new, total in lengths:
        yield paged_case(
            f"long/new_{new}_total_{total}", new=(new,), past=(total - new,), heads=(3, 1), head_size=64, block_size=256
        )
    yield paged_case("long/decode_4096", new=(1,), past=(4095,), heads=(8, 2), head_size=128, quick=True)
    yield paged_case("long/decode_ragged", new=(1, 1, 1), past=(2047, 0, 700), heads=(8, 2), head_size=64, quick=True)
    yield paged_case(
        "large_batch/300",
        new=(4,) * 300,
        past=(60,) * 300,
        heads=(2, 1),
        head_size=32,
        quick=True,
        guards="offsets of more than 256 sequences were scanned block by block and came out wrong",
    )
    yield paged_case(
        "large_grid/decode",
        new=(1,) * 1100,
        past=tuple(i % 5 for i in range(1100)),
        heads=(64, 4),
        head_size=32,
        spare_blocks=0,
        guards="more than 65,535 workgroups in one dimension",
    )
    yield paged_case(
        "large_grid/prefill",
        new=(21,) * 100,
        past=(0,) * 100,
        heads=(32, 4),
        head_size=32,
        guards="more than 65,535 rows of tokens and heads",
    )
