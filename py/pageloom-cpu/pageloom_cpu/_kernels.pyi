from typing import Any, Literal, TypedDict

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Level = Literal["scalar", "neon", "avx2", "avx512", "avx512_vnni", "avx512_amx"]
Path = Literal["naive", "flash", "flash_decoding"]
Approximation = Literal["int8_query", "int16"]
QkStage = Literal["scaled", "softcapped", "masked", "probabilities"]
QuantizeRule = Literal["reciprocal", "divide"]

class Info(TypedDict):
    """What runs here. Sizes in bytes; `unavailable` gives the reason for each level that cannot run."""

    level: Level
    levels: list[Level]
    unavailable: dict[Level, str]
    threads: int
    pinned: bool
    l1d_bytes: int
    l2_bytes: int
    l3_bytes: int

class Plan(TypedDict):
    """How a call runs with its lengths as they are now.

    - `path`, `level`, `approximation`: what runs;
    - `tasks`, `splits`, `threads`: units of work, parts that the longest KV range is split into, threads that share
      them;
    - `row_tile`, `kv_block`: query rows and KV rows that are worked on at once;
    - `scratch_bytes`: working memory of a thread, and of the partial results of all splits.
    """

    path: Path
    level: Level
    approximation: Approximation | None
    tasks: int
    splits: int
    threads: int
    row_tile: int
    kv_block: int
    scratch_bytes: int

def levels() -> list[Level]:
    """Instruction-set levels that this CPU, kernel and build can run, slowest first."""

def unavailable_levels() -> dict[Level, str]:
    """Why each other level cannot run here."""

def info() -> Info:
    """The level that is used, thread count and cache sizes."""

def set_threads(count: int = 0, *, pin: bool = False) -> None:
    """Size of the thread pool, the caller included; 0 is one per CPU that the process may use.

    With `pin`, worker i stays on the i-th of those CPUs. Calls that are under way end first. Raises ValueError for a
    negative count.
    """

class Sequences:
    """The rows of each of `batch_size` sequences: read by the calls bound to it, anew each time.

    Sequence b has `count` query rows, sees keys [0, `total`), and its row i stands at position `first + i`. Causal rows
    see keys up to their position, a window W those from position - W + 1 on.

    - rows: `query_offsets` int32[B + 1] (inclusive start, exclusive end in a flat query of `rows` tokens); or `rows`
      each in a query `[B, rows, ...]`, of which the first `query_lengths` int32[B] count; the others' outputs are
      zeroed;
    - total: `past_lengths[b] + count`; or `total_lengths[b] + total_offset`; or the constant `total`. int32 or int64
      [B];
    - first: `first_position`, or where that is None `total - count`, at least 0 where `clamp_first`.

    Totals are clamped to the arrays. A sequence takes no part (stores nothing, its output rows are 0) where its offsets
    fall or leave the query, where its past is negative, and where past + count exceeds `position_limit`. Raises
    ValueError where none or several of the totals are given.
    """

    def __init__(
        self,
        batch_size: int,
        rows: int,
        *,
        query_offsets: Array | None = None,
        query_lengths: Array | None = None,
        past_lengths: Array | None = None,
        total_lengths: Array | None = None,
        total_offset: int = 0,
        total: int | None = None,
        first_position: int | None = None,
        clamp_first: bool = False,
        position_limit: int | None = None,
    ) -> None: ...
    def resolve(self) -> list[tuple[int, int, int, int]]:
        """(flat index of the first row, count, first, total) of each sequence, before clamping to a cache."""

