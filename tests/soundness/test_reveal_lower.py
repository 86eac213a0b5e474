"""Claim: lower ends by the nonlinear test never exceed the truth, nor does any step of the proof.

Truths: the Gram matrix and the weights of all participation sets written out, quadrature without
tolerance for two columns, enumeration at four standard errors, simulated outputs for long runs, and
certified upper bounds.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from cases import reveal as upper
from cases.reveal import log_uniform
from cases.samples import first
from oracles import truth
from oracles.enumeration import UnreliableError, enumerated_delta

from mmcc import sampling, strategies
from mmcc.accounting._bounds.reveal import lower
from mmcc.accounting._bounds.reveal.lower.ended import Ended, ended_chain
from mmcc.accounting._bounds.reveal.lower.lattice import (
    cell_masses,
    cells_of,
    lattice_step,
    walk_above,
    walk_below,
)
from mmcc.accounting._bounds.reveal.lower.loads import Loads, Split, loads_for
from mmcc.accounting._bounds.reveal.lower.operator import Steps, bound_transforms, steps_for
from mmcc.accounting._bounds.reveal.lower.settings import setting_for
from mmcc.sampling import Rounds

# ------------------------------------------------------------------------------ random mechanisms


def random_blt(rng: np.random.Generator, steps: int) -> strategies.Toeplitz:
    decay = rng.uniform(0.05, 0.97)
    return strategies.blt(steps, decay=[decay], scale=[decay * rng.uniform(0.02, 0.9)])


def random_chain(rng: np.random.Generator, steps: int) -> Ended:
    kappa = log_uniform(rng, 0.01, 1.5)
    return Ended(
        steps=steps,
        probability=log_uniform(rng, 0.02, 0.9),
        kappa=kappa,
        rho=float(rng.choice([0.3, 0.7, 0.93, 0.99])),
        omega=log_uniform(rng, 0.05, 1.0),
        kappa_end=kappa * float(rng.uniform(0.2, 1)),
    )


def gram(chain: Ended) -> np.ndarray:
    """The chain's Gram matrix; place 0 is the last column of the run."""
    place = np.arange(chain.steps)
    sizes = np.array([chain.kappa - chain.shortfall(int(k)) for k in place])
    earlier = np.minimum(place[:, None], place)
    return sizes[earlier] * chain.rho ** np.abs(place[:, None] - place) + chain.omega * np.eye(
        chain.steps
    )


# --------------------------------------------------------------------------- the steps of the proof


@pytest.mark.parametrize("seed", range(60))
def test_the_chain_is_below_the_gram_matrix_end_included(seed):
    rng = np.random.default_rng(seed)
    steps, separation = int(rng.integers(4, 40)), int(rng.integers(1, 4))
    strategy, sigma = random_blt(rng, steps), log_uniform(rng, 0.5, 30)
    found = ended_chain(strategy, Rounds(0.1, separation), sigma)
    if found is None:
        return
    columns = strategy.to_dense()[:, ::separation] / sigma
    truly = (columns.T @ columns)[::-1, ::-1]
    matrix = gram(found)
    assert (matrix <= truly * (1 + 1e-14)).all()
    assert (matrix >= truly * (1 - 1e-8)).all()
    assert np.linalg.eigvalsh(matrix).min() > 0


def walked(loads: Loads, chain: Ended, chosen: tuple[int, ...]) -> float:
    """The weight that the nodes give to a participation set, but for each column's own."""

    def moved(mass: np.ndarray, split: Split) -> np.ndarray:
        after = np.zeros_like(mass)
        np.add.at(after, split.index, mass * split.low)
        np.add.at(after, split.index + 1, mass * split.high)
        return after

    mass = np.zeros(loads.nodes.size)
    mass[0] = 1.0
    for place, taken in enumerate(chosen):
        if taken:
            mass = moved(mass, loads.kick(place))
        if place % loads.period == loads.period - 1:
            mass = moved(mass, loads.turn)
    return float(mass.sum())


@pytest.mark.parametrize("seed", range(12))
def test_no_participation_set_weighs_more_than_it_should(seed):
    rng = np.random.default_rng([seed, 1])
    chain = random_chain(rng, 9)
    loads = loads_for(chain, float(rng.uniform(1.2, 4)))
    matrix = gram(chain)
    close = 0
    for chosen in itertools.product((0, 1), repeat=chain.steps):
        s = np.array(chosen)
        cross = 0.5 * (s @ matrix @ s - s @ np.diag(matrix))
        weight = walked(loads, chain, chosen)
        assert weight <= math.exp(-cross)
        close += weight >= 0.9 * math.exp(-cross)
    assert close >= chain.steps  # not because everything is killed


