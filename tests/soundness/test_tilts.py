"""Claim: a tilted experiment's mean and its certified rest are together no less than delta.

Truth: sums over all participation sets, and integrals over the plane that they span.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from oracles import separation as apart
from oracles import truth
from scipy import stats

import mmcc
from mmcc import sampling, strategies
from mmcc._simulation.betting import added, bets_around, largest_bet, needed
from mmcc._simulation.directions import bound_weighed_delta, direction_of, weighed
from mmcc._simulation.experiments import KINDS, Blended, Crude, Tilted, experiment_for
from mmcc._simulation.pairs import pair_of
from mmcc._simulation.tilts import TURNS, Blend, Plan, _best_plan, look, tilted
from mmcc.accounting._bounds import Problem

SIZE = 20_000
LEVEL = 0.05
TWO_STEPS = [
    (sampling.Poisson(0.3), 1.5),
    (sampling.MinSeparation(0.4, 2), 1.0),
    (sampling.MinSeparation(0.4, 2, warm_start=True), 0.8),
    (sampling.Poisson(0.02), 0.7),
]
EVERY_KIND = [
    (strategies.toeplitz([1.0, 0.5, 0.25], 30), sampling.Poisson(0.1), 1.5),
    (strategies.toeplitz([1.0, 0.5, 0.25], 30), sampling.CyclicPoisson(0.3, 4), 1.2),
    (strategies.toeplitz([1.0, 0.5, 0.25], 30), sampling.MinSeparation(0.2, 3, True), 1.5),
    (strategies.toeplitz([1.0, 0.5], 12), sampling.RandomAllocation(4), 1.5),
    (strategies.toeplitz([1.0, 0.5], 12), sampling.BallsInBins(4), 1.5),
    (strategies.binary_tree(16), sampling.Poisson(0.1), 3.0),
]


def sets_of(scheme: sampling.Scheme, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """All sets as rows, and their chances."""
    if isinstance(scheme, sampling.MinSeparation):
        law = apart.law_of_sets(columns, scheme.probability, scheme.separation, scheme.warm_start)
        marks = np.zeros((len(law), columns))
        for row, members in enumerate(law):
            marks[row, list(members)] = 1.0
        return marks, np.array(list(law.values()))
    sets, logs = truth.participation_sets(columns, scheme.probability)
    return sets, np.exp(logs)


def exact_rest(problem: Problem, remove: bool, epsilon: float, slope: float) -> tuple[float, float]:
    """int (dP - e^eps dQ)_+ e^{-slope v}, or of Q and P, for two steps: a bracket."""
    direction = direction_of(pair_of(problem).mechanism)
    matrix = problem.strategy.to_dense() / problem.sigma
    sets, chances = sets_of(problem.scheme, 2)
    pulls = matrix.T @ matrix @ direction.weights
    side = -1.0 if remove else 1.0
    logs = np.log(chances) + side * slope * (sets @ pulls)
    corner = np.linalg.cholesky(matrix.T @ matrix)  # rows are columns of C in the first quadrant
    low, high = truth.plane_bracket(sets @ corner, logs, epsilon, "remove" if remove else "add")
    shift = math.exp(0.5 * slope**2 * (direction.weights @ pulls))
    return low * shift, high * shift


@pytest.mark.parametrize("remove", [True, False])
def test_a_weight_moves_delta_to_another_law(remove):
    """The identity of the page, on a grid of outputs."""
    matrix = np.array([[1.0, 0.0], [0.6, 1.0]])
    sets, logs = truth.participation_sets(2, 0.3)
    d = np.linalg.solve(matrix.T, np.ones(2))
    pull = 1 / np.linalg.norm(d)
    d, slope, epsilon = d * pull, 0.7, 0.4
    grid = np.arange(-9.0, 12.0, 0.02)
    y = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1)
    idle = np.exp(-0.5 * (y**2).sum(axis=-1)) / (2 * math.pi)
    mixed = sum(
        math.exp(log) * np.exp(-0.5 * ((y - matrix @ s) ** 2).sum(axis=-1)) / (2 * math.pi)
        for s, log in zip(sets, logs, strict=True)
    )
    side = -1.0 if remove else 1.0
    weight = np.exp(side * slope * (y @ d))
    gap = mixed - math.exp(epsilon) * idle if remove else idle - math.exp(epsilon) * mixed
    found = float((np.maximum(gap, 0.0) * weight).sum()) * 0.02**2
    chance = 0.3 * math.exp(side * slope * pull) / (0.7 + 0.3 * math.exp(side * slope * pull))
    log_mean = 2 * math.log(0.7 + 0.3 * math.exp(side * slope * pull))
    moved = epsilon - log_mean if remove else epsilon + log_mean
    other = truth.two_row_delta(matrix, chance, 1.0, moved, "remove" if remove else "add")
    other *= math.exp(0.5 * slope**2 + (log_mean if remove else 0.0))
    assert found == pytest.approx(other, rel=4e-4)


@pytest.mark.parametrize("remove", [True, False])
@pytest.mark.parametrize(
    ("scheme", "sigma", "epsilon", "slope"),
    [
        (sampling.Poisson(0.3), 1.5, 0.5, 1.5),
        pytest.param(sampling.Poisson(0.02), 0.7, 1.0, 2.0, marks=pytest.mark.slow),
        pytest.param(sampling.MinSeparation(0.4, 2), 1.0, 1.0, 2.0, marks=pytest.mark.slow),
        pytest.param(sampling.MinSeparation(0.2, 2, True), 1.0, 0.5, 1.0, marks=pytest.mark.slow),
        pytest.param(sampling.Poisson(0.6), 2.0, 0.3, 3.0, marks=pytest.mark.slow),
    ],
)
def test_the_rest_is_bounded(scheme, sigma, epsilon, slope, remove):
    problem = Problem(strategies.toeplitz([1.0, 0.6], 2), scheme, sigma)
    direction = direction_of(pair_of(problem).mechanism)
    bound = math.exp(bound_weighed_delta(problem, direction, 2, remove, epsilon, slope))
    low, _ = exact_rest(problem, remove, epsilon, slope)
    assert low <= bound


@pytest.mark.parametrize("sign", [-1.0, 1.0])
@pytest.mark.parametrize(
    ("scheme", "columns"),
    [
        (sampling.Poisson(0.1), 8),
        (sampling.CyclicPoisson(0.7, 2), 6),
        *(
            (sampling.MinSeparation(p, gap, warm), columns)
            for (p, gap), warm, columns in itertools.product(
                [(0.1, 3), (0.6, 4), (0.3, 12)], [False, True], [1, 7, 10]
            )
        ),
    ],
)
def test_weighed_laws_bracket_what_they_stand_for(scheme, columns, sign):
    rng = np.random.default_rng(columns)
    steps = columns * getattr(scheme, "separation", 1)
    problem = Problem(strategies.identity(steps), scheme, 1.0)
    for weight, spread in ((0.3, 0.0), (0.05, 1e-3), (2.0, 1e-9)):
        found = weighed(problem, columns, sign * weight, spread)
        sets, chances = sets_of(scheme, columns)
        _, others = sets_of(found.scheme, columns)
        for taus in (np.full(columns, sign * weight), sign * weight + spread * rng.uniform(-1, 1)):
            logs = np.log(chances) + sets @ np.broadcast_to(taus, columns) - np.log(others)
            # The truth is a quotient of rounded numbers.
            assert (found.low <= logs + 1e-13).all()
            assert (logs - 1e-13 <= found.high).all()
            if not getattr(scheme, "warm_start", False) and spread < 1e-6 and weight < 1:
                assert found.high - found.low < 1.0


@pytest.mark.parametrize("remove", [True, False])
@pytest.mark.parametrize(("scheme", "sigma"), TWO_STEPS)
def test_mean_and_rest_are_no_less_than_delta(scheme, sigma, remove):
    """With the exact rest in place of its bound: nothing is hidden behind slack."""
    problem = Problem(strategies.toeplitz([1.0, 0.6], 2), scheme, sigma)
    pair = pair_of(problem)
    direction = direction_of(pair.mechanism)
    matrix = problem.strategy.to_dense() / sigma
    sets, chances = sets_of(scheme, 2)
    corner = np.linalg.cholesky(matrix.T @ matrix)
    side = "remove" if remove else "add"
    largest = 2.0 if remove else -math.log(chances[~sets.any(axis=1)].sum())  # of a loss
    for number, epsilon in enumerate((0.2 * largest, 0.6 * largest)):
        low, high = truth.plane_bracket(sets @ corner, np.log(chances), epsilon, side)
        for plan in (Plan(1.0, 1.5, 1.0), Plan(2.0, 1.0, 0.5), Plan(1.5, 4.0, 2.0)):
            _, rest = exact_rest(problem, remove, epsilon, plan.slope)
            experiment = Tilted(pair, remove, epsilon, plan, direction, math.log(rest))
            drawn = experiment.draw(SIZE, np.random.default_rng([number, 7]))
            error = drawn.std() / math.sqrt(SIZE)
            assert drawn.mean() + 4 * error + experiment.dropped >= low
            waste = rest * math.exp(plan.slope * plan.place)
            assert drawn.mean() - 4 * error <= 1.1 * high
            assert experiment.dropped == pytest.approx(waste, rel=1e-4)


@pytest.mark.parametrize("number", [60, pytest.param(600, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", [Tilted, Blended])
def test_what_is_false_passes_no_more_often_than_its_level(kind, number):
    """Any plan, any bet: that E[X] + rest is below the true delta is hardly ever shown."""
    passed = 0
    for seed in range(number):
        rng = np.random.default_rng([seed, 3])
        scheme, sigma = TWO_STEPS[seed % len(TWO_STEPS)]
        problem = Problem(strategies.toeplitz([1.0, 0.6], 2), scheme, sigma)
        made, delta = any_experiment(kind, problem, bool(seed % 3), rng)
        mean = (delta - made.dropped) * (1 - 1e-9)
        if made.largest <= 1.2 * mean:
            continue
        size = float(rng.uniform(0.05, 1.0)) * largest_bet(mean, made.largest)
        bets = bets_around(size, mean, made.largest)
        totals = [0.0] * len(bets.sizes)
        for _ in range(16):
            totals = added(totals, bets.log_wealth(made.draw(64, rng)))
            if bets.together(totals) >= needed(LEVEL):
                passed += 1
                break
    assert stats.binomtest(passed, number, LEVEL, alternative="greater").pvalue > 1e-3, passed


def any_experiment(kind, problem, remove, rng):
    """Of that kind, at any epsilon below the largest loss; and the true delta there."""
    pair = pair_of(problem)
    direction = direction_of(pair.mechanism)
    sets, chances = sets_of(problem.scheme, 2)
    matrix = problem.strategy.to_dense() / problem.sigma
    largest = 2.0 if remove else -math.log(chances[~sets.any(axis=1)].sum())
    epsilon = float(rng.uniform(0.1, 0.8)) * largest
    corner, side = np.linalg.cholesky(matrix.T @ matrix), "remove" if remove else "add"
    delta, _ = truth.plane_bracket(sets @ corner, np.log(chances), epsilon, side)
    tilt, slope = (float(x) for x in rng.uniform(0.3, 2.5, 2))
    if kind is Blended:
        blend = Blend(tilt, int(rng.integers(4, 61)) / 64)
        return Blended(pair, remove, epsilon, blend, direction), delta
    _, rest = exact_rest(problem, remove, epsilon, slope)
    place = math.log(delta * rng.uniform(0.05, 0.8) / rest) / slope
    plan = Plan(tilt, slope, place)
    return Tilted(pair, remove, epsilon, plan, direction, math.log(rest)), delta


@pytest.mark.parametrize("remove", [True, False])
@pytest.mark.parametrize(("strategy", "scheme", "sigma"), EVERY_KIND)
def test_all_tilts_have_the_same_mean(strategy, scheme, sigma, remove):
    """What a tilt makes more likely its weight makes smaller, for every kind of pair."""
    problem = Problem(strategy, scheme, sigma)
    pair = pair_of(problem)
    direction = direction_of(pair.mechanism)
    deviation = math.sqrt(direction.square)
    found = []
    for tilt in (0.2, 0.8, 1.6):
        plan = Plan(tilt / deviation, 1.5 / deviation, 0.0)
        experiment = Tilted(pair, remove, 0.3, plan, direction, 0.0)
        drawn = experiment.draw(SIZE, np.random.default_rng(5))
        assert (drawn <= experiment.largest).all()
        found.append((drawn.mean(), drawn.var() / SIZE))
    for (one, error), (two, other) in itertools.combinations(found, 2):
        assert abs(one - two) <= 4 * math.sqrt(error + other)


@pytest.mark.parametrize("remove", [True, False])
@pytest.mark.parametrize(("strategy", "scheme", "sigma"), EVERY_KIND)
def test_blends_have_the_mean_of_the_pair(strategy, scheme, sigma, remove):
    """Whatever is tilted, and how much of it; and no X is larger than is said."""
    problem = Problem(strategy, scheme, sigma)
    pair = pair_of(problem)
    direction = direction_of(pair.mechanism)
    crude = Crude(pair, remove, 0.3).draw(4 * SIZE, np.random.default_rng(6))
    for tilt, share in ((0.5, 0.5), (1.5, 0.75), (2.5, 0.25)):
        made = Blended(pair, remove, 0.3, Blend(tilt / direction.square**0.5, share), direction)
        drawn = made.draw(SIZE, np.random.default_rng(5))
        assert (drawn <= made.largest).all()
        assert 1 / share <= made.largest <= 1.001 / share
        assert made.dropped < 1e-10
        error = math.hypot(drawn.std() / SIZE**0.5, crude.std() / (4 * SIZE) ** 0.5)
        assert abs(drawn.mean() - crude.mean()) <= 4 * error


def test_what_a_tilted_law_never_draws_is_paid_for():
    """Chances that are 1 in floating point: sets without such a column have no draws."""
    pair = pair_of(Problem(strategies.toeplitz([1.0, 0.5], 4), sampling.Poisson(0.3), 1.0))
    direction = direction_of(pair.mechanism)
    for weight, some in ((20.0, False), (60.0, True)):
        tilt = weight / direction.pull
        law = tilted(pair, direction, True, tilt)[1].law
        assert (law.probability == 1).any() == some
        for made in (
            Blended(pair, True, 1.0, Blend(tilt, 0.5), direction),
            Tilted(pair, True, 1.0, Plan(tilt, 1.0, 0.5 * tilt), direction, -1000.0),
        ):
            coins = pair.dropped * made.largest
            assert (made.dropped > 2 * coins) == some


@pytest.mark.parametrize(("tilt", "share"), [(1.0, 0.0), (1.0, 1.0), (-1.0, 0.5), (1.0, 0.1)])
def test_a_record_with_another_blend_is_refused(tilt, share):
    """A tenth is no chance that coins have exactly."""
    pair = pair_of(Problem(strategies.toeplitz([1.0, 0.5], 4), sampling.Poisson(0.05), 1.5))
    direction = direction_of(pair.mechanism)
    with pytest.raises(ValueError, match="no blend"):
        Blended(pair, True, 1.0, Blend(tilt, share), direction)


def test_a_record_gives_the_same_blend():
    problem = Problem(strategies.toeplitz([1.0, 0.5], 40), sampling.Poisson(0.05), 1.5)
    pair = pair_of(problem)
    made = Blended(pair, True, 1.5, Blend(0.7, 44 / 64), direction_of(pair.mechanism))
    again = KINDS["blended"].from_facts(problem, pair, True, 1.5, made.facts())
    draws = [one.draw(100, np.random.default_rng(2)) for one in (made, again)]
    assert (draws[0] == draws[1]).all()
    assert (again.largest, again.dropped) == (made.largest, made.dropped)


def test_no_weight_exceeds_the_largest_by_itself():
    """Nothing is cut off: the largest is the maximum of W, and not far above it."""
    pair = pair_of(Problem(strategies.toeplitz([1.0, 0.5], 20), sampling.Poisson(0.1), 1.0))
    direction = direction_of(pair.mechanism)
    places = np.linspace(-3, 12, 20_001)
    for plan in (Plan(3.0, 4.0, 2.0), Plan(0.5, 6.0, -1.0), Plan(5.0, 0.5, 3.0)):
        experiment = Tilted(pair, True, 0.5, plan, direction, 0.0)
        log_mean, _ = tilted(pair, direction, True, plan.tilt)
        cut = np.maximum(-np.expm1(plan.slope * (plan.place - places)), 0.0)
        peak = (np.exp(log_mean - plan.tilt * places) * cut).max()
        assert peak <= experiment.largest <= 1.001 * peak


def test_a_record_with_another_plan_is_refused():
    problem = Problem(strategies.toeplitz([1.0, 0.5], 4), sampling.Poisson(0.05), 1.5)
    pair = pair_of(problem)
    direction = direction_of(pair.mechanism)
    for plan in (Plan(1.0, -1.0, 0.0), Plan(math.nan, 1.0, 0.0), Plan(1.0, 1.0, math.inf)):
        with pytest.raises(ValueError, match="no plan"):
            Tilted(pair, True, 1.0, plan, direction, 0.0)


@pytest.mark.slow
def test_a_record_gives_the_same_experiment():
    problem = Problem(strategies.toeplitz([1.0, 0.5], 40), sampling.Poisson(0.05), 1.5)
    pair = pair_of(problem)
    made = experiment_for(problem, pair, True, 1.5, 1e-4, np.random.default_rng(1))
    assert isinstance(made, Tilted)
    again = KINDS[made.kind].from_facts(problem, pair, True, 1.5, made.facts())
    assert (again.largest, again.dropped) == (made.largest, made.dropped)
    draws = [one.draw(100, np.random.default_rng(2)) for one in (made, again)]
    assert (draws[0] == draws[1]).all()


@pytest.mark.slow
@pytest.mark.parametrize(("sigma", "epsilon"), [(9.9, 0.511), (5.43, 1.004), (3.03, 2.0)])
def test_eight_bands_need_few_samples(sigma, epsilon):
    """Within about one per cent of the pair's own epsilon, by thousands of samples."""
    bands = strategies.continual_counting(8).coefficients
    found = mmcc.verify(
        strategies.toeplitz(bands, 2000),
        sampling.Poisson(0.01),
        sigma=sigma,
        epsilon=epsilon,
        delta=1e-5,
        samples=300_000,
    )
    assert found.kind == "verified"
    assert {trial["experiment"] for trial in found.details["trials"]} == {"tilted"}


