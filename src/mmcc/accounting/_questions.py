"""The questions that users ask: epsilon, delta or sigma of a mechanism, each answered by a proof.

In: strategy, scheme and two of (sigma, epsilon, delta).  Out: a `Guarantee`, or a `Bracket`.
Rounding: epsilon and delta are upper bounds; sigma is the safe end of the search; the lower end of
a bracket is a lower bound.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from concurrent.futures import Executor
from typing import Any

from mmcc._methods import OLD_NAMES, TIGHT, UNAMPLIFIED, VERIFY
from mmcc._simulation.estimate import estimate as simulate
from mmcc._simulation.verified_search import (
    check_verifiable,
    options_of,
    verified_epsilon,
    verified_sigma,
)
from mmcc.accounting._best_bound import (
    Best,
    Budget,
    adapt_bound,
    amplified,
    ask_delta,
    ask_epsilon,
    best_delta,
    best_epsilon,
    best_of,
    bounds_for,
    lower_epsilon,
    refusal,
)
from mmcc.accounting._bounds import (
    CHANCE,
    PLAIN,
    Bound,
    Cost,
    Mmcc,
    Problem,
    bound_named,
    known_bounds,
)
from mmcc.accounting._calibrate import gaussian_problem, smallest_sigma
from mmcc.accounting._curve_points import Point
from mmcc.accounting._guarantee import Bracket, Guarantee, adjacency_of
from mmcc.accounting._in_words import REMEDIES, is_open
from mmcc.accounting._losses.engine import Effort
from mmcc.accounting._parallel import Progress
from mmcc.accounting._privacy_curve import curve_of
from mmcc.accounting._remedies import remedies_for
from mmcc.errors import (
    MethodError,
    NothingCertifiedError,
    NotVerifiedError,
    ParameterError,
    real,
    suggestion,
    whole,
)
from mmcc.sampling import Scheme
from mmcc.sampling._scheme import checked_scheme, unproven
from mmcc.strategies._base import ORDERS, Order, Strategy, checked_strategy

MIN_DELTA = 1e-200
MIN_SIGMA, MAX_SIGMA, MAX_EPSILON = 1e-50, 1e12, 1e6
NEXT_TO_NOTHING = 1e-6
"""The fraction of the sensitivity that `sigma` returns if no noise is needed."""
MAX_GROUP_SIZE = 10**6
CLOSE_BRACKET = 1.002
"""An upper end within this factor of the lower end needs no better lower end."""
MAX_RATIO = 1e4
"""Above this ratio of column norm to sigma, amplification is not attempted."""


def epsilon(
    strategy: Strategy,
    sampling: Scheme,
    *,
    sigma: float,
    delta: float,
    method: str = TIGHT,
    order: Order | None = None,
    group_size: int = 1,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> Guarantee:
    """The certified epsilon of a matrix mechanism at a given delta.

    With a `group_size`, that many examples are protected together: all their contributions are
    replaced by zero at once.
    """
    sigma = real("sigma", sigma, MIN_SIGMA, MAX_SIGMA)
    delta = real("delta", delta, MIN_DELTA, 1)
    problem = _problem(strategy, sampling, sigma, group_size, _effort(executor, progress))
    bounds = _feasible(problem, bounds_by(problem, method, order))
    if method == TIGHT:
        best = best_epsilon(problem, delta, bounds, tell=progress)
    else:
        best = best_of([ask_epsilon(bounds[0], problem, delta)])
    if not best.value < math.inf:
        raise NothingCertifiedError(
            f"method {method!r} certifies no finite epsilon at this noise; use a larger sigma, or "
            f"method={TIGHT!r}."
        )
    return _guarantee(problem, method, bounds, best, best.value, delta, "epsilon")


def epsilon_on_grid(
    strategy: Strategy, sampling: Scheme, *, sigma: float, delta: float, spacing: float
) -> Guarantee:
    """The certified epsilon by composing losses (MMCC) on a grid with a given spacing.

    `epsilon` allows its grid to cost 5e-5 of the answer; a finer grid here gives more digits but
    takes longer.
    """
    sigma = real("sigma", sigma, MIN_SIGMA, MAX_SIGMA)
    delta = real("delta", delta, MIN_DELTA, 1)
    problem = _problem(strategy, sampling, sigma, 1, Effort(spacing=real("spacing", spacing, 0, 1)))
    bounds = _feasible(problem, bounds_by(problem, Mmcc.name))
    best = best_of([ask_epsilon(bounds[0], problem, delta)])
    return _guarantee(problem, Mmcc.name, bounds, best, best.value, delta, "epsilon")


def delta(
    strategy: Strategy,
    sampling: Scheme,
    *,
    sigma: float,
    epsilon: float,
    method: str = TIGHT,
    order: Order | None = None,
    group_size: int = 1,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> Guarantee:
    """The certified delta of a matrix mechanism at an epsilon; `group_size` as in `epsilon`."""
    sigma = real("sigma", sigma, MIN_SIGMA, MAX_SIGMA)
    epsilon = real("epsilon", epsilon, 0, MAX_EPSILON, closed="l")
    problem = _problem(strategy, sampling, sigma, group_size, _effort(executor, progress))
    bounds = _feasible(problem, bounds_by(problem, method, order))
    if method == TIGHT:
        best = best_delta(problem, epsilon, bounds, progress)
    else:
        best = best_of([ask_delta(bounds[0], problem, epsilon)])
    return _guarantee(problem, method, bounds, best, epsilon, best.value, "delta")


def sigma(
    strategy: Strategy,
    sampling: Scheme,
    *,
    epsilon: float,
    delta: float,
    method: str = TIGHT,
    order: Order | None = None,
    group_size: int = 1,
    verify: Mapping[str, Any] | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> Guarantee:
    """The smallest noise level found that certifies (epsilon, delta), within about 0.01 %.

    It is found by a safeguarded secant search in log sigma and log epsilon; the guarantee returned
    is the one computed at the safe end, so its epsilon is at most the one asked for.  If a lower
    bound is known, `details` also has `sigma_lower`, below which (epsilon, delta) is impossible for
    any method, and `slack`, the relative excess of the certified sigma over it.

    If the chance to take part at all is at most delta, any noise will do, even none: `details` has
    `any_sigma`, and sigma is tiny (`NEXT_TO_NOTHING` times the sensitivity).  Such a delta promises
    nothing to examples that do take part; ask for a smaller one.

    With method "verify" the noise is found by simulation, and the guarantee is verified, not
    certified; `verify` holds options for `mmcc.verify`.
    """
    epsilon = real("epsilon", epsilon, 0, MAX_EPSILON)
    delta = real("delta", delta, MIN_DELTA, 1)
    if verify is not None and method != VERIFY:
        raise ParameterError(f"verify takes options for method={VERIFY!r}, not for {method!r}.")
    if method == VERIFY and order is None:
        return verified_sigma(
            strategy,
            sampling,
            epsilon=epsilon,
            delta=delta,
            group_size=group_size,
            executor=executor,
            progress=progress,
            **options_of({} if verify is None else verify),
        )
    first = _problem(strategy, sampling, 1.0, group_size, _effort(executor, progress))
    bounds = bounds_by(first, method, order)
    if method == TIGHT and first.chance <= delta:
        problem = first.at(max(NEXT_TO_NOTHING * first.sensitivity, 2 * MIN_SIGMA))
        best = best_of([ask_epsilon(CHANCE, problem, delta)])
        return _guarantee(problem, method, bounds, best, 0.0, delta, "sigma")
    problem = gaussian_problem(first, epsilon, delta)
    if bounds == [PLAIN]:
        best = best_of([ask_epsilon(PLAIN, problem, delta)])
        return _guarantee(problem, method, bounds, best, best.value, delta, "sigma")
    problem, best, floor = smallest_sigma(problem, bounds, epsilon, delta)
    return _guarantee(problem, method, bounds, best, best.value, delta, "sigma", floor)


def bracket(
    strategy: Strategy,
    sampling: Scheme,
    *,
    sigma: float,
    delta: float,
    method: str = TIGHT,
    order: Order | None = None,
    group_size: int = 1,
    estimate: bool | Mapping[str, Any] = False,
    verify: bool | Mapping[str, Any] = False,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> Bracket:
    """Two certified numbers with the true epsilon between them.

    `upper` is what `epsilon` gives for the method; `lower` holds for any method: it is the privacy
    loss that some test of the output achieves (0 if nothing is known).  `estimate=True` adds a
    Monte Carlo estimate, which is not a certificate; a mapping gives options for `mmcc.estimate`.
    `verify=True` adds an epsilon verified by simulation, which is not a certificate either: the
    smallest that a pilot run finds likely to pass; a mapping gives options for `mmcc.verify`.  If
    verification fails, `verified` is None and `refused` explains what the simulation suggests.
    """
    asked_to_verify = options_of({} if isinstance(verify, bool) else verify)
    if estimate is not False and group_size != 1:
        raise ParameterError(
            "estimates are for one example, not for a group; leave out estimate or group_size."
        )
    numbers: dict[str, Any] = {"sigma": sigma, "delta": delta}
    how: dict[str, Any] = {"executor": executor, "progress": progress}
    if verify is not False:
        of = {**numbers, "group_size": group_size, **asked_to_verify}
        check_verifiable(strategy, sampling, **of)
    found = epsilon(
        strategy,
        sampling,
        **numbers,
        method=method,
        order=order,
        group_size=group_size,
        **how,
    )
    lower = found.details.get("epsilon_lower", 0.0)
    if found.epsilon > CLOSE_BRACKET * lower:
        problem = Problem(strategy, sampling, found.sigma, group_size=found.group_size)
        lower = max(lower, lower_epsilon(problem, found.delta, Cost.LONG))
    if lower > found.epsilon:
        raise ArithmeticError(
            f"the lower bound {lower} lies above the upper bound {found.epsilon}: a bug, "
            "please report it with this command."
        )
    simulated = verified = refused = None
    if verify is not False:
        options = {"low": lower, "group_size": group_size}
        try:
            verified = verified_epsilon(
                strategy, sampling, **numbers, **how, **options, **asked_to_verify
            )
        except NotVerifiedError as refusal:
            refused = str(refusal)
    if estimate is not False:
        options = {} if estimate is True else dict(estimate)
        simulated = simulate(strategy, sampling, **numbers, **how, **options)
    return Bracket(lower, found, simulated, verified, refused)


def methods() -> tuple[str, ...]:
    """The names that `method` accepts."""
    return (TIGHT, *(bound.name for bound in known_bounds()))


def check_method(method: str, order: Order | None = None) -> None:
    """Raise an error for unknown methods and orders."""
    if method == VERIFY:
        raise MethodError(
            f"method={VERIFY!r} checks a given epsilon at a given delta: use mmcc.verify, or "
            "mmcc.sigma to find the noise for such a target."
        )
    if not isinstance(method, str) or (method not in methods() and method not in OLD_NAMES):
        raise MethodError(f"unknown method {method!r}; {suggestion(method, methods())}")
    if order is not None and order not in ORDERS:
        raise MethodError(f"unknown order {order!r}; {suggestion(order, ORDERS)}")
    if order is not None and method != Mmcc.name:
        raise MethodError(f"order applies to method {Mmcc.name!r} only, not to {method!r}.")


def _problem(
    strategy: Strategy, scheme: Scheme, sigma: float, group_size: int, effort: Effort
) -> Problem:
    """The mechanism with its checked arguments, and the number of examples protected together."""
    checked_strategy(strategy)
    checked_scheme(scheme).check(strategy.steps)
    group_size = whole("group_size", group_size, 1, MAX_GROUP_SIZE)
    return Problem(strategy, scheme, sigma, effort, group_size=group_size)


def bounds_by(
    problem: Problem,
    method: str,
    order: Order | None = None,
    budget: Budget = Budget.MINUTES,
) -> list[Bound]:
    """The certified bounds that a method tries."""
    check_method(method, order)
    if method == TIGHT:
        return bounds_for(problem, budget)
    bound = adapt_bound(bound_named(method) if order is None else Mmcc(order), problem)
    refused = refusal(bound, problem)
    if refused is None:
        return [bound]
    others = amplified(problem)
    if not others:
        raise unproven(problem.scheme, problem.group_size)
    known = ", ".join(repr(other.name) for other in (*others, PLAIN))
    raise MethodError(f"{refused} Use method={TIGHT!r}, or one of {known}.")


def _feasible(problem: Problem, bounds: list[Bound]) -> list[Bound]:
    """The bounds that floating point can evaluate at this noise level."""
    ratio = problem.group_size * problem.strategy.sensitivity(problem.steps) / problem.sigma
    if ratio <= MAX_RATIO:
        return bounds
    if PLAIN not in bounds:
        raise ParameterError(
            f"sigma = {problem.sigma:g} is {ratio:.2g} times smaller than a column of the "
            f"strategy: nothing is left to amplify. Use a larger sigma, or method={UNAMPLIFIED!r}."
        )
    return [PLAIN]


def _effort(executor: Executor | None, progress: Progress | None) -> Effort:
    """How to compute: on the given executor, or in this thread (rows are too short for threads)."""
    if executor is not None and not hasattr(executor, "submit"):
        raise ParameterError(f"executor must have the interface of Executor, got {executor!r}.")
    if progress is not None and not callable(progress):
        raise ParameterError(f"progress must be a function of (what, done), got {progress!r}.")
    return Effort(executor=executor, progress=progress)


def _guarantee(
    problem: Problem,
    method: str,
    bounds: list[Bound],
    best: Best,
    epsilon: float,
    delta: float,
    asked: str,
    floor: float = 0.0,
) -> Guarantee:
    """The answer as a guarantee, with everything it rests on."""
    winner = best.winner
    bound = winner.bound or PLAIN
    setting = problem.scheme.setting if any(one.amplified for one in best.needed) else ""
    details = bound.details(problem, winner, delta)
    extra: dict[str, object] = {}
    if bound.amplified:
        extra |= {"remove": best.remove.remove, "add": best.add.add}
    if len(best.bounds) > 1:
        extra |= {"remove_by": str(best.remove.bound), "add_by": str(best.add.bound)}
    if method == TIGHT and best.lower > 0:
        extra["delta_lower" if asked == "delta" else "epsilon_lower"] = best.lower
    if bound == CHANCE and asked == "sigma":
        extra["any_sigma"] = True
    if floor > 0:
        extra |= {"sigma_lower": floor, "slack": problem.sigma / floor - 1}
    least = floor if asked == "sigma" else best.lower
    if method == TIGHT and bound != CHANCE and is_open(least, _value(asked, problem, best)):
        extra[REMEDIES] = remedies_for(
            problem, asked, epsilon if asked != "epsilon" else best.lower
        )
    return Guarantee(
        epsilon=epsilon,
        delta=delta,
        sigma=problem.sigma,
        method=OLD_NAMES.get(method, method),
        strategy=repr(problem.strategy),
        sampling=repr(problem.scheme),
        adaptive=problem.strategy.adaptive and not setting,
        setting=setting,
        bound=str(bound),
        details=details.extended(extra),
        adjacency=adjacency_of(problem.group_size),
        group_size=problem.group_size,
        column_norm=problem.strategy.sensitivity(problem.steps),
        curve=curve_of(
            problem, Point(epsilon, delta), best, bounds if method == TIGHT else [], setting
        ),
    )


def _value(asked: str, problem: Problem, best: Best) -> float:
    """The number that was asked for."""
    return problem.sigma if asked == "sigma" else best.value