def test_cells_have_the_masses_of_the_normal_law():
    chain = random_chain(np.random.default_rng(3), 5)
    cells = cells_of(chain)
    centres = np.linspace(-3, 3, 7)
    masses = cell_masses(chain, cells, centres)
    assert np.abs(masses.sum(axis=1) - 1).max() < 1e-12
    deviation = math.sqrt(chain.omega)
    below = [
        0.5 * math.erfc((c - e) / deviation / math.sqrt(2)) for c in centres for e in cells.edges
    ]
    sums = np.cumsum(masses, axis=1)[:, :-1]
    assert np.abs(sums - np.reshape(below, sums.shape)).max() < 1e-12


@pytest.mark.parametrize("seed", range(8))
def test_total_masses_are_on_the_right_side_of_one(seed):
    rng = np.random.default_rng([seed, 2])
    chain = random_chain(rng, int(rng.integers(2, 60)))
    cells = cells_of(chain)
    none = np.zeros(cells.edges.size + 1)
    _, spread = lattice_step(chain)
    above, below = walk_above(chain, cells, 8.0), walk_below(chain, cells, 6.0, 12.0)
    loads = loads_for(chain, 6.0)
    whole = bound_transforms(steps_for(above, None, none, np.zeros(1)), tolerance=0.0)[0]
    part = bound_transforms(steps_for(below, loads, none, np.zeros(1)), tolerance=0.0)[0]
    assert math.exp(whole + spread) + above.exits * math.exp(spread) >= 1
    assert math.exp(part - spread) <= 1 + 1e-9  # `bound_transforms` itself rounds up


# --------------------------------------------------------------------------- tails of the test


@pytest.mark.parametrize(
    ("steps", "decay", "scale", "p", "sigma"),
    [
        (150, 0.7, 0.4, 0.1, 1.5),
        pytest.param(300, 0.9, 0.2, 0.03, 2.0, marks=pytest.mark.slow),
        pytest.param(200, 0.97, 0.1, 0.02, 1.2, marks=pytest.mark.slow),
    ],
)
def test_tails_against_simulated_outputs(steps, decay, scale, p, sigma):
    strategy = strategies.blt(steps, decay=[decay], scale=[scale])
    chain = ended_chain(strategy, Rounds(p, 1), sigma)
    cells = cells_of(chain)
    numbers = cells.evidence(chain) - cells.evidence(chain).min()
    setting = setting_for(walk_above(chain, cells, 9.0), cells, numbers, delta=0.02, epsilon=0.0)
    found = lower._found(chain, cells, numbers, setting)
    false = lower._false(chain, cells, numbers, setting)
    rng, count = np.random.default_rng(5), 20_000
    matrix = strategy.to_dense() / sigma
    for taken, bound, side in ((0.0, false, 1), (p, found, -1)):
        sets = rng.random((count, steps)) < taken
        outputs = sets @ matrix.T + rng.standard_normal((count, steps))
        places = np.searchsorted(cells.edges, outputs @ matrix, side="right")
        test = numbers[places].sum(axis=1)
        test += setting.line(1.0).blur * rng.standard_normal(count)
        passed = (test[:, None] > setting.thresholds[::40]).mean(axis=0)
        error = np.sqrt(passed * (1 - passed) / count) + 1 / count
        assert (side * (bound[::40] - passed) >= -4 * error).all()
        usual = (passed > 0.01) & (passed < 0.3)
        assert usual.any()
        assert (side * (bound[::40] - passed) <= 0.01 * passed + 4 * error)[usual].all()


def test_moduli_of_weights_bound_what_is_not_computed():
    """The transform at a node is at most that with the moduli of its weights."""
    rng = np.random.default_rng(7)
    chain = random_chain(rng, 12)
    cells = cells_of(chain)
    numbers = cells.evidence(chain)
    walk, loads = walk_below(chain, cells, 5.0, 7.0), loads_for(chain, 3.0)
    steps = steps_for(walk, loads, numbers, np.array([1.0, 1.0 + 3j, 1.0 + 9j]))
    x = steps.first()
    for place in reversed(range(chain.steps)):
        x = steps.back(x, place, place == chain.steps - 1)
    exact = np.abs(walk.entrance @ x[:, 0, :])
    assert steps.kick is not None
    moduli = Steps(walk, loads, np.abs(steps.rest), np.abs(steps.kick))
    assert (np.log(exact) <= bound_transforms(moduli) + 1e-12).all()


# ---------------------------------------------------------------------------------- the whole bound


