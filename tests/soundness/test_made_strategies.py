"""Claim: what is accounted for a made strategy is at least the encoder that its numbers define.

Coefficients are compared with exact arithmetic, without tolerance.  The reveal bound loses nothing
for one buffer; BLTs with more must never be taken for one.
"""

from __future__ import annotations

from fractions import Fraction

import mpmath
import numpy as np
import pytest

from mmcc import epsilon, strategies
from mmcc.accounting._bounds.reveal.chains.domination import spectrum_of
from mmcc.errors import StrategyError
from mmcc.sampling import Poisson, Rounds

SEVERAL = {"decay": [0.3, 0.9, 0.99], "scale": [0.1, 0.2, 0.05]}


@pytest.mark.parametrize(
    "numbers",
    [
        SEVERAL,
        {"decay": [0.859], "scale": [0.181]},
        {"decay": [0.5, 0.5], "scale": [0.125, 0.3]},
        {"decay": [1 - 1e-12, 0.1], "scale": [1e-9, 0.05]},
        {"decay": np.linspace(0.1, 0.9, 40), "scale": np.full(40, 0.005)},
    ],
)
def test_coefficients_of_blts_are_rounded_up(numbers):
    found = strategies.blt(400, **numbers).coefficients
    with mpmath.workdps(60):
        for k in range(1, 400):
            exact = mpmath.fsum(
                mpmath.mpf(float(w)) * mpmath.mpf(float(rho)) ** (k - 1)
                for rho, w in zip(numbers["decay"], numbers["scale"], strict=True)
            )
            assert exact <= mpmath.mpf(float(found[k])) <= exact * (1 + 1e-13) + 1e-100


@pytest.mark.parametrize(("steps", "bands"), [(1, 1), (5, 1), (200, 2), (200, 3), (200, 17)])
def test_coefficients_of_banded_inverses_are_rounded_up(steps, bands):
    found = strategies.banded_inverse(steps, bands)
    bands_of_inverse = [Fraction(float(a)) for a in found.inverse]
    exact = [Fraction(1)]
    for k in range(1, found.bands):
        reach = range(1, min(k, bands - 1) + 1)
        exact.append(-sum(bands_of_inverse[m] * exact[k - m] for m in reach))
    for value, truth in zip(found.coefficients, exact, strict=True):
        assert truth <= Fraction(float(value)) <= truth * (1 + Fraction(1, 10**11)) + 10**-99


def test_a_blt_with_several_buffers_is_no_single_buffer():
    several = strategies.blt(1000, **SEVERAL)
    assert isinstance(several, strategies.BufferedToeplitz)
    assert not isinstance(several, strategies.Blt)
    assert isinstance(strategies.blt(1000, decay=[0.9], scale=[0.1]), strategies.Blt)
    one, rounds = strategies.blt(1000, decay=[0.9], scale=[0.1]), Rounds(0.01, 1)
    assert spectrum_of(one, rounds).exact is not None
    assert spectrum_of(several, rounds).exact is None


@pytest.mark.parametrize("separation", [1, 3, 50])
def test_inner_products_of_several_buffers_are_rounded_up(separation):
    several = strategies.blt(300, **SEVERAL)
    spectrum = spectrum_of(several, Rounds(0.1, separation))
    columns = several.to_dense()[:, ::separation]
    gram = columns.T @ columns
    assert spectrum.lags[0] >= gram.diagonal().max()
    for k in range(1, len(gram)):
        assert spectrum.lags[1] * spectrum.decay ** (k - 1) >= np.diagonal(gram, k).max()


@pytest.mark.parametrize("method", ["tight", "mmcc"])
def test_several_buffers_have_the_epsilon_of_their_coefficients(method):
    several = strategies.blt(16, **SEVERAL)
    plain = strategies.toeplitz(several.coefficients, 16)
    given = {"sigma": 4.0, "delta": 1e-5, "method": method}
    found = epsilon(several, Poisson(0.05), **given)
    assert found.epsilon == epsilon(plain, Poisson(0.05), **given).epsilon


def test_one_buffer_never_stands_for_numbers_it_does_not_have():
    honest = strategies.blt(50, decay=[0.9], scale=[0.5])
    with pytest.raises(StrategyError, match="decay and scale"):
        strategies.Blt(honest.coefficients, 50, decay=np.array([0.9]), scale=np.array([0.1]))
    several = strategies.blt(50, **SEVERAL)
    with pytest.raises(StrategyError, match="one buffer"):
        strategies.Blt(several.coefficients, 50, decay=several.decay, scale=several.scale)
    with pytest.raises(StrategyError, match="same length"):
        strategies.Blt(honest.coefficients, 50)
    with pytest.raises(StrategyError, match="inverse"):
        strategies.BandedInverse(honest.coefficients, 50, inverse=np.array([1.0, -0.5]))


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("optimal", (12,)),
        ("banded", (12, 3)),
        ("banded_toeplitz", (12, 3)),
        ("banded_inverse", (12, 3)),
        ("blt", (12, 3)),
    ],
)
def test_epsilon_is_that_of_the_matrix(name, sizes):
    strategy = getattr(strategies, name)(*sizes)
    matrix = strategy.to_dense()
    assert (matrix >= 0).all()
    given = {"sigma": 3.0, "delta": 1e-5, "method": "mmcc"}
    found = epsilon(strategy, Poisson(0.1), **given)
    again = epsilon(strategies.dense(matrix), Poisson(0.1), **given)
    assert found.epsilon == pytest.approx(again.epsilon, rel=2e-3)
