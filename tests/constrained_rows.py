"""What every Runner has to make of masks and wanted logits, checked against its own plain rows."""

from __future__ import annotations

import math

from pageloom.engine.batch import LogitAdjustment, LogitTarget, RowMask, Runner, StepBatch, mask_bytes


async def check_constrained_rows(runner: Runner) -> None:
    """One sequence of three tokens, a row of logits behind each, in block 1; needs 8 candidates a row."""
    limits = runner.limits

    async def rows(**changes):
        batch = StepBatch(
            input_ids=(7, 9, 11),
            feed_rows=(-1, -1, -1),
            cumulative_sequence_length=(0, 3),
            past_seqlens=(0,),
            block_table=((1,),),
            logits_rows=(0, 1, 2),
            num_candidates=8,
            **changes,
        )
        return await runner.result(runner.submit(batch))

    plain = await rows()
    allowed = (plain[1].token_ids[2], plain[1].token_ids[5], plain[1].token_ids[6])
    bits = sum(1 << token for token in allowed).to_bytes(mask_bytes(limits.vocab_size), "little")
    targets = [(0, plain[0].token_ids[3]), (1, allowed[1]), (1, plain[1].token_ids[0]), (2, plain[2].token_ids[7])]
    changes = (LogitAdjustment(1, allowed[1], bias=2.0), LogitAdjustment(1, plain[1].token_ids[0], divisor=10.0))
    masked = await rows(
        masks=(RowMask(1, bits),), targets=tuple(LogitTarget(*target) for target in targets), adjustments=changes
    )
    for row in (0, 2):
        assert masked[row].token_ids == plain[row].token_ids
        assert (masked[row].logits, masked[row].logsumexp) == (plain[row].logits, plain[row].logsumexp)
    first, second, third = (plain[1].logits[i] for i in (2, 5, 6))
    wanted = sorted({allowed[0]: first, allowed[1]: second + 2.0, allowed[2]: third}.items(), key=lambda e: -e[1])
    assert masked[1].token_ids[:3] == tuple(token for token, _ in wanted)
    close(masked[1].logits[:3], [logit for _, logit in wanted])
    assert set(masked[1].logits[3:]) == {-math.inf}
    close([masked[1].logsumexp], [math.log(sum(math.exp(logit) for _, logit in wanted))])
    close(masked[0].target_logits, [plain[0].logits[3]])
    close(masked[1].target_logits[:1], [second + 2.0])
    assert masked[1].target_logits[1:] == (-math.inf,)
    close(masked[2].target_logits, [plain[2].logits[7]])
    assert await rows() == plain


def close(found, wanted) -> None:
    assert len(found) == len(wanted)
    assert all(abs(a - b) < 1e-4 * max(1.0, abs(b)) for a, b in zip(found, wanted, strict=True)), (found, wanted)