def check_against_enumeration(seed: int, relative: float) -> None:
    rng = np.random.default_rng([seed, 77])
    steps, separation = int(rng.integers(2, 9)), int(rng.integers(1, 3))
    strategy = random_blt(rng, steps * separation)
    p, sigma = log_uniform(rng, 0.02, 0.8), log_uniform(rng, 0.4, 5)
    epsilon = float(rng.choice([0.0, 0.3, 1.0, 2.0, 4.0]))
    rounds = Rounds(p, separation)
    columns = range(0, steps * separation, separation)
    below = lower.lower_delta(strategy, rounds, sigma, epsilon)
    truths = []
    try:
        for adjacency in truth.ADJACENCIES:
            found = enumerated_delta(
                strategy.to_dense(),
                p,
                sigma,
                epsilon,
                adjacency,
                columns=columns,
                relative=relative,
            )
            truths.append(found.mean + 4 * found.error)
    except UnreliableError:
        return
    assert below <= max(truths)
    if 0 < max(truths) < 1:
        # At this delta, which is not below the true one, epsilon is enough.
        assert lower.lower_epsilon(strategy, rounds, sigma, max(truths)) <= epsilon


@pytest.mark.parametrize("seed", first(range(8), 4))
def test_lower_ends_are_never_above_enumeration(seed):
    check_against_enumeration(seed, relative=0.005)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8, 200))
def test_lower_ends_are_never_above_enumeration_many(seed):
    check_against_enumeration(seed, relative=0.002)


@pytest.mark.parametrize("seed", first(range(10), 4))
def test_two_columns_against_quadrature(seed):
    """No sampling here, so no tolerance: the truth is a quadrature with its own error."""
    rng = np.random.default_rng([seed, 78])
    separation = int(rng.integers(1, 4))
    strategy = random_blt(rng, 2 * separation)
    p, sigma = log_uniform(rng, 0.02, 0.95), log_uniform(rng, 0.4, 5)
    matrix = strategy.to_dense()[:, ::separation]
    for epsilon in (0.2, 1.5):
        below = lower.lower_delta(strategy, Rounds(p, separation), sigma, epsilon)
        exact = max(
            truth.two_row_bracket(matrix, p, sigma, epsilon, side)[1] for side in truth.ADJACENCIES
        )
        assert below <= exact
        if 1e-12 < exact < 1:
            assert lower.lower_epsilon(strategy, Rounds(p, separation), sigma, exact) <= epsilon


def check_against_upper(seed: int) -> None:
    rng = np.random.default_rng([seed, 79])
    steps, separation = int(log_uniform(rng, 20, 3000)), int(rng.integers(1, 4))
    decay = 1 - log_uniform(rng, 0.03, 0.9)
    strategy = strategies.blt(steps, decay=[decay], scale=[decay * log_uniform(rng, 0.02, 0.9)])
    p, sigma = log_uniform(rng, 1e-3, 0.4), log_uniform(rng, 0.8, 20)
    delta = log_uniform(rng, 1e-9, 1e-2)
    scheme: sampling.Scheme = sampling.Poisson(p)
    if separation > 1:
        scheme = sampling.CyclicPoisson(p, separation)
    below = lower.lower_epsilon(strategy, Rounds(p, separation), sigma, delta)
    above = upper.bound_epsilon(strategy, scheme, sigma, delta).value
    assert 0 <= below <= above


@pytest.mark.parametrize("seed", first(range(4), 2))
def test_lower_ends_are_below_upper_bounds(seed):
    check_against_upper(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4, 150))
def test_lower_ends_are_below_upper_bounds_many(seed):
    check_against_upper(seed)


# ------------------------------------------------------------------------------------- what is not


def test_nothing_is_said_where_nothing_is_known():
    bands = strategies.toeplitz([1, 0.5], 50)
    two = strategies.blt(50, decay=[0.9, 0.5], scale=[0.1, 0.1])
    smooth = strategies.blt(50, decay=[0.5], scale=[0.5])  # omega = 0
    for strategy in (bands, two, smooth):
        assert lower.lower_epsilon(strategy, Rounds(0.1, 1), 1.0, 1e-5) == 0
        assert lower.lower_delta(strategy, Rounds(0.1, 1), 1.0, 1.0) == 0
    one = strategies.blt(50, decay=[0.9], scale=[0.1])
    assert lower.lower_epsilon(one, Rounds(1.0, 1), 1.0, 1e-5) == 0


def test_transforms_that_underflow_say_nothing_and_warn_nobody():
    """Slow decay and little noise: some orders leave the range of floats, others answer."""
    strategy = strategies.blt(1000, decay=[0.99], scale=[0.297])
    rounds = Rounds(0.008419992031525896, 2)
    assert 0 <= lower.lower_epsilon(strategy, rounds, 1.880154430052087, 1e-5) <= 37.55