class Attention:
    """softmax(softcap(scale * Q K^T) + bias) V, bound to its arrays.

    N query heads in groups of N / heads_kv; D and Dv channels.

    - `query`: float32 or float16 `[B, rows, N, D]`, or `[tokens, N, D]` with query_offsets; `output` likewise with Dv;
    - `key_cache`, `value_cache`: `[B, heads_kv, capacity, width]`, or with `block_table` `[blocks, block_size,
      heads_kv, width]`; float32, float16, int8 (width D) or uint8 (two int4 codes a byte, the even channel in the low
      bits, code + 8; width ceil(D / 2)). K and V may differ in type. Without `value_cache`, V is the first Dv channels
      of K (a latent cache);
    - `k_scale`, `v_scale`: float32, of size 1 or heads_kv * D (Dv), for int8 and int4;
    - `block_table`: int32 `[B, columns]`; column c holds positions [c * block_size, (c + 1) * block_size); ids outside
      [0, blocks) hide theirs;
    - `scale`; `softcap` (0 is off); `causal`; `window`: W >= 1 shows the last W positions, 0 is off;
    - `sinks`: float32 or float16 [N], logits that join the softmax without a value;
    - `bias`: float32, float16 (added after softcap) or bool (False hides), `[B or 1, N or 1, rows or 1, columns]`; -inf
      hides; keys from `columns` on are hidden. Not with query_offsets;
    - `log_sum_exp`: float32 `[B, rows, N]` or `[tokens, N]`, -inf for a row that sees nothing, whose output is 0;
    - `qk_output`: float32 or float16 `[B, N, rows, columns]`, filled as `qk_stage` says: scaled products, after
      softcap, after bias and mask (hidden is `qk_hidden`), or the probabilities; the naive path alone does it;
    - `path`, `level`: forced; None picks. flash_decoding splits the keys between threads. Raises ValueError for a level
      that cannot run here, or another path than naive with `qk_output`;
    - `approximation`: None computes in float32, or over int8 and int4 caches in whole numbers of 24 bits: in prefill on
      avx512_amx, and in decode on it and on avx512_vnni, of rows of 64 bytes or more. q is then off by up to 2^-23 of
      the row's largest channel (in decode much less where that stands out), a weight by up to 2^-24 of the largest of a
      block of keys. "int16" makes those of prefill 16 bits: off by up to 2^-15 and 2^-16. "int8_query" rounds Q of
      decode over an int8 cache to 8 bits: off by up to 1 / 254 of the row's largest channel. ValueError where the
      level, the cache or the size of its heads has it not.

    `threads` is the most of the pool that the call may use. Products and sums are float32. Raises ValueError naming the
    argument for shapes and types that do not fit.
    """

    def __init__(
        self,
        sequences: Sequences,
        query: Array,
        output: Array,
        key_cache: Array,
        value_cache: Array | None = None,
        *,
        k_scale: Array | None = None,
        v_scale: Array | None = None,
        block_table: Array | None = None,
        scale: float,
        softcap: float = 0.0,
        causal: bool = True,
        window: int = 0,
        sinks: Array | None = None,
        bias: Array | None = None,
        log_sum_exp: Array | None = None,
        qk_output: Array | None = None,
        qk_stage: QkStage = "probabilities",
        qk_hidden: float = 0.0,
        path: Path | None = None,
        level: Level | None = None,
        approximation: Approximation | None = None,
        threads: int | None = None,
    ) -> None: ...
    def __call__(self) -> None: ...
    def plan(self) -> Plan:
        """How `__call__` would run with the lengths as they are now."""

class Append:
    """What happens to new Q, K and V before attention, bound to its arrays: RMSNorm of each head, rotary embedding,
    then K and V are stored (quantised where the cache is) and Q is written to `query_output`.

    - `query`, `key`, `value`: float32 or float16 `[B, rows, heads, width]` or `[tokens, heads, width]`, parts of a
      packed tensor as strided views; `query_output` is float32 or float16 and may be `query` itself;
    - caches, scales and `block_table` as in `Attention`. Row i of a sequence goes to position first + i, if that is
      below the total and mapped; with `slot_mapping` int32 or int64 [tokens] to flat slot block * block_size + row, -1
      for none;
    - `cos`, `sin`: float32 or float16 `[positions, half]`; pairs are (2i, 2i + 1) if `interleaved`, else (i, i + half),
      counted from `rotary_offset`. Row i turns by `position_ids[b, i]` (int64 or int32 `[B, rows]`), or counts up from
      the one element of `position_ids`, or from first; clamped to the rows of `cos`;
    - `q_norm_weight`, `k_norm_weight`: float32 or float16 [D], x / sqrt(mean(x^2) + epsilon) * weight;
    - `rule`: codes are round-half-even of x * (1 / scale) or of x / scale in float32, clamped; scale 0 counts as 1; NaN
      gives the largest code.
    """

    def __init__(
        self,
        sequences: Sequences,
        *,
        query: Array | None = None,
        query_output: Array | None = None,
        key: Array | None = None,
        value: Array | None = None,
        key_cache: Array | None = None,
        value_cache: Array | None = None,
        k_scale: Array | None = None,
        v_scale: Array | None = None,
        block_table: Array | None = None,
        slot_mapping: Array | None = None,
        cos: Array | None = None,
        sin: Array | None = None,
        position_ids: Array | None = None,
        interleaved: bool = False,
        rotary_offset: int = 0,
        q_norm_weight: Array | None = None,
        k_norm_weight: Array | None = None,
        q_norm_epsilon: float = 1e-6,
        k_norm_epsilon: float = 1e-6,
        rule: QuantizeRule = "reciprocal",
        level: Level | None = None,
        threads: int | None = None,
    ) -> None: ...
    def __call__(self) -> None: ...

