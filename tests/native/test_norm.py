"""RMSNorm against float64."""

from __future__ import annotations

import numpy as np
import pytest
from weights_kit import Bench, step_words

from pageloom.backends.webgpu.native import NativeDevice
from pageloom.backends.webgpu.program_cache import ProgramCache
from pageloom.backends.webgpu.programs.norm import plan_rms_norm
from pageloom.errors import InvalidArgument, NotSupported

SENTINEL = 7.0
EPSILON = 1e-5


@pytest.fixture(scope="module")
def bench(device: NativeDevice) -> Bench:
    return Bench(device, ProgramCache(device))


def exact(x: np.ndarray, gain: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64)
    return wide / np.sqrt((wide**2).mean(-1, keepdims=True) + EPSILON) * gain


def relative_budget(width: int) -> float:
    """Roundings of a sum of `width` squares add up like its square root; then a few for the rest."""
    return (width**0.5 + 8) * 2.0**-23


@pytest.mark.parametrize("lanes", [1, 128])
@pytest.mark.parametrize("width", [4, 212, 576, 1536])
async def test_rows_have_unit_mean_square_times_the_gain(bench: Bench, width: int, lanes: int) -> None:
    rng = np.random.default_rng(width)
    for tokens, max_tokens in [(1, 1), (3, 4), (17, 32)]:
        x = np.full((max_tokens, width), np.nan, np.float32)
        x[:tokens] = rng.standard_normal((tokens, width))
        gain = rng.standard_normal(width).astype(np.float32)
        target = bench.put(np.full((max_tokens, width), SENTINEL, np.float32))
        step = bench.put(step_words(num_tokens=tokens))
        planned = plan_rms_norm(
            bench.device.info,
            bench.put(gain),
            bench.put(x),
            target,
            step,
            width=width,
            epsilon=EPSILON,
            max_tokens=max_tokens,
            lanes=lanes,
        )
        await bench.run(planned)
        result = await bench.get(target, (max_tokens, width))
        np.testing.assert_array_equal(result[tokens:], SENTINEL)
        np.testing.assert_allclose(result[:tokens], exact(x[:tokens], gain), rtol=relative_budget(width))


@pytest.mark.parametrize("lanes", [1, 128])
@pytest.mark.parametrize("outlier", [800.0, 3e4, 1e9])
async def test_outliers_whose_squares_leave_f16_are_normal(bench: Bench, outlier: float, lanes: int) -> None:
    x = np.full((1, 576), 0.5, np.float32)
    x[0, 411] = outlier
    gain = np.linspace(0.5, 1.5, 576, dtype=np.float32)
    target, step = bench.put(np.zeros((1, 576), np.float32)), bench.put(step_words(num_tokens=1))
    planned = plan_rms_norm(
        bench.device.info,
        bench.put(gain),
        bench.put(x),
        target,
        step,
        width=576,
        epsilon=EPSILON,
        max_tokens=1,
        lanes=lanes,
    )
    await bench.run(planned)
    np.testing.assert_allclose(await bench.get(target, (1, 576)), exact(x, gain), rtol=relative_budget(576))


@pytest.mark.parametrize("lanes", [1, 128])
@pytest.mark.parametrize("aliased", ["input", "residual", "nothing"])
async def test_the_output_may_be_the_input_or_the_residual(bench: Bench, aliased: str, lanes: int) -> None:
    rng = np.random.default_rng(5)
    x, residual, gain = (rng.standard_normal(shape).astype(np.float32) for shape in ((3, 576), (3, 576), (576,)))
    source, residual_buffer = bench.put(x), bench.put(residual)
    buffers = {"input": source, "residual": residual_buffer, "nothing": bench.put(np.zeros((3, 576), np.float32))}
    planned = plan_rms_norm(
        bench.device.info,
        bench.put(gain),
        source,
        buffers[aliased],
        bench.put(step_words(num_tokens=1, LOGITS_ROWS=[2, 4, 8])),
        width=576,
        epsilon=EPSILON,
        max_tokens=3,
        rows="logits_rows",
        residual=residual_buffer,
        lanes=lanes,
    )
    await bench.run(planned)
    result = await bench.get(buffers[aliased], (3, 576))
    np.testing.assert_allclose(result, exact(x, gain) + residual, rtol=1e-5, atol=1e-5)


def test_what_it_cannot_do_is_refused(bench: Bench) -> None:
    buffer = bench.device.buffer(64)
    info = bench.device.info
    with pytest.raises(NotSupported, match="multiple of 4"):
        plan_rms_norm(info, buffer, buffer, buffer, buffer, width=6, epsilon=1e-5, max_tokens=1)
    with pytest.raises(InvalidArgument, match="one buffer"):
        plan_rms_norm(info, buffer, buffer, buffer, buffer, width=4, epsilon=1e-5, max_tokens=1, residual=buffer)
