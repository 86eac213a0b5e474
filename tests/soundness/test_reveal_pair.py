"""Claim: delta of the revealed pair is what the lattice says or less, and no less than the truth.

The pair is drawn here by code of its own: participations, outputs, fakes and their chances.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from oracles import enumeration, truth

from mmcc.accounting._bounds.reveal.chains.centring import Centring
from mmcc.accounting._bounds.reveal.chains.chain import Chain, binomial_prior
from mmcc.accounting._bounds.reveal.chains.curve import Setting, _ordered, curve_near
from mmcc.accounting._bounds.reveal.inversion import Curve

CHAINS = [
    Chain(6, 1, 0.05, 0.6, 0.04, binomial_prior(1, 0.2)),
    Chain(3, 2, 0.04, 0.7, 0.05, binomial_prior(1, 0.3)),
    Chain(4, 1, 0.03, 0.5, 0.03, binomial_prior(2, 0.1)),
]
SIZE = 100_000


def gram(chain: Chain) -> np.ndarray:
    place = np.arange(chain.steps) // chain.block
    common = chain.shared * chain.decay ** np.abs(place[:, None] - place)
    return common + chain.white * np.eye(chain.steps)


def random_centring(chain: Chain, seed: int) -> Centring:
    """Smooth, as cells take it for constant."""
    rng = np.random.default_rng([seed, 1])
    return Centring(np.array([-1.0, 0.0, 1.0]), rng.uniform(-0.1, 0.2, (chain.most, 3)))


def weights(chain: Chain, centring: Centring, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """g_s e^{-m_s} and m_s, s first."""
    rows = [np.zeros_like(x), *(np.interp(x, centring.places, row) for row in centring.centres)]
    centres = np.array(rows)
    s = np.arange(chain.prior.size).reshape(-1, *[1] * x.ndim)
    prior = chain.prior.reshape(s.shape)
    return prior * np.exp(s * x - s**2 * chain.diagonal / 2 - centres), centres


def losses_given_truth(chain: Chain, centring: Centring, rng: np.random.Generator) -> np.ndarray:
    """log Lhat under P~: x_l = g_l + sum_{j >= l} G_lj s_j."""
    matrix = gram(chain)
    counts = np.arange(chain.prior.size)
    s = rng.choice(counts, p=chain.prior, size=(SIZE, chain.steps))
    noise = rng.standard_normal(s.shape) @ np.linalg.cholesky(matrix).T
    x = noise + s @ np.triu(matrix).T
    total, centres = weights(chain, centring, x)
    chosen = np.take_along_axis(centres, s[None], axis=0)[0]
    return (np.log(total.sum(axis=0)) + chosen).sum(axis=1)


def losses_given_fakes(chain: Chain, centring: Centring, rng: np.random.Generator) -> np.ndarray:
    """log Lhat under Q~: fakes are drawn one after the other, from what is left of the output."""
    matrix = gram(chain)
    u = rng.standard_normal((SIZE, chain.steps)) @ np.linalg.cholesky(matrix).T
    loss = np.zeros(SIZE)
    for step in range(chain.steps):
        total, centres = weights(chain, centring, u[:, step])
        chances = (total / total.sum(axis=0)).cumsum(axis=0)
        s = (rng.random(SIZE) > chances[:-1]).sum(axis=0)
        loss += np.log(total.sum(axis=0)) + np.take_along_axis(centres, s[None], axis=0)[0]
        u[:, step + 1 :] -= np.multiply.outer(s, matrix[step, step + 1 :])
    return loss


def curve_of(chain: Chain, adjacency: str, centring: Centring, delta: float) -> Curve:
    setting = Setting(chain, adjacency, centring, 0.0, 1.0)
    setting = _ordered(setting, setting.lattice(delta), delta)
    return curve_near(setting, delta)


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("seed", range(2))
def test_fakes_and_truth_have_the_ratio_that_is_said(chain, seed):
    """E_Q~ f(Lhat) = E_P~ f(Lhat) / Lhat for any f: both laws drawn, four errors allowed."""
    rng = np.random.default_rng([seed, 2])
    centring = random_centring(chain, seed)
    p, q = losses_given_truth(chain, centring, rng), losses_given_fakes(chain, centring, rng)
    for f in (np.ones_like, np.tanh, lambda loss: np.minimum(np.exp(loss), 1.0)):
        left, right = f(q), f(p) * np.exp(-p)
        error = math.hypot(left.std(), right.std()) / math.sqrt(SIZE)
        assert abs(left.mean() - right.mean()) <= 4 * error + 1e-12


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("adjacency", truth.ADJACENCIES)
def test_the_lattice_has_the_delta_of_the_pair(chain, adjacency):
    rng = np.random.default_rng(3)
    centring = random_centring(chain, 3)
    drawn = losses_given_truth if adjacency == "remove" else losses_given_fakes
    sign = 1 if adjacency == "remove" else -1
    loss = sign * drawn(chain, centring, rng)
    curve = curve_of(chain, adjacency, centring, 1e-2)
    for epsilon in np.quantile(loss, [0.5, 0.9, 0.97]):
        gain = -np.expm1(np.minimum(max(epsilon, 0) - loss, 0.0))
        mean, error = gain.mean(), gain.std() / math.sqrt(SIZE)
        assert mean - 4 * error <= curve.delta(max(epsilon, 0.0)) <= (mean + 4 * error) * 1.03


@pytest.mark.parametrize("chain", CHAINS[:2])
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("adjacency", truth.ADJACENCIES)
def test_any_centring_is_above_enumeration(chain, seed, adjacency):
    delta = [1e-3, 1e-6][seed]
    rng = np.random.default_rng([seed, 4])
    centring = Centring(np.array([-0.5, 0.1, 1.0]), rng.normal(0, 0.5, (chain.most, 3)))
    epsilon = curve_of(chain, adjacency, centring, delta).epsilon(delta)
    matrix = np.linalg.cholesky(gram(chain)).T
    exact = enumeration.enumerated_delta(
        matrix, float(chain.prior[1]), 1.0, epsilon, adjacency, relative=0.01
    )
    assert exact.mean - 4 * exact.error <= delta


@pytest.mark.parametrize("adjacency", truth.ADJACENCIES)
def test_two_members_are_above_enumeration(adjacency):
    """Both members' participations as columns of their own: the same pair, all sets summed."""
    chain, delta = CHAINS[2], 1e-4
    matrix = np.linalg.cholesky(gram(chain)).T
    epsilon = curve_of(chain, adjacency, random_centring(chain, 1), delta).epsilon(delta)
    exact = enumeration.enumerated_delta(
        np.hstack([matrix, matrix]), 0.1, 1.0, epsilon, adjacency, relative=0.01
    )
    assert exact.mean - 4 * exact.error <= delta