def quantize(
    values: Array, scale: Array, codes: Array, *, rule: QuantizeRule = "reciprocal", level: Level | None = None
) -> None:
    """Codes of float32 or float16 `values` `[rows, heads, D]` into `codes`, int8 `[rows, heads, D]` or uint8
    `[rows, heads, ceil(D / 2)]`; `scale` is float32 of size 1 or heads * D."""

def tensor_scatter(
    present: Array, update: Array, write_indices: npt.NDArray[np.int64] | None = None, *, circular: bool = False
) -> None:
    """Write `update` `[B, outer, rows, inner]` into `present` `[B, outer, capacity, inner]` at rows
    write_indices[b] + i, modulo the capacity if `circular`; same type, inner contiguous. Raises IndexError for rows
    outside, writing none."""

class Matrix:
    """A weight matrix `[rows, columns]` in the format of its GGUF file, rows interleaved for the vectors of `level`. It
    starts as zeros. Formats are F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K and Q6_K.

    Its products multiply float32 activations with the weights that the format stands for, in float32 and in one order:
    a row of a result does not depend on how many rows are computed with it. Raises ValueError for an unknown
    format and for columns that are no whole number of its blocks.
    """

    def __init__(self, rows: int, columns: int, format: str, *, level: Level | None = None) -> None: ...
    def load(self, data: npt.NDArray[np.uint8], first_row: int = 0) -> None:
        """Take over the bytes of whole rows, as they are in the file, from row `first_row` on.

        Raises ValueError where they leave the matrix, and for scales or weights that are not finite."""
    @property
    def nbytes(self) -> int: ...

# What follows is bound to float32 values [most rows, width], whose rows may lie apart, and to `count`, int32[1]: how
# many rows there are, read at every call and clamped to the arrays. Each raises ValueError for shapes that do not fit.

class Embed:
    """output[t] = matrix[ids[t]] * scale; `ids` int32. Zeros for an id outside the matrix."""

    def __init__(self, matrix: Matrix, ids: Array, output: Array, count: Array, *, scale: float = 1.0) -> None: ...
    def __call__(self) -> None: ...

class RmsNorm:
    """output = input / sqrt(mean(input^2) + epsilon) * weight (+ residual). `output` may be `input` or `residual`."""

    def __init__(
        self,
        input: Array,
        weight: Array,
        output: Array,
        count: Array,
        *,
        epsilon: float,
        residual: Array | None = None,
        level: Level | None = None,
    ) -> None: ...
    def __call__(self) -> None: ...

class Linear:
    """output = softcap(input @ concat(matrices).T + concat(biases)) + residual, where softcap(x) is
    softcap * tanh(x / softcap), and x for 0. `output` may be `residual`."""

    def __init__(
        self,
        matrices: list[Matrix],
        input: Array,
        output: Array,
        count: Array,
        *,
        biases: list[Array | None] = ...,
        residual: Array | None = None,
        softcap: float = 0.0,
    ) -> None: ...
    def __call__(self) -> None: ...

class GatedLinear:
    """output = activation(input @ gate.T) * (input @ up.T)."""

    def __init__(
        self,
        gate: Matrix,
        up: Matrix,
        input: Array,
        output: Array,
        count: Array,
        *,
        activation: Literal["silu", "gelu_tanh"],
    ) -> None: ...
    def __call__(self) -> None: ...

class SelectRows:
    """output[i] = input[indices[i]]; `indices` int32. Zeros for an index outside `input`."""

    def __init__(self, input: Array, indices: Array, output: Array, count: Array) -> None: ...
    def __call__(self) -> None: ...

class Candidates:
    """The best `num_candidates` (int32[1]) tokens of each row of `logits` `[rows, vocabulary]`, best first, the lower
    one first where logits are equal.

    First each adjustment i < num_adjustments (int32[1]) changes `logits` in place:
    `x -> (x / divisor if x > 0 else x * divisor) + bias` at (adjustment_rows[i], adjustment_tokens[i]). Outputs:
    `token_ids` int32 and `values` float32 `[rows, most candidates]`, and `log_sum_exp` float32 `[rows]` over the whole
    row, NaN where it has a logit that is not finite.
    """

    def __init__(
        self,
        logits: Array,
        count: Array,
        *,
        num_candidates: Array,
        token_ids: Array,
        values: Array,
        log_sum_exp: Array,
        adjustment_rows: Array,
        adjustment_tokens: Array,
        adjustment_divisors: Array,
        adjustment_biases: Array,
        num_adjustments: Array,
        level: Level | None = None,
    ) -> None: ...
    def __call__(self) -> None: ...

class Step:
    """Bound calls that are run one after the other without the interpreter between them."""

    def __init__(
        self, calls: list[Append | Attention | Embed | RmsNorm | Linear | GatedLinear | SelectRows | Candidates]
    ) -> None: ...
    def __call__(self) -> None: ...
