"""The kernels of a decoder, but for its attention: embedding, RMSNorm, products, and the best logits."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def embed_kernel(
    input_ids, feed_rows, candidates, candidate_stride, weight, output, scale, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):
    """A program per token: the row of `weight` of its id, which the last step's first candidate is where it is fed."""
    token = tl.program_id(0)
    feed_row = tl.load(feed_rows + token)
    token_id = tl.load(input_ids + token)
    if feed_row >= 0:
        token_id = tl.load(candidates + feed_row * candidate_stride)
    channel = tl.arange(0, BLOCK)
    inside = channel < WIDTH
    row = tl.load(weight + token_id.to(tl.int64) * WIDTH + channel, mask=inside).to(tl.float32)
    tl.store(output + token.to(tl.int64) * WIDTH + channel, row * scale, mask=inside)


@triton.jit
def rms_norm_kernel(
    input, gain, residual, output, epsilon, WIDTH: tl.constexpr, BLOCK: tl.constexpr, HAS_RESIDUAL: tl.constexpr
):
    """A program per row: RMSNorm(`input`) + `residual`."""
    row = tl.program_id(0).to(tl.int64) * WIDTH
    channel = tl.arange(0, BLOCK)
    inside = channel < WIDTH
    x = tl.load(input + row + channel, mask=inside, other=0.0).to(tl.float32)
    y = x * tl.rsqrt(tl.sum(x * x, 0) / WIDTH + epsilon) * tl.load(gain + channel, mask=inside, other=0.0)
    if HAS_RESIDUAL:
        y += tl.load(residual + row + channel, mask=inside, other=0.0)
    tl.store(output + row + channel, y.to(output.dtype.element_ty), mask=inside)


@triton.jit
def load_tile(matrix, row, inside, first, WIDTH: tl.constexpr, BLOCK_K: tl.constexpr):
    """Channels [first, first + BLOCK_K) of the rows `row` of a row-major matrix of WIDTH; 0 where it has none."""
    channel = first + tl.arange(0, BLOCK_K)
    mask = inside[:, None]
    if WIDTH % BLOCK_K != 0:
        mask = mask & (channel < WIDTH)[None, :]
    return tl.load(matrix + row.to(tl.int64)[:, None] * WIDTH + channel[None, :], mask=mask, other=0.0)


