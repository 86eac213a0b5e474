"""The questions users ask: epsilon, delta or sigma of a mechanism, each answered by a proof.

In: strategy, scheme and two of (sigma, epsilon, delta).  Out: a `Guarantee`, or a `Bracket`.
Rounding: epsilon and delta are upper bounds; sigma is the safe end of the search; the lower end of
a bracket is a lower bound.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from concurrent.futures import Executor
from functools import partial
from typing import Any

from mmcc._simulation.estimate import estimate as simulate
from mmcc.accounting._best import Best, best_delta, best_epsilon, best_of
from mmcc.accounting._bounds import chain
from mmcc.accounting._calibrate import gaussian_problem, smallest_sigma
from mmcc.accounting._guarantee import Bracket, Guarantee
from mmcc.accounting._losses.engine import Effort
from mmcc.accounting._methods import (
    RARELY,
    Plan,
    Problem,
    sampled,
)
from mmcc.accounting._parallel import Progress
from mmcc.errors import (
    MethodError,
    ParameterError,
    real,
    suggestion,
)
from mmcc.sampling import Scheme
from mmcc.sampling._scheme import checked_scheme, unproven
from mmcc.strategies._base import ORDERS, Order, Strategy, checked_strategy
from mmcc.strategies._gram import MAX_COLUMNS

METHODS = ("tight", "mmcc", "projection", "chain", "cascade", "unamplified")
BINS_METHODS = ("tight", "projection", "cascade", "unamplified")
"""What there is for balls-in-bins, and for one shuffled pass."""
MIN_DELTA = 1e-200
MIN_SIGMA, MAX_SIGMA, MAX_EPSILON = 1e-50, 1e12, 1e6
NEXT_TO_NOTHING = 1e-6
"""Part of the sensitivity that `sigma` returns where no noise is needed."""
MAX_RATIO = 1e4
"""Above this ratio of column norm to sigma no amplification is looked for."""


def epsilon(
    strategy: Strategy,
    sampling: Scheme,
    *,
    sigma: float,
    delta: float,
    method: str = "tight",
    order: Order | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> Guarantee:
    """The certified epsilon of a matrix mechanism at a delta."""
    sigma = real("sigma", sigma, MIN_SIGMA, MAX_SIGMA)
    delta = real("delta", delta, MIN_DELTA, 1)
    plans = _feasible(_plans(strategy, sampling, method, order), strategy, sigma)
    problem = Problem(strategy, sampling, sigma, _effort(executor, progress))
    if method == "tight":
        best = best_epsilon(problem, plans, delta)
    else:
        best = best_of([problem.epsilon(plans[0], delta)])
    if not best.value < math.inf:
        raise MethodError(
            f"method {method!r} certifies no finite epsilon at this noise; use a larger sigma, or "
            "method='tight'."
        )
    return _guarantee(problem, method, best, best.value, delta, "epsilon")


def delta(
    strategy: Strategy,
    sampling: Scheme,
    *,
    sigma: float,
    epsilon: float,
    method: str = "tight",
    order: Order | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> Guarantee:
    """The certified delta of a matrix mechanism at an epsilon."""
    sigma = real("sigma", sigma, MIN_SIGMA, MAX_SIGMA)
    epsilon = real("epsilon", epsilon, 0, MAX_EPSILON, closed="l")
    plans = _feasible(_plans(strategy, sampling, method, order), strategy, sigma)
    problem = Problem(strategy, sampling, sigma, _effort(executor, progress))
    if method == "tight":
        best = best_delta(problem, plans, epsilon)
    else:
        best = best_of([problem.delta(plans[0], epsilon)])
    return _guarantee(problem, method, best, epsilon, best.value, "delta")


def sigma(
    strategy: Strategy,
    sampling: Scheme,
    *,
    epsilon: float,
    delta: float,
    method: str = "tight",
    order: Order | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> Guarantee:
    """The smallest noise level found that certifies (epsilon, delta), within about 0.01 %.

    A safeguarded secant search in log sigma, log epsilon; the guarantee returned is the one
    computed at the safe end, so its epsilon is at most the one asked for.  Where a lower bound
    is known, `details` also has `sigma_lower`, below which (epsilon, delta) is impossible whatever
    the method, and `slack`, how much larger the certified sigma is.

    Where the chance to take part at all is at most delta, any noise will do, and so would none:
    `details` has `any_sigma`, and sigma is next to nothing (`NEXT_TO_NOTHING` of the sensitivity).
    Such a delta promises nothing to those who do take part; a smaller one should be asked for.
    """
    epsilon = real("epsilon", epsilon, 0, MAX_EPSILON)
    delta = real("delta", delta, MIN_DELTA, 1)
    plans = _plans(strategy, sampling, method, order)
    effort = _effort(executor, progress)
    make = partial(Problem, strategy, sampling, effort=effort)
    sensitivity = sampling.sensitivity(strategy)
    if method == "tight" and (zero := make(1.0).rarely(delta)):
        problem = make(max(NEXT_TO_NOTHING * sensitivity, 2 * MIN_SIGMA))
        return _guarantee(problem, method, best_of([zero]), 0.0, delta, "sigma")
    problem = gaussian_problem(make, sensitivity, epsilon, delta)
    if plans == [Plan("unamplified")]:
        best = best_of([problem.epsilon(plans[0], delta)])
        return _guarantee(problem, method, best, best.value, delta, "sigma")
    problem, best, floor = smallest_sigma(problem, plans, epsilon, delta, method)
    return _guarantee(problem, method, best, best.value, delta, "sigma", floor)


def bracket(
    strategy: Strategy,
    sampling: Scheme,
    *,
    sigma: float,
    delta: float,
    method: str = "tight",
    order: Order | None = None,
    estimate: bool | Mapping[str, Any] = False,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> Bracket:
    """Two certified numbers with the true epsilon between them.

    `upper` is what `epsilon` gives by the method; `lower` holds for any method: it is the privacy
    loss that one direction of the output shows (0 where nothing is known).  `estimate=True` adds
    a Monte Carlo estimate, which is no certificate; a mapping has options of `mmcc.estimate`.
    """
    found = epsilon(
        strategy,
        sampling,
        sigma=sigma,
        delta=delta,
        method=method,
        order=order,
        executor=executor,
        progress=progress,
    )
    lower = 0.0 if found.epsilon == 0 else found.details.get("epsilon_lower")
    if lower is None:
        lower = Problem(strategy, sampling, found.sigma).lower_epsilon(found.delta)
    if lower > found.epsilon:
        raise ArithmeticError(
            f"the lower bound {lower} lies above the upper bound {found.epsilon}: a bug, "
            "please report it with this command."
        )
    if estimate is False:
        return Bracket(lower=lower, guarantee=found)
    options = {} if estimate is True else dict(estimate)
    simulated = simulate(
        strategy,
        sampling,
        sigma=sigma,
        delta=delta,
        executor=executor,
        progress=progress,
        **options,
    )
    return Bracket(lower=lower, guarantee=found, estimate=simulated)


def _plans(strategy: Strategy, scheme: Scheme, method: str, order: Order | None) -> list[Plan]:
    """The certified bounds that a method tries."""
    checked_strategy(strategy)
    checked_scheme(scheme)
    if method not in METHODS:
        raise MethodError(f"unknown method {method!r}; {suggestion(method, METHODS)}")
    if order is not None and order not in ORDERS:
        raise MethodError(f"unknown order {order!r}; {suggestion(order, ORDERS)}")
    if order is not None and method != "mmcc":
        raise MethodError(f"order applies to method 'mmcc' only, not to {method!r}.")
    scheme.check(strategy.steps)
    proven = sampled(scheme, strategy.steps)
    if isinstance(proven, int):
        return _bins_plans(strategy, proven, method)
    if method == "unamplified":
        return [Plan(method)]
    if proven is None:
        raise unproven(scheme)
    if method == "cascade":
        raise MethodError(f"the cascade is for balls-in-bins, not for {scheme!r}.")
    if method == "chain" and not chain.applies(strategy):
        raise MethodError(
            f"the chain bound needs a Toeplitz strategy with few bands or a BLT, not {strategy!r}. "
            "Use method='tight'."
        )
    if method != "tight":
        return [Plan(method, order or "release")]
    plans = [Plan("unamplified")]
    if proven.probability < 1.0:  # certain participation: exact already
        orders = dict.fromkeys(strategy.same_order(o, proven.separation) for o in ORDERS)
        plans += [Plan("projection"), Plan("chain"), *(Plan("mmcc", o) for o in orders)]
    return plans


def _bins_plans(strategy: Strategy, positions: int, method: str) -> list[Plan]:
    """The certified bounds for balls-in-bins."""
    if method not in BINS_METHODS:
        raise MethodError(
            f"method {method!r} is for Poisson sampling; for one of {positions} bins "
            f"{suggestion(method, BINS_METHODS)}"
        )
    if method != "tight":
        return [Plan(method)]
    if positions == 1:  # certain participation: exact already
        return [Plan("unamplified")]
    plans = [Plan("unamplified")]
    if tree := strategy.hierarchy(positions) is not None:
        plans.append(Plan("cascade"))
    if not tree or positions <= MAX_COLUMNS:  # where the cascade says no the plain bound will do
        plans.append(Plan("projection"))
    return plans


def _feasible(plans: list[Plan], strategy: Strategy, sigma: float) -> list[Plan]:
    """The plans that floating point can carry out at this noise level."""
    ratio = strategy.sensitivity(strategy.steps) / sigma
    if ratio <= MAX_RATIO:
        return plans
    left = [plan for plan in plans if plan.bound == "unamplified"]
    if not left:
        raise ParameterError(
            f"sigma = {sigma:g} is {ratio:.2g} times smaller than a column of the strategy: "
            "nothing is left to amplify. Use a larger sigma, or method='unamplified'."
        )
    return left


def _effort(executor: Executor | None, progress: Progress | None) -> Effort:
    """How to compute: on the executor given, or here (threads gained nothing: rows are short)."""
    if executor is not None and not hasattr(executor, "submit"):
        raise ParameterError(f"executor must have the interface of Executor, got {executor!r}.")
    if progress is not None and not callable(progress):
        raise ParameterError(f"progress must be a function of (what, done), got {progress!r}.")
    return Effort(executor=executor, progress=progress)


def _guarantee(
    problem: Problem,
    method: str,
    best: Best,
    epsilon: float,
    delta: float,
    asked: str,
    floor: float = 0.0,
) -> Guarantee:
    """The answer with all that it rests on."""
    winner = best.winner
    setting = "" if winner.plan.bound == "unamplified" else problem.scheme.setting
    details = problem.diagnostics(winner, delta)
    extra: dict[str, object] = {}
    if winner.plan.bound != "unamplified":
        extra |= {"remove": best.sides.remove, "add": best.sides.add}
    if len(best.plans) > 1:
        extra |= {"remove_by": str(best.remove.plan), "add_by": str(best.add.plan)}
    if method == "tight" and best.lower > 0:
        extra["delta_lower" if asked == "delta" else "epsilon_lower"] = best.lower
    if winner.plan == RARELY and asked == "sigma":
        extra["any_sigma"] = True
    if floor > 0:
        extra |= {"sigma_lower": floor, "slack": problem.sigma / floor - 1}
    return Guarantee(
        epsilon=epsilon,
        delta=delta,
        sigma=problem.sigma,
        method=method,
        strategy=repr(problem.strategy),
        sampling=repr(problem.scheme),
        adaptive=problem.strategy.adaptive and not setting,
        setting=setting,
        bound=str(winner.plan),
        details=details.extended(extra),
    )
