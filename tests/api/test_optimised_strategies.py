"""Claim: made strategies are non-negative, structured, deterministic, and refuse nonsense."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import numpy as np
import pytest

from mmcc import strategies
from mmcc._cli.app import main
from mmcc.errors import MmccError, ParameterError, StrategyError
from mmcc.strategies._descent import minimise
from mmcc.strategies._optimal import lower_factor

SIZES = [(1, 1), (2, 1), (2, 2), (3, 2), (12, 1), (12, 4), (12, 12), (64, 8)]
MAKERS = ("banded", "banded_toeplitz", "banded_inverse")


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize(("steps", "bands"), SIZES)
def test_shape(name, steps, bands):
    found = getattr(strategies, name)(steps, bands)
    matrix = found.to_dense()
    assert matrix.shape == (steps, steps) == (found.rows, found.steps)
    assert (matrix >= 0).all()
    assert not np.triu(matrix, 1).any()
    assert repr(found) == f"{name}({steps}, {bands})"
    assert found.adaptive
    if name == "banded_inverse":
        lower = np.tril(np.linalg.inv(matrix), -bands)
        assert np.abs(lower).max() <= 1e-12
        assert found.inverse_bands == bands
    else:
        assert not np.tril(matrix, -bands).any()
        assert found.bands <= bands
    if name == "banded":
        assert np.linalg.norm(matrix, axis=0) == pytest.approx(np.ones(steps), rel=1e-14)
        assert found.bands == bands


@pytest.mark.parametrize("steps", [1, 2, 5, 40])
def test_optimal(steps):
    found = strategies.optimal(steps)
    matrix = found.to_dense()
    assert (matrix >= 0).all()
    assert not np.triu(matrix, 1).any()
    assert np.linalg.norm(matrix, axis=0) == pytest.approx(np.ones(steps), rel=1e-12)
    assert repr(found) == f"optimal({steps})"


@pytest.mark.parametrize(
    ("steps", "buffers"), [(1, 1), (2, 1), (3, 3), (20, 4), (20, 12), (500, 6)]
)
def test_noise_of_blts_stays_stable(steps, buffers):
    """Poles of C^-1, the eigenvalues of diag(decay) - 1 scale^T, lie in [0, 1)."""
    found = strategies.blt(steps, buffers)
    assert found.buffers == found.decay.size == buffers
    assert (found.coefficients > 0).all()
    poles = np.linalg.eigvals(np.diag(found.decay) - np.outer(np.ones(buffers), found.scale))
    assert (poles.real > -1e-6).all()
    assert (np.abs(poles) < 1).all()
    assert np.abs(poles.imag).max() < 1e-4


def test_the_inverse_square_root():
    """(1 - x)^(1/2) = sum_k binom(1/2, k) (-x)^k; its square is 1 - x up to the last band."""
    found = strategies.banded_inverse(40, 9)
    exact, value = [], Fraction(1)
    for k in range(9):
        exact.append(float(value))
        value = -value * (Fraction(1, 2) - k) / (k + 1)
    assert found.inverse == pytest.approx(exact, rel=1e-14)
    assert np.convolve(found.inverse, found.inverse)[:9] == pytest.approx([1, -1, *[0] * 7])
    with pytest.raises(ValueError):
        found.inverse[0] = 2


def test_all_bands_of_the_inverse_are_the_counting_matrix():
    np.testing.assert_allclose(
        strategies.banded_inverse(30, 30).coefficients,
        strategies.continual_counting(30).coefficients,
        rtol=1e-12,
    )


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize(
    ("steps", "bands"),
    [(0, 1), (5, 0), (5, 6), (5, -1), (5, 1.5), (5, True), ("5", 1), (5, None), (math.nan, 1)],
)
def test_bad_sizes(name, steps, bands):
    with pytest.raises(ParameterError):
        getattr(strategies, name)(steps, bands)


def test_too_large():
    with pytest.raises(StrategyError, match="at most 4096"):
        strategies.optimal(5000)
    with pytest.raises(StrategyError, match="banded_toeplitz"):
        strategies.banded(10**6, 4)
    for name in ("banded_toeplitz", "banded_inverse"):
        with pytest.raises(StrategyError, match="at most"):
            getattr(strategies, name)(10**9, 4)
    with pytest.raises(ParameterError):
        strategies.optimal(0)


@pytest.mark.parametrize("objective", ["least", None, 3, "MAX"])
def test_bad_objective(objective):
    with pytest.raises(ParameterError, match="objective"):
        strategies.blt(10, 2, objective=objective)


CALLS = {
    "optimal": (16,),
    "banded": (40, 4),
    "banded_toeplitz": (40, 4),
    "blt": (40, 3),
}


@pytest.mark.parametrize("name", CALLS)
def test_progress_and_determinism(name):
    said: list[tuple[str, float]] = []
    first = getattr(strategies, name)(*CALLS[name], progress=lambda *now: said.append(now))
    assert len(said) > 2
    assert all(isinstance(what, str) and name.split("_")[0][:4] in what for what, _ in said)
    counts = [done for _, done in said]
    assert counts == sorted(counts)
    again = getattr(strategies, name)(*CALLS[name])
    np.testing.assert_array_equal(first.to_dense(), again.to_dense())
    with pytest.raises(ParameterError, match="progress"):
        getattr(strategies, name)(*CALLS[name], progress=3)


def test_a_banded_matrix_must_be_banded():
    full = np.tril(np.ones((4, 4)))
    with pytest.raises(StrategyError, match="outside"):
        strategies.Banded(full, bands=2)
    assert strategies.Banded(full, bands=4).bands == 4
    with pytest.raises(StrategyError, match="square"):
        strategies.Banded(np.array([[1.0, 0], [1, 1], [0, 1]]), bands=2)
    with pytest.raises(MmccError, match="bands"):
        strategies.Banded(full, bands=5)


@pytest.mark.parametrize(
    "inverse",
    [[1.0, 0.5], [1.0, -0.5, 0.0], [0.5, -0.1], [], [[1.0]], [1.0, -0.7, -0.7], [1, -math.nan]],
)
def test_inverses_that_make_no_encoder(inverse):
    from mmcc.strategies._banded_inverse import from_inverse

    with pytest.raises(StrategyError, match="inverse"):
        from_inverse(np.array(inverse, dtype=float), 20, None)


def test_a_negative_factor_is_refused():
    """C^T C = X with a negative entry of C cannot be accounted."""
    with pytest.raises(StrategyError, match="negative"):
        lower_factor(np.array([[1.0, -0.5], [-0.5, 1.0]]))


def test_descent_comes_back_from_beyond_the_range_of_floats():
    def steep(x):
        return (math.inf if x[0] > 2 else (x[0] - 1.5) ** 2), 2 * (x - 1.5)

    found, value = minimise(
        steep, np.array([0.0]), (0.0, np.inf), tolerance=1e-10, what="", progress=None
    )
    assert found[0] == pytest.approx(1.5)
    assert value == pytest.approx(0, abs=1e-12)


# ------------------------------------------------------------------------------- command line

REST = "--sampling poisson --prob 1/8 --sigma 4 --delta 1e-5 --json"


@pytest.mark.parametrize(
    ("typed", "strategy"),
    [
        ("optimal --steps 8", "optimal(8)"),
        ("banded --steps 8 --bands 3", "banded(8, 3)"),
        ("banded-toeplitz --steps 8 --bands 3", "banded_toeplitz(8, 3)"),
        ("banded-inverse --steps 8 --bands 3", "banded_inverse(8, 3)"),
        ("blt --steps 8 --buffers 2", "blt(8, decay=["),
        ("blt --steps 8 --buffers 2 --objective max", "blt(8, decay=["),
        ("blt --steps 8 --decay 0.9,0.5 --scale 0.1,0.2", "blt(8, decay=[0.9, 0.5]"),
    ],
)
def test_typed(typed, strategy, capsys):
    assert main(["epsilon", "--strategy", *typed.split(), *REST.split()]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    found = json.loads(printed.out)
    assert found["strategy"].startswith(strategy)
    assert 0 < found["epsilon"] < 100


def test_a_saved_strategy_is_read(tmp_path, capsys):
    strategies.save(strategies.banded(8, 3), tmp_path / "c.npz")
    typed = ["epsilon", "--strategy", str(tmp_path / "c.npz"), *REST.split()]
    assert main(typed) == 0
    assert json.loads(capsys.readouterr().out)["strategy"] == "banded(8, 3)"


@pytest.mark.parametrize(
    ("typed", "reason"),
    [
        ("banded --steps 8", "--bands is needed"),
        ("banded --steps 8 --bands 9", "bands must lie between 1 and 8"),
        ("banded-toeplitz --steps 8 --bands x", "--bands needs a whole number such as 8"),
        ("optimal --steps 8 --bands 2", "--bands does not apply"),
        ("optimal --steps 100000", "at most 4096"),
        ("identity --steps 8 --objective max", "--objective does not apply"),
        ("bandd --steps 8 --bands 2", "did you mean 'banded'"),
    ],
)
def test_typed_nonsense(typed, reason, capsys):
    assert main(["epsilon", "--strategy", *typed.split(), *REST.split()]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert reason in printed.err
