"""RMSNorm and rotary embedding against other ways of writing them."""

from __future__ import annotations

import numpy as np
import pytest

from pageloom.attention.numerics.embedding import rms_norm, rotate

RNG = np.random.default_rng(3)
ANGLES = RNG.uniform(-3, 3, (50, 4))
POSITIONS = np.array([0, 7, 49])


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary_multiplies_complex_numbers(interleaved: bool) -> None:
    x = RNG.standard_normal((3, 2, 8))
    rotated = rotate(x, POSITIONS, np.cos(ANGLES), np.sin(ANGLES), interleaved=interleaved)
    real, imaginary = (x[..., 0::2], x[..., 1::2]) if interleaved else (x[..., :4], x[..., 4:])
    turned = (real + 1j * imaginary) * np.exp(1j * ANGLES[POSITIONS])[:, None]
    pairs = (rotated[..., 0::2], rotated[..., 1::2]) if interleaved else (rotated[..., :4], rotated[..., 4:])
    np.testing.assert_allclose(pairs[0] + 1j * pairs[1], turned, rtol=1e-14)


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary_touches_its_channels_alone(interleaved: bool) -> None:
    x = RNG.standard_normal((3, 2, 24))
    cos, sin = np.cos(ANGLES), np.sin(ANGLES)
    rotated = rotate(x, POSITIONS, cos, sin, interleaved=interleaved, offset=8)
    np.testing.assert_array_equal(rotated[..., :8], x[..., :8])
    np.testing.assert_array_equal(rotated[..., 16:], x[..., 16:])
    alone = rotate(x[..., 8:16], POSITIONS, cos, sin, interleaved=interleaved)
    np.testing.assert_array_equal(rotated[..., 8:16], alone)


def test_rotary_makes_products_depend_on_the_distance() -> None:
    steps = np.arange(50)[:, None] * np.array([1.0, 0.3, 0.05, 0.01])
    cos, sin = np.cos(steps), np.sin(steps)
    query, key = RNG.standard_normal((2, 1, 1, 8))
    products = []
    for position in (0, 3, 40):
        turned = rotate(query, np.array([position + 5]), cos, sin, interleaved=False)
        products.append(float(np.sum(turned * rotate(key, np.array([position]), cos, sin, interleaved=False))))
    np.testing.assert_allclose(products, products[0], rtol=1e-12)


def test_rms_norm_of_each_head_has_unit_mean_square() -> None:
    x = RNG.standard_normal((5, 3, 16)) * np.array([1, 10, 100])[:, None]
    normed = rms_norm(x, np.ones(16), 1e-12)
    np.testing.assert_allclose(np.mean(normed**2, axis=-1), 1, rtol=1e-9)
    np.testing.assert_allclose(rms_norm(x, np.full(16, 3.0), 1e-12), 3 * normed)


def test_rms_norm_of_zeros_is_zero() -> None:
    assert not rms_norm(np.zeros((1, 4)), np.ones(4), 1e-6).any()
