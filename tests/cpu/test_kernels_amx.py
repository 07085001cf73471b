"""The AMX kernels, which multiply whole numbers: what they say of their error, and, with loops for AMX's instructions,
their logic on any CPU with AVX-512."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cpu.kernel_oracle import attend
from tests.cpu.kernel_setup import Built, Setup, build

pageloom_cpu = pytest.importorskip("pageloom_cpu", reason="the compiled kernels are not built; see py/pageloom-cpu")

HERE = Path(__file__).parent
SOURCES = HERE.parents[1] / "py" / "pageloom-cpu" / "src"
LEVELS = pageloom_cpu.levels()
COMPILER = shutil.which("g++")
FLAGS = ("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512vnni", "-mfma", "-mf16c")

needs_amx = pytest.mark.skipif(
    "avx512_amx" not in LEVELS, reason=f"no AMX: {pageloom_cpu.unavailable_levels().get('avx512_amx')}"
)


@pytest.mark.skipif(not COMPILER, reason="no g++")
@pytest.mark.skipif("avx512_vnni" not in LEVELS, reason="no AVX-512 with VNNI")
def test_amx_kernels_with_loops_for_its_instructions_agree_with_the_scalar_ones(tmp_path: Path) -> None:
    program = tmp_path / "check"
    sources = [HERE / "level_check.cpp", SOURCES / "levels/scalar.cpp", SOURCES / "levels/avx512_amx.cpp"]
    defines = ["-DPAGELOOM_LEVEL=avx512_amx", "-DPAGELOOM_AMX_IN_LOOPS"]
    command = [COMPILER, "-std=c++17", "-O1", "-w", "-ffp-contract=off", *FLAGS, *defines, f"-I{SOURCES}"]
    subprocess.run([*command, *sources, "-o", program], check=True)
    result = subprocess.run([program], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout


def attended(level: str, approximation: Any = None, outlier: float = 1.0, storage: Any = "int8") -> tuple[Built, Any]:
    """One sequence of 300 new keys on `level`, with one channel of Q `outlier` times as large; and what is right."""
    built = build(
        Setup(counts=(300,), totals=(300,), head_size=128, key=storage, value=storage), np.random.default_rng(11)
    )
    built.call.query[..., 5] *= outlier
    attention = pageloom_cpu.Attention(
        pageloom_cpu.Sequences(**built.sequences), **built.arguments, level=level, approximation=approximation
    )
    assert attention.plan()["approximation"] == approximation
    attention()
    return built, attend(built.call)


@needs_amx
@pytest.mark.parametrize("storage", ["int8", "int4"])
@pytest.mark.parametrize("outlier", [1.0, 30.0])
def test_whole_numbers_of_24_bits_lose_at_most_twice_what_float32_does(storage: Any, outlier: float) -> None:
    amx, expected = attended("avx512_amx", outlier=outlier, storage=storage)
    floats, _ = attended("avx512", outlier=outlier, storage=storage)

    def root_mean_square(built: Built) -> Any:
        return np.sqrt(np.square(built.output - expected.output).mean())

    assert root_mean_square(amx) < 2 * root_mean_square(floats)


@needs_amx
@pytest.mark.parametrize("storage", ["int8", "int4"])
def test_whole_numbers_of_16_bits_are_off_by_no_more_than_they_say(storage: Any) -> None:
    """A channel of Q by 2^-15 of the largest of the row, so a logit by that times the sum of |k|; a weight by 2^-16 of
    the largest: in the numerator and in the denominator."""
    built, expected = attended("avx512_amx", "int16", storage=storage)
    query = np.abs(built.call.query).max(axis=-1)
    logit = 2.0**-15 * query * np.abs(built.call.keys).sum(axis=-1).max() * built.call.scale
    seen = np.abs(built.call.values[0]).cumsum(axis=1)[:, :300].repeat(2, axis=0).swapaxes(0, 1)
    count = np.arange(1, 301)[:, None, None]
    weight = 2.0**-16 * expected.probabilities.max(axis=-1)[..., None]
    bound = expected.mass[..., None] * (np.expm1(2 * logit)[..., None] + weight * count) + weight * seen
    error = np.abs(built.output - expected.output)
    assert (error <= bound + 1e-6).all()
    assert error.max() > 5e-6, "the option is expected to give up accuracy for speed"


@needs_amx
@pytest.mark.parametrize("poison", [np.nan, np.inf, 3e38])
def test_rows_of_a_query_that_have_no_whole_numbers_are_what_they_are_in_float32(poison: float) -> None:
    def output(level: str) -> Any:
        built = build(Setup(counts=(40,), totals=(40,)), np.random.default_rng(11))
        built.call.query[7, 1, 3] = poison
        pageloom_cpu.Attention(pageloom_cpu.Sequences(**built.sequences), **built.arguments, level=level)()
        return built.output

    assert np.allclose(output("avx512_amx"), output("avx512"), atol=1e-6, equal_nan=True)
