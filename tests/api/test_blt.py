"""Claim: a BLT is what its decay and scale say, is optimised when asked, and refuses nonsense."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import mmcc
from mmcc import strategies
from mmcc._cli.app import main
from mmcc.errors import MethodError, ParameterError, StrategyError
from mmcc.sampling import Poisson
from mmcc.strategies._blt import prefix_error


def error(matrix: np.ndarray) -> float:
    """Largest column norm * |A C^-1|_F / sqrt(n), written out."""
    steps = len(matrix)
    prefix = np.tril(np.ones((steps, steps)))
    spread = np.linalg.norm(prefix @ np.linalg.inv(matrix))
    return float(np.linalg.norm(matrix, axis=0).max() * spread / math.sqrt(steps))


@pytest.mark.parametrize("seed", range(5))
def test_descriptions_are_read_back_to_the_last_bit(seed):
    rng = np.random.default_rng(seed)
    decay = 1 - np.array([float(f"{value:.6g}") for value in rng.uniform(1e-6, 0.9, 3)])
    given = strategies.blt(9, decay=decay, scale=decay * rng.uniform(0.01, 0.3, 3))
    cut = strategies.toeplitz(np.append(1.0, rng.random(3)), 9)
    for strategy in (given, cut, strategies.blt(9 + seed, 2)):
        again = eval(repr(strategy), {"blt": strategies.blt, "toeplitz": strategies.toeplitz})
        for part, same in zip(strategy.defining(), again.defining(), strict=True):
            assert np.array_equal(part, same)


def test_coefficients_and_repr():
    found = strategies.blt(5, decay=[0.5], scale=[0.25])
    assert found.coefficients == pytest.approx([1, 0.25, 0.125, 0.0625, 0.03125], rel=1e-15)
    assert repr(strategies.blt(2000, decay=[0.859], scale=[0.181])) == (
        "blt(2000, decay=[0.859], scale=[0.181])"
    )
    assert isinstance(found, strategies.Toeplitz)
    with pytest.raises(ValueError):
        found.decay[0] = 0.7


def test_coefficients_are_rounded_up_never_down():
    found = strategies.blt(3000, decay=[0.859], scale=[0.181])
    exact = 0.181 * np.longdouble(0.859) ** np.arange(2999, dtype=np.longdouble)
    assert (found.coefficients[1:] >= exact).all()
    assert found.coefficients.min() == 1e-100


@pytest.mark.parametrize("steps", [2, 3, 8, 50, 300])
def test_closed_form_of_the_error(steps):
    for decay, scale in ((0.9, 0.3), (0.5, 0.5), (0.99, 0.01)):
        matrix = strategies.blt(steps, decay=[decay], scale=[scale]).to_dense()
        assert prefix_error(steps, decay, scale) == pytest.approx(error(matrix), rel=1e-9)


@pytest.mark.parametrize(("steps", "best"), [(8, 1.5444), (128, 2.4793), (2000, 3.8486)])
def test_optimised_for_prefix_sums(steps, best):
    found = strategies.blt(steps, buffers=1)
    decay, scale = float(found.decay[0]), float(found.scale[0])
    assert prefix_error(steps, decay, scale) <= best
    for nudge in (0.999, 1.001):
        near = prefix_error(steps, 1 - (1 - decay) * nudge, scale)
        assert near >= prefix_error(steps, decay, scale)
        assert prefix_error(steps, decay, scale * nudge) >= prefix_error(steps, decay, scale)
    assert repr(strategies.blt(steps)) == repr(found)


def test_a_million_steps():
    found = strategies.blt(10**6)
    assert found.steps == 10**6
    assert 0 < found.scale[0] <= found.decay[0] < 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"decay": [0.9, 0.5], "scale": [0.6, 0.2]}, "at most 1"),
        ({"decay": [0.9, 0.5], "scale": [0.1, -0.1]}, "negative"),
        ({"decay": [0.9, math.inf], "scale": [0.1, 0.1]}, "decay"),
        ({"decay": [[0.9]], "scale": [[0.1]]}, "same length"),
        ({"decay": [0.9]}, "together"),
        ({"scale": [0.9]}, "together"),
        ({"decay": [], "scale": []}, "same length"),
        ({"decay": [0.9], "scale": [0.1, 0.1]}, "same length"),
        ({"decay": 0.9, "scale": 0.1}, "same length"),
        ({"decay": [1.0], "scale": [0.1]}, "decay"),
        ({"decay": [0.0], "scale": [0.0]}, "decay"),
        ({"decay": [math.nan], "scale": [0.1]}, "decay"),
        ({"decay": [0.5], "scale": [0.6]}, "scale"),
        ({"decay": [0.5], "scale": [0.0]}, "scale"),
        ({"decay": [0.5], "scale": [-0.1]}, "scale"),
        ({"decay": [0.5], "scale": [math.nan]}, "scale"),
        ({"decay": ["a"], "scale": [0.1]}, "real numbers"),
        ({"buffers": 2, "decay": [0.9], "scale": [0.1]}, "buffers"),
    ],
)
def test_bad_input(arguments, says):
    with pytest.raises(StrategyError, match=says):
        strategies.blt(100, **arguments)


@pytest.mark.parametrize("steps", [0, -1, 2.5, True])
def test_bad_steps(steps):
    with pytest.raises(ParameterError):
        strategies.blt(steps)


@pytest.mark.parametrize("buffers", [0, 1.5, True, 13, 10**9])
def test_bad_buffers(buffers):
    with pytest.raises(ParameterError):
        strategies.blt(100, buffers)


def test_too_many_steps():
    with pytest.raises(StrategyError, match="at most"):
        strategies.blt(10**8)


def test_other_methods_take_it():
    found = mmcc.epsilon(
        strategies.blt(20, decay=[0.5], scale=[0.2]), Poisson(0.1), sigma=5.0, delta=1e-5
    )
    assert found.epsilon > 0


def test_the_reveal_bound_needs_a_toeplitz_strategy():
    given = {"sigma": 5.0, "delta": 1e-5, "method": "reveal"}
    with pytest.raises(MethodError, match="need a Toeplitz strategy"):
        mmcc.epsilon(strategies.dense(np.tril(np.ones((3, 3)))), Poisson(0.1), **given)
    assert mmcc.epsilon(strategies.blt(30), Poisson(0.1), **given).epsilon > 0


def test_the_reveal_bound_goes_by_its_old_name_as_well(capsys):
    strategy, given = strategies.blt(50, decay=[0.5], scale=[0.2]), {"sigma": 5.0, "delta": 1e-5}
    found = mmcc.epsilon(strategy, Poisson(0.1), **given, method="chain")
    assert found.epsilon == mmcc.epsilon(strategy, Poisson(0.1), **given, method="reveal").epsilon
    words = (
        "epsilon --strategy blt --steps 50 --decay 0.5 --scale 0.2 --sampling poisson --prob 0.1"
    )
    main([*words.split(), "--sigma", "5", "--delta", "1e-5", "--json", "--method", "chain"])
    assert json.loads(capsys.readouterr().out)["epsilon"] == found.epsilon
