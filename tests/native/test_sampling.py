"""Candidates from the device are those of a full sort, ties, NaN and infinities included."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from pageloom.backends.webgpu.device import Device, Dispatch
from pageloom.backends.webgpu.program_cache import ProgramCache
from pageloom.backends.webgpu.programs.sampling import ConstraintBuffers, plan_sampling, sampling_scratch_bytes
from pageloom.backends.webgpu.step_layout import HEADER
from pageloom.engine.batch import LogitAdjustment

MAX_CANDIDATES = 64


def step_words(num_rows: int, adjustments: tuple[LogitAdjustment, ...]) -> np.ndarray:
    header = np.zeros(len(HEADER), np.uint32)
    header[HEADER.index("NUM_LOGITS_ROWS")] = num_rows
    header[HEADER.index("NUM_ADJUSTMENTS")] = len(adjustments)
    header[HEADER.index("ADJUSTMENTS")] = len(HEADER)
    entries = [
        np.concatenate([np.array([a.row, a.token_id], np.uint32), np.array([a.divisor, a.bias], np.float32).view("u4")])
        for a in adjustments
    ]
    return np.concatenate([header, *entries])


def sample(
    device: Device,
    logits: np.ndarray,
    k: int,
    lanes: int,
    adjustments=(),
    max_rows: int | None = None,
    masks: dict[int, list[int]] | None = None,
    targets=(),
):
    """(ids, logits, logsumexp) of each row, as the device finds them, and the words of the rows beyond; with `masks`
    (row to allowed tokens) or `targets` the wanted logits in their place."""
    rows, vocab = logits.shape
    max_rows = max_rows or rows
    constrained = masks is not None

    async def run() -> tuple[bytes, bytes]:
        stride = 2 * MAX_CANDIDATES + 2
        step = step_words(rows, adjustments)
        buffers = {
            "logits": device.buffer(4 * max_rows * vocab),
            "candidates": device.buffer(4 * max_rows * stride),
            "step": device.buffer(step.nbytes),
            "scratch": device.buffer(sampling_scratch_bytes(vocab, max_rows, MAX_CANDIDATES)),
        }
        device.write(buffers["logits"], 0, np.full((max_rows, vocab), np.nan, np.float32))
        device.write(buffers["logits"], 0, logits.astype(np.float32))
        device.write(buffers["candidates"], 0, np.full(max_rows * stride, 7, np.uint32))
        device.write(buffers["step"], 0, step)
        extra = None
        if constrained:
            words = constraint_words(vocab, max_rows, masks, targets)
            extra = ConstraintBuffers(device.buffer(len(words)), device.buffer(4 * len(targets) + 4), max_rows)
            device.write(extra.constraints, 0, words)
        planned = plan_sampling(
            device.info,
            **buffers,
            vocab_size=vocab,
            max_rows=max_rows,
            num_candidates=k,
            max_candidates=MAX_CANDIDATES,
            constrained=extra,
            lanes=lanes,
        )
        programs = ProgramCache(device)
        dispatches = [Dispatch(await programs.pipeline(p.key), p.buffers, p.grid, p.label) for p in planned]
        device.submit(device.record(dispatches))
        data = await device.read(buffers["candidates"], 0, buffers["candidates"].size)
        wanted = await device.read(extra.target_logits, 0, 4 * len(targets)) if extra and targets else b""
        for buffer in (*buffers.values(), *((extra.constraints, extra.target_logits) if extra else ())):
            buffer.destroy()
        return data, wanted

    data, wanted = asyncio.run(run())
    words = np.frombuffer(data, np.uint32).reshape(max_rows, -1)
    ids = words[:rows, :k]
    values = words[:rows, MAX_CANDIDATES : MAX_CANDIDATES + k].view(np.float32)
    rest = np.frombuffer(wanted, np.float32) if constrained else words[rows:]
    return ids, values, words[:rows, 2 * MAX_CANDIDATES].view(np.float32), rest


def constraint_words(vocab: int, max_rows: int, masks: dict[int, list[int]], targets) -> bytes:
    """The constraint buffer by its table, written apart from the code under test: masks first to last, none shared."""
    words = [len(targets), *[0] * max_rows, *(word for target in targets for word in target)]
    for row, allowed in masks.items():
        words[1 + row] = len(words)
        bits = np.zeros(-(-vocab // 32) * 32, np.uint8)
        bits[allowed] = 1
        words += np.packbits(bits, bitorder="little").view("<u4").tolist()
    return np.array(words, np.uint32).tobytes()


def check(device: Device, logits: np.ndarray, k: int, lanes: int) -> None:
    ids, values, logsumexp, _ = sample(device, logits, k, lanes)
    clean = np.where(np.isnan(logits), -np.inf, logits.astype(np.float64))
    order = np.argsort(-clean, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(ids, order)
    np.testing.assert_array_equal(values, np.take_along_axis(logits, order, 1))
    largest = clean.max(1)
    exact = largest + np.log(np.exp(clean - largest[:, None]).sum(1))
    np.testing.assert_allclose(logsumexp, exact, rtol=0, atol=1e-5 * max(1, np.abs(exact).max()))


@pytest.mark.parametrize("lanes", [1, 128])
@pytest.mark.parametrize(("vocab", "k"), [(267, 64), (1024, 1), (32003, 5), (20011, 64)])
def test_candidates_are_the_head_of_a_full_sort(device, vocab, k, lanes):
    random = np.random.default_rng(vocab + k)
    check(device, random.standard_normal((3, vocab)).astype(np.float32) * 8, k, lanes)


@pytest.mark.parametrize("lanes", [1, 128])
def test_ties_go_to_the_lower_id_also_across_chunks(device, lanes):
    logits = np.random.default_rng(1).integers(-3, 3, (2, 2500)).astype(np.float32)
    check(device, logits, 64, lanes)


@pytest.mark.parametrize("lanes", [1, 128])
def test_zero_and_minus_zero_tie(device, lanes):
    logits = np.full((1, 1100), -1.0, np.float32)
    logits[0, [4, 9, 1050]] = [-0.0, 0.0, -0.0]
    check(device, logits, 3, lanes)


@pytest.mark.parametrize("lanes", [1, 128])
def test_a_nan_never_wins_and_a_masked_logit_is_last(device, lanes):
    logits = np.full((2, 1500), -np.inf, np.float32)
    logits[0, [3, 1200, 7]] = [-1e4, -1.5, np.nan]
    logits[1, 1400] = 2.0
    logits[1, :700] = np.nan
    ids, values, logsumexp, _ = sample(device, logits, 2, lanes)
    assert ids[0].tolist() == [1200, 3]
    assert ids[1, 0] == 1400
    assert values[1].tolist() == [2.0, -np.inf]
    np.testing.assert_allclose(logsumexp, [-1.5, 2.0], atol=1e-6)


@pytest.mark.parametrize("lanes", [1, 128])
def test_a_row_without_any_finite_logit_still_names_tokens_of_the_vocabulary(device, lanes):
    logits = np.stack([np.full(1100, -np.inf), np.full(1100, np.nan)]).astype(np.float32)
    ids, _, _, _ = sample(device, logits, 64, lanes)
    assert ids[0].tolist() == list(range(64))
    assert (ids < 1100).all()


@pytest.mark.parametrize("lanes", [1, 128])
def test_adjustments_act_before_candidates_are_chosen(device, lanes):
    logits = np.array([[1.0, 2.0, 3.0, -1.0, 0.5] + [-50.0] * 1200], np.float32)
    adjustments = (
        LogitAdjustment(row=0, token_id=2, divisor=4.0),
        LogitAdjustment(row=0, token_id=3, divisor=2.0, bias=0.25),
        LogitAdjustment(row=0, token_id=1204, bias=100.0),
    )
    ids, values, _, _ = sample(device, logits, 5, lanes, adjustments)
    assert ids[0].tolist() == [1204, 1, 0, 2, 4]
    np.testing.assert_allclose(values[0], [50.0, 2.0, 1.0, 0.75, 0.5])


@pytest.mark.parametrize("lanes", [1, 128])
def test_rows_beyond_those_of_the_step_are_left_alone(device, lanes):
    logits = np.random.default_rng(3).standard_normal((3, 2000)).astype(np.float32)
    ids, _, _, beyond = sample(device, logits, 1, lanes, max_rows=8)
    np.testing.assert_array_equal(ids[:, 0], logits.argmax(1))
    assert (beyond == 7).all()


@pytest.mark.parametrize("lanes", [1, 128])
@pytest.mark.parametrize(("vocab", "k"), [(267, 64), (3001, 5)])
def test_masked_rows_have_allowed_candidates_only_and_the_others_are_untouched(device, lanes, vocab, k):
    random = np.random.default_rng(vocab)
    logits = random.standard_normal((4, vocab)).astype(np.float32) * 8
    masks = {0: [vocab - 1], 2: sorted(random.choice(vocab, 9, replace=False).tolist()), 3: list(range(0, vocab, 2))}
    allowed = np.ones(logits.shape, bool)
    for row, tokens in masks.items():
        allowed[row] = False
        allowed[row, tokens] = True
    ids, values, logsumexp, _ = sample(device, logits, k, lanes, masks=masks)
    clean = np.where(allowed, logits.astype(np.float64), -np.inf)
    best = -np.sort(-clean, axis=1)[:, :k]
    np.testing.assert_array_equal(values, best)
    finite = np.isfinite(best)
    np.testing.assert_array_equal(ids[finite], np.argsort(-clean, axis=1, kind="stable")[:, :k][finite])
    np.testing.assert_allclose(logsumexp, np.log(np.exp(clean).sum(1)), atol=1e-5)


@pytest.mark.parametrize("lanes", [1, 128])
def test_wanted_logits_are_those_behind_adjustments_and_masks(device, lanes):
    logits = np.random.default_rng(5).standard_normal((3, 1500)).astype(np.float32)
    targets = [(0, 7), (0, 1499), (1, 0), (2, 3), (2, 4)]
    adjustments = (LogitAdjustment(row=1, token_id=0, bias=2.5),)
    _, _, logsumexp, wanted = sample(device, logits, 1, lanes, adjustments, 8, masks={2: [4, 9]}, targets=targets)
    expected = [logits[0, 7], logits[0, 1499], logits[1, 0] + np.float32(2.5), -np.inf, logits[2, 4]]
    np.testing.assert_array_equal(wanted, np.array(expected, np.float32))
    np.testing.assert_allclose(logsumexp[0], np.log(np.exp(logits[0].astype(np.float64)).sum()), atol=1e-5)