@triton.jit(do_not_specialize=["rows", "outputs"])
def linear_kernel(
    input, weight, bias, residual, output, rows, outputs, WIDTH: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_RESIDUAL: tl.constexpr,
):  # fmt: skip
    """A program per tile: `input` @ `weight`.T + `bias` + `residual`."""
    row = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    is_row, is_column = row < rows, column < outputs
    total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for first in range(0, WIDTH, BLOCK_K):
        x = load_tile(input, row, is_row, first, WIDTH, BLOCK_K)
        w = load_tile(weight, column, is_column, first, WIDTH, BLOCK_K)
        total = tl.dot(x, tl.trans(w), total)
    if HAS_BIAS:
        total += tl.load(bias + column, mask=is_column, other=0.0)[None, :]
    place = row.to(tl.int64)[:, None] * outputs + column[None, :]
    inside = is_row[:, None] & is_column[None, :]
    if HAS_RESIDUAL:
        total += tl.load(residual + place, mask=inside, other=0.0)
    tl.store(output + place, total.to(output.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows", "outputs"])
def gated_linear_kernel(
    input, weight, output, rows, outputs, WIDTH: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    """A program per tile: activation(`input` @ gate.T) * (`input` @ up.T); `weight` has the rows of both in turn."""
    row = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    is_row, is_column = row < rows, column < outputs
    gate = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    up = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for first in range(0, WIDTH, BLOCK_K):
        x = load_tile(input, row, is_row, first, WIDTH, BLOCK_K)
        gate = tl.dot(x, tl.trans(load_tile(weight, column, is_column, first, WIDTH, BLOCK_K)), gate)
        up = tl.dot(x, tl.trans(load_tile(weight, outputs + column, is_column, first, WIDTH, BLOCK_K)), up)
    if ACTIVATION == "silu":
        gate = gate * tl.sigmoid(gate)
    else:
        # 0.5 * (1 + tanh(y)) is sigmoid(2 * y); the factor is sqrt(2 / pi).
        gate = gate * tl.sigmoid(2.0 * 0.7978845608028654 * (gate + 0.044715 * gate * gate * gate))
    place = row.to(tl.int64)[:, None] * outputs + column[None, :]
    tl.store(output + place, (gate * up).to(output.dtype.element_ty), mask=is_row[:, None] & is_column[None, :])


@triton.jit
def adjust_kernel(logits, rows, tokens, divisors, biases, count, vocabulary, BLOCK: tl.constexpr):
    """The first `count` adjustments, as `LogitAdjustment` says."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < tl.load(count)
    row = tl.load(rows + index, mask=inside, other=0).to(tl.int64)
    place = logits + row * vocabulary + tl.load(tokens + index, mask=inside, other=0)
    logit = tl.load(place, mask=inside, other=0.0)
    divisor = tl.load(divisors + index, mask=inside, other=1.0)
    logit = tl.where(logit > 0.0, logit / divisor, logit * divisor) + tl.load(biases + index, mask=inside, other=0.0)
    tl.store(place, logit, mask=inside)


@triton.jit
def mask_kernel(logits, slots, masks, mask_words, vocabulary, BLOCK: tl.constexpr):
    """A program per row and chunk of BLOCK logits: those that the row's mask does not allow become -inf."""
    row = tl.program_id(0)
    slot = tl.load(slots + row)
    if slot < 0:
        return
    index = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = index < vocabulary
    word = tl.load(masks + slot.to(tl.int64) * mask_words + index // 32, mask=inside, other=-1)
    forbidden = (word >> (index % 32)) & 1 == 0
    minus_infinity = tl.full([BLOCK], float("-inf"), tl.float32)
    tl.store(logits + row.to(tl.int64) * vocabulary + index, minus_infinity, mask=inside & forbidden)


@triton.jit
def target_kernel(logits, rows, tokens, count, output, vocabulary, BLOCK: tl.constexpr):
    """The logits of the first `count` targets."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < tl.load(count)
    row = tl.load(rows + index, mask=inside, other=0).to(tl.int64)
    token = tl.load(tokens + index, mask=inside, other=0)
    tl.store(output + index, tl.load(logits + row * vocabulary + token, mask=inside, other=0.0), mask=inside)


@triton.jit
def best_of_chunk_kernel(logits, bests, ids, sums, vocabulary, BLOCK: tl.constexpr):
    """A program per row and chunk of BLOCK logits: the best, the lowest id that has it, and the sum of exponentials."""
    row, chunk = tl.program_id(0), tl.program_id(1)
    index = chunk * BLOCK + tl.arange(0, BLOCK)
    inside = index < vocabulary
    values = tl.load(logits + row.to(tl.int64) * vocabulary + index, mask=inside, other=float("-inf"))
    best = tl.max(values, 0)
    place = row * tl.num_programs(1) + chunk
    tl.store(bests + place, best)
    tl.store(ids + place, tl.min(tl.where(values == best, index, 2147483647), 0))
    tl.store(sums + place, tl.sum(tl.where(inside, tl.exp(values - best), 0.0), 0))


@triton.jit
def best_of_row_kernel(bests, ids, sums, candidates, stride, most, chunks, BLOCK: tl.constexpr):
    """A program per row: of its chunks the best id, its logit and the logsumexp, as `candidates` lays them out."""
    row = tl.program_id(0)
    chunk = tl.arange(0, BLOCK)
    inside = chunk < chunks
    values = tl.load(bests + row * chunks + chunk, mask=inside, other=float("-inf"))
    best = tl.max(values, 0)
    token = tl.min(tl.where(values == best, tl.load(ids + row * chunks + chunk, mask=inside, other=0), 2147483647), 0)
    token = tl.where(token == 2147483647, 0, token)  # no number is the best; the id may be fed before anybody looks
    parts = tl.load(sums + row * chunks + chunk, mask=inside, other=0.0)
    total = tl.sum(tl.where(inside, parts * tl.exp(values - best), 0.0), 0)
    target = candidates + row * stride
    tl.store(target, token)
    tl.store(target + most, best.to(tl.int32, bitcast=True))
    tl.store(target + 2 * most, (best + tl.log(total)).to(tl.int32, bitcast=True))