@pytest.mark.slow
def test_random_allocation_with_a_tuned_blt_needs_few_samples():
    """Within 1.5 % of the certified lower end, 1.879: about 50,000 samples."""
    found = mmcc.verify(
        strategies.blt(2000, decay=[0.8975], scale=[0.2165]),
        sampling.RandomAllocation(100),
        sigma=2.927,
        epsilon=1.907,
        delta=1e-5,
        samples=2_000_000,
    )
    assert found.kind == "verified"


def test_a_bound_with_a_floor_is_asked_with_small_slopes():
    """Not only where it loses all: a rest that costs little is found in a few turns."""
    mechanism = strategies.toeplitz([1.0, 0.5], 40), sampling.RandomAllocation(10), 1.5
    pair = pair_of(Problem(*mechanism))
    direction, delta = direction_of(pair.mechanism), 1e-5
    seen = look(pair, direction, True, 2.86, delta, 256, np.random.default_rng(1))
    asked = []

    def bound(slope):
        asked.append(slope * seen.deviation)
        shift = seen.log_left(slope)
        return (
            shift + math.log(1.05) + math.log1p(math.exp(2.0 * (slope * seen.deviation) ** 2 - 4))
        )

    count, plan = _best_plan(seen, {}, bound)
    assert len(asked) <= TURNS
    assert plan.slope * seen.deviation == min(asked) < max(asked)
    assert count < 50_000  # 800,000 by a guess that grows linearly
