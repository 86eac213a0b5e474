"""Claim: optimised strategies reach the published errors, and nothing allowed does better.

Errors are written out with dense matrices; optimality is shown by lower bounds from duality, which
share no code with the optimisers.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from mmcc import strategies


def rows_of_decoder(matrix: np.ndarray) -> np.ndarray:
    """Norms of the rows of A C^-1."""
    return np.linalg.norm(np.cumsum(np.linalg.inv(matrix), axis=0), axis=1)


def rmse(matrix: np.ndarray) -> float:
    """Largest column norm * |A C^-1|_F / sqrt(n)."""
    spread = math.sqrt(np.mean(rows_of_decoder(matrix) ** 2))
    return float(np.linalg.norm(matrix, axis=0).max() * spread)


def lower_bound(matrix: np.ndarray, bands: int) -> float:
    """No encoder with so many bands and columns of norm at most 1 has a smaller RMSE.

    For W >= 0 (semidefinite) that vanishes inside the band but on its diagonal, and any such
    X = C^T C: tr(A X^-1 A^T) >= 2 tr((A W A^T)^1/2) - tr(W X) >= 2 T - sum W_ii; scaled best,
    T^2 / sum W_ii.  W = X^-1 A^T A X^-1 at the optimum.
    """
    steps = len(matrix)
    prefix = np.tril(np.ones((steps, steps)))
    inverse = np.linalg.inv(matrix.T @ matrix)
    witness = inverse @ prefix.T @ prefix @ inverse
    lags = np.abs(np.subtract.outer(np.arange(steps), np.arange(steps)))
    witness[(lags > 0) & (lags < bands)] = 0
    witness += max(-np.linalg.eigvalsh(witness).min(), 0) * np.eye(steps)
    squares = np.linalg.eigvalsh(prefix @ witness @ prefix.T)
    total = float(np.sum(np.sqrt(np.maximum(squares, 0))))
    return math.sqrt(total**2 / np.trace(witness) / steps)


@pytest.mark.parametrize(
    ("steps", "counting", "optimal", "identity"),
    [
        (8, 1.585857, 1.494414, 2.121320),
        (128, 2.448826, 2.311001, 8.031189),
        (512, 2.889173, 2.739385, 16.015617),
    ],
)
def test_published_errors(steps, counting, optimal, identity):
    assert rmse(strategies.continual_counting(steps).to_dense()) == pytest.approx(
        counting, abs=1e-6
    )
    assert rmse(strategies.identity(steps).to_dense()) == pytest.approx(identity, abs=1e-6)
    best = strategies.optimal(steps)
    assert rmse(best.to_dense()) == pytest.approx(optimal, abs=2e-6)
    assert best.provenance.reached == pytest.approx(rmse(best.to_dense()), rel=1e-9)


def test_optimal_of_two_steps_in_closed_form():
    """X = [[1, x], [x, 1]]: tr(A^T A X^-1) = (3 - 2 x) / (1 - x^2), least at x = (3 - sqrt 5)/2."""
    x = (3 - math.sqrt(5)) / 2
    found = strategies.optimal(2).to_dense()
    assert (found.T @ found)[0, 1] == pytest.approx(x, abs=1e-4)
    assert rmse(found) == pytest.approx(math.sqrt((3 - 2 * x) / (1 - x * x) / 2), rel=1e-8)


@pytest.mark.parametrize("steps", [1, 2, 3, 8, 33, 100])
def test_nothing_beats_optimal(steps):
    matrix = strategies.optimal(steps).to_dense()
    bound = lower_bound(matrix, steps)
    assert bound * (1 - 1e-12) <= rmse(matrix) <= bound * (1 + 1e-8)


@pytest.mark.parametrize(("steps", "bands"), [(1, 1), (9, 1), (9, 9), (30, 2), (60, 5), (80, 20)])
def test_nothing_beats_banded(steps, bands):
    found = strategies.banded(steps, bands)
    bound = lower_bound(found.to_dense(), bands)
    assert bound * (1 - 1e-12) <= rmse(found.to_dense()) <= bound * (1 + 1e-4)
    assert found.provenance.reached == pytest.approx(rmse(found.to_dense()), rel=1e-9)


def test_all_bands_are_the_optimal_encoder():
    assert rmse(strategies.banded(24, 24).to_dense()) == pytest.approx(
        rmse(strategies.optimal(24).to_dense()), rel=1e-6
    )


def test_banded_at_a_thousand_steps():
    """What jax_privacy 2.0 reaches on the same problem: benchmarks/strategies.py."""
    assert strategies.banded(1000, 8).provenance.reached <= 8.321930 * 1.00001
    assert strategies.banded_toeplitz(1000, 8).provenance.reached <= 8.351642 * 1.000001
    assert strategies.banded_toeplitz(1000, 32).provenance.reached <= 4.910722 * 1.000001


@pytest.mark.parametrize("steps", [2, 3, 10, 50])
def test_two_toeplitz_bands_by_a_scan(steps):
    found = strategies.banded_toeplitz(steps, 2)
    scanned = min(
        rmse(strategies.toeplitz([1.0, x], steps).to_dense()) for x in np.linspace(0, 0.999, 400)
    )
    reached = rmse(found.to_dense())
    assert reached <= scanned * (1 + 1e-12)
    assert reached == pytest.approx(scanned, rel=1e-4)
    assert found.provenance.reached == pytest.approx(reached, rel=1e-9)


@pytest.mark.parametrize(("steps", "bands"), [(40, 4), (100, 16)])
def test_more_freedom_less_error(steps, bands):
    cut = strategies.toeplitz(strategies.continual_counting(bands).coefficients, steps)
    chain = [
        strategies.optimal(steps),
        strategies.banded(steps, bands),
        strategies.banded_toeplitz(steps, bands),
        cut,
    ]
    errors = [rmse(strategy.to_dense()) for strategy in chain]
    assert errors == sorted(errors)


# ------------------------------------------------------------------------------------------ BLTs


def test_published_blt():
    """n = 10^5, 2 buffers, max error: scale [.0122853, .1878394], decay [.9999529, .9857069]."""
    found = strategies.blt(10**5, 2, objective="max")
    order = np.argsort(found.scale)
    assert found.scale[order] == pytest.approx([0.0122853, 0.1878394], rel=1e-3)
    assert 1 - found.decay[order] == pytest.approx([1 - 0.9999529, 1 - 0.9857069], rel=1e-3)
    assert found.provenance.reached <= 5.29674715


@pytest.mark.parametrize(
    ("steps", "buffers", "objective", "peer"),
    [
        (1000, 2, "mean", 3.075845),
        (1000, 3, "mean", 3.051082),
        (1000, 4, "mean", 3.049826),
    ],
)
def test_blts_at_a_thousand_steps(steps, buffers, objective, peer):
    found = strategies.blt(steps, buffers, objective=objective)
    assert rmse(found.to_dense()) <= peer
    assert found.provenance.reached == pytest.approx(rmse(found.to_dense()), rel=1e-8)


@pytest.mark.parametrize("objective", ["mean", "max"])
@pytest.mark.parametrize(("steps", "buffers"), [(1, 2), (2, 2), (8, 2), (8, 4), (60, 3)])
def test_the_error_that_is_minimised_is_the_error(steps, buffers, objective):
    found = strategies.blt(steps, buffers, objective=objective)
    matrix = found.to_dense()
    if objective == "mean":
        written = rmse(matrix)
    else:
        written = np.linalg.norm(matrix, axis=0).max() * rows_of_decoder(matrix).max()
    assert found.provenance.reached == pytest.approx(written, rel=1e-7)


@pytest.mark.parametrize("objective", ["mean", "max"])
def test_no_step_in_decay_or_scale_helps(objective):
    found = strategies.blt(300, 2, objective=objective)
    from mmcc.strategies._blt_optimum import prefix_error

    least = prefix_error(300, found.decay, found.scale, objective)
    for place in range(2):
        for nudge in (0.999, 1.001):
            gaps, scale = 1 - found.decay, found.scale.copy()
            gaps[place] *= nudge
            assert prefix_error(300, 1 - gaps, found.scale, objective) >= least
            scale[place] *= nudge
            assert prefix_error(300, found.decay, scale, objective) >= least


def test_buffers_help_until_they_reach_the_best_toeplitz():
    errors = [strategies.blt(500, buffers).provenance.reached for buffers in (1, 2, 3, 4)]
    assert errors == sorted(errors, reverse=True)
    best = strategies.banded_toeplitz(500, 500).provenance.reached
    assert best <= errors[-1] <= best * 1.0005
