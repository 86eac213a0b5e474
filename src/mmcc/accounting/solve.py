"""The questions users ask: epsilon, delta or sigma of a mechanism, each answered by a proof.

In: strategy, scheme and two of (sigma, epsilon, delta).  Out: a `Guarantee`.
Rounding: epsilon and delta are upper bounds; sigma is the safe end of the search.
"""

from __future__ import annotations

import math
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from mmcc.accounting.algorithm import Outcome, analyse, has_events, uncorrelated
from mmcc.accounting.gaussian import bound_gaussian_delta, bound_gaussian_epsilon
from mmcc.accounting.guarantee import Details, Guarantee
from mmcc.accounting.parallel import Progress
from mmcc.accounting.pld import Effort, Target
from mmcc.errors import MethodError, ParameterError, PrecisionError, StrategyError, real, suggestion
from mmcc.sampling import CyclicPoisson, Poisson, Scheme
from mmcc.strategies.base import ORDERS, Order, Strategy

METHODS = ("tight", "mmcc", "unamplified")
EVEN = 0.5
SHARES = (0.5, 0.1, 0.02)
"""Shares of delta for bad events: the paper's, and two that `tight` starts from."""
SIGMA_TOLERANCE = 1e-4
MAX_TURNS = 16
MIN_DELTA = 1e-200
MIN_SIGMA, MAX_SIGMA, MAX_EPSILON = 1e-50, 1e12, 1e6
MAX_RATIO = 1e4
"""Above this ratio of column norm to sigma no amplification is looked for."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One certified bound: which, in which order of analysis, with which share for bad events."""

    bound: str
    order: Order = "release"
    share: float = EVEN

    def __str__(self) -> str:
        if self.bound == "unamplified":
            return self.bound
        return f"{self.bound}, rows in {self.order} order"


@dataclass(frozen=True, slots=True)
class Answer:
    """The number asked for and how it came about."""

    value: float
    plan: Plan
    delta_1: float = 0.0
    outcome: Outcome | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Problem:
    """A mechanism with its noise level, and how to compute."""

    strategy: Strategy
    scheme: Scheme
    sigma: float
    effort: Effort

    def epsilon(self, plan: Plan, delta: float) -> Answer:
        """Certified epsilon at delta by one plan."""
        if plan.bound == "unamplified":
            return Answer(bound_gaussian_epsilon(self._ratio(), delta), plan)
        delta_1 = plan.share * delta if self.has_events(plan) else 0.0
        outcome = self._analyse(plan, delta_1, Target(delta=delta - delta_1))
        return Answer(outcome.value, plan, delta_1, outcome)

    def delta(self, plan: Plan, epsilon: float) -> Answer:
        """Certified delta at epsilon by one plan.

        delta = delta_1 + delta_2(epsilon, delta_1) is valid for every delta_1.  The paper's even
        split is where both are equal, and delta_2 falls with delta_1: a search in log delta_1.
        """
        if plan.bound == "unamplified":
            return Answer(bound_gaussian_delta(self._ratio(), epsilon), plan)
        if not self.has_events(plan):
            outcome = self._analyse(plan, 0.0, Target(epsilon=epsilon))
            return Answer(min(outcome.value, 1.0), plan, 0.0, outcome)
        delta_1 = self._split(plan, epsilon)
        outcome = self._analyse(plan, delta_1, Target(epsilon=epsilon))
        return Answer(min((delta_1 + outcome.value) * (1 + 1e-15), 1.0), plan, delta_1, outcome)

    def _split(self, plan: Plan, epsilon: float) -> float:
        """Roughly the delta_1 that is the plan's share of delta_1 + delta_2."""
        scout = self.scouting()
        odds = plan.share / (1 - plan.share)
        low, high, guess = -280.0, 0.0, -6.0
        for _ in range(10):
            found = scout._analyse(plan, 10.0**guess, Target(epsilon=epsilon)).value
            excess = math.log10(max(found * odds, 1e-280)) - guess
            low, high = (guess, high) if excess > 0 else (low, guess)
            if abs(excess) < 1e-2 or high - low < 1e-2:
                break
            # delta_2 falls slowly as delta_1 grows: a damped step, kept inside what is known.
            guess += 0.8 * excess
            if not low < guess < high:
                guess = 0.5 * (max(low, high - 40) + high)
        return min(float(10.0**guess), 0.5)

    def scouting(self) -> Problem:
        """The same problem, solved roughly: for comparing plans."""
        return replace(self, effort=replace(self.effort, scouting=True))

    def diagnostics(self, answer: Answer, delta: float) -> Details:
        """The paper's measures of tightness, and both adjacencies."""
        outcome = answer.outcome
        if outcome is None:
            return Details({"sensitivity": self._ratio() * self.sigma})
        known: dict[str, Any] = {
            "order": answer.plan.order,
            "delta_1": answer.delta_1,
            "events": outcome.events,
            "worst_group": outcome.group,
            "remove": outcome.remove,
            "add": outcome.add,
            "max_p_tilde_over_p": outcome.blow_up,
        }
        if not answer.delta_1:
            return Details(known)
        later = partial(
            uncorrelated,
            self.strategy,
            self.scheme,
            self.sigma,
            Target(delta=delta),
            order=answer.plan.order,
            group=outcome.group,
            effort=replace(self.effort, executor=None, progress=None),
        )
        return Details(known, {"epsilon_if_p_tilde_were_p (neither bound)": later})

    def _ratio(self) -> float:
        separation = min(self.scheme.separation, self.strategy.steps)
        return self.strategy.sensitivity(separation) / self.sigma * (1 + 2.0**-50)

    def has_events(self, plan: Plan) -> bool:
        """Whether this plan has to spend part of delta on bad events."""
        return has_events(self.strategy, self.scheme, plan.order)

    def _analyse(self, plan: Plan, delta_1: float, target: Target) -> Outcome:
        return analyse(
            self.strategy,
            self.scheme,
            self.sigma,
            target,
            order=plan.order,
            delta_1=delta_1,
            effort=self.effort,
        )


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
    effort = _effort(executor, progress)
    problem = Problem(strategy, sampling, sigma, effort)
    answer = _best_epsilon(problem, plans, delta, optimise=method == "tight")
    return _guarantee(problem, method, answer, answer.value, delta)


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
    if method == "tight":
        plans = [replace(plan, share=share) for plan in plans for share in (EVEN, SHARES[-1])]
    effort = _effort(executor, progress)
    problem = Problem(strategy, sampling, sigma, effort)
    scout = problem.scouting()
    best = plans[0]
    if len(plans) > 1:
        best = min(dict.fromkeys(plans), key=lambda plan: scout.delta(plan, epsilon).value)
    answer = problem.delta(best, epsilon)
    return _guarantee(problem, method, answer, epsilon, answer.value)


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
    computed at the safe end, so its epsilon is at most the one asked for.
    """
    epsilon = real("epsilon", epsilon, 0, MAX_EPSILON)
    delta = real("delta", delta, MIN_DELTA, 1)
    plans = _plans(strategy, sampling, method, order)
    effort = _effort(executor, progress)
    sensitivity = strategy.sensitivity(min(sampling.separation, strategy.steps))
    ceiling = Problem(strategy, sampling, _gaussian_sigma(sensitivity, epsilon, delta), effort)
    answer = ceiling.epsilon(Plan("unamplified"), delta)
    for step in (10.0**k for k in range(-12, 0)):  # the last digits of both searches
        if answer.value <= epsilon:
            break
        ceiling = replace(ceiling, sigma=ceiling.sigma * (1 + step))
        answer = ceiling.epsilon(Plan("unamplified"), delta)
    problem = ceiling
    if len(plans) > 1 or plans[0].bound == "mmcc":
        guess = 1.5 * sampling.probability * ceiling.sigma + 0.3 * strategy.sensitivity(
            strategy.steps
        )
        start = replace(ceiling, sigma=min(guess, ceiling.sigma))
        problem, answer = _search_sigma(start, plans, epsilon, delta, method)
    return _guarantee(problem, method, answer, answer.value, delta)


def _best_epsilon(problem: Problem, plans: list[Plan], delta: float, *, optimise: bool) -> Answer:
    """The smallest epsilon of several plans; with `optimise` the split of delta is chosen too."""
    if not optimise:
        return min((problem.epsilon(plan, delta) for plan in plans), key=lambda a: a.value)
    answers = [problem.epsilon(p, delta) for p in plans if p.bound == "unamplified"]
    try:
        plan = _best_plan(problem, [p for p in plans if p.bound == "mmcc"], delta)
        if plan is not None:
            answers.append(problem.epsilon(plan, delta))
    except PrecisionError:
        if not answers:
            raise
    return min(answers, key=lambda a: a.value)


def _best_plan(problem: Problem, plans: list[Plan], delta: float) -> Plan | None:
    """The best order, then the best share for bad events: a rough search, one adjacency."""
    if not plans:
        return None
    scout = problem.scouting()
    tried: dict[Plan, float] = {}

    def value(plan: Plan) -> float:
        if plan not in tried:
            tried[plan] = scout.epsilon(plan, delta).value
        return tried[plan]

    if len(plans) > 1:
        plans = [replace(plan, share=SHARES[1]) for plan in plans]
    best = min(plans, key=value) if len(plans) > 1 else plans[0]
    if not problem.has_events(best):
        return best
    lower, middle, upper = (replace(best, share=share) for share in (0.02, 0.1, EVEN))
    while value(lower) < value(middle) and lower.share > 1e-5:
        lower, middle, upper = replace(lower, share=lower.share / 6), lower, middle
    vertex = _vertex(*((math.log(p.share), value(p)) for p in (lower, middle, upper)))
    value(replace(best, share=math.exp(vertex)))
    return min((plan for plan in tried if plan.order == best.order), key=value)


def _vertex(*points: tuple[float, float]) -> float:
    """The lowest point of the parabola through three points, kept between the outer ones."""
    (x0, y0), (x1, y1), (x2, y2) = points
    left, right = (y1 - y0) / (x1 - x0), (y2 - y1) / (x2 - x1)
    if not right > left:
        return x1
    vertex = 0.5 * (x0 + x1) - left * (x2 - x0) / (2 * (right - left))
    return min(max(vertex, x0), x2)


def _search_sigma(
    problem: Problem, plans: list[Plan], epsilon: float, delta: float, method: str
) -> tuple[Problem, Answer]:
    """Close in on epsilon(sigma) = epsilon from both sides; return the safe side."""
    safe: tuple[Problem, Answer] | None = None
    points: list[tuple[float, float]] = []  # log sigma, log epsilon
    low, high = 0.0, math.inf
    goal = math.log(epsilon) - 0.5 * SIGMA_TOLERANCE
    chosen = plans[0]
    closing = False
    for turn in range(MAX_TURNS):
        now = problem.sigma
        # `tight` looks for its best plan at the first guess, near the end, and at the answer, so
        # that asking for epsilon at this sigma gives the same number.
        explore = method == "tight" and (closing or turn in (0, 2))
        answer = _best_epsilon(problem, plans if explore else [chosen], delta, optimise=explore)
        chosen = answer.plan
        near = abs(answer.value / epsilon - 1) <= SIGMA_TOLERANCE
        if near and method == "tight" and not explore:
            closing = True
            answer = _best_epsilon(problem, plans, delta, optimise=True)
        if answer.value <= epsilon:
            high = now
            safe = (problem, answer)
            if answer.value >= epsilon * (1 - SIGMA_TOLERANCE) or high - low <= 1e-6 * high:
                break
        else:
            low = now
        points.append((math.log(now), math.log(max(answer.value, 1e-12))))
        guess = _next_sigma(points, goal)
        if not low < guess < high:
            guess = math.sqrt(low * high) if low > 0 and high < math.inf else 2 * now
            guess = now / 4 if low == 0 else guess
        problem = replace(problem, sigma=guess)
    if safe is None:
        raise MethodError(
            f"no sigma up to {problem.sigma:g} reaches epsilon = {epsilon:g} by method {method!r}. "
            "Use method='tight', or a larger epsilon or delta."
        )
    return safe


def _next_sigma(points: list[tuple[float, float]], goal: float) -> float:
    """Secant through the two points nearest to the goal; slope -1 from one point."""
    nearest = sorted(points, key=lambda point: abs(point[1] - goal))[:2]
    x, y = nearest[0]
    slope = -1.0
    if len(nearest) == 2 and nearest[1][0] != x:
        slope = (nearest[1][1] - y) / (nearest[1][0] - x)
        slope = min(max(slope, -20.0), -0.3)
    step = min(max((goal - y) / slope, -3.0), 3.0)
    return math.exp(x + step)


def _gaussian_sigma(sensitivity: float, epsilon: float, delta: float) -> float:
    """Noise of the Gaussian mechanism, rounded up."""
    low, high = 1e-12, 1e12
    for _ in range(100):
        middle = math.sqrt(low * high)
        enough = bound_gaussian_delta(1 / middle, epsilon) <= delta
        low, high = (low, middle) if enough else (middle, high)
        if high - low <= 1e-12 * high:
            break
    return sensitivity * high * (1 + 2.0**-50)


def _plans(strategy: Strategy, scheme: Scheme, method: str, order: Order | None) -> list[Plan]:
    """The certified bounds that a method tries."""
    if not isinstance(strategy, Strategy):
        raise StrategyError(
            f"strategy must come from mmcc.strategies, got {type(strategy).__name__}; "
            "wrap an array with mmcc.strategies.dense."
        )
    if not isinstance(scheme, Poisson | CyclicPoisson):
        raise MethodError(
            f"no certificate exists for {type(scheme).__name__}; "
            "use sampling.Poisson or sampling.CyclicPoisson."
        )
    if method not in METHODS:
        raise MethodError(f"unknown method {method!r}; {suggestion(method, METHODS)}")
    if order is not None and order not in ORDERS:
        raise MethodError(f"unknown order {order!r}; {suggestion(order, ORDERS)}")
    if order is not None and method != "mmcc":
        raise MethodError(f"order applies to method 'mmcc' only, not to {method!r}.")
    if method == "mmcc":
        return [Plan("mmcc", order or "release")]
    plans = [Plan("unamplified")]
    if method == "tight" and scheme.probability < 1.0:  # certain participation: exact already
        orders = dict.fromkeys(strategy.same_order(o, scheme.separation) for o in ORDERS)
        plans += [Plan("mmcc", o) for o in orders]
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
    problem: Problem, method: str, answer: Answer, epsilon: float, delta: float
) -> Guarantee:
    return Guarantee(
        epsilon=epsilon,
        delta=delta,
        sigma=problem.sigma,
        method=method,
        strategy=repr(problem.strategy),
        sampling=repr(problem.scheme),
        adaptive=problem.strategy.adaptive,
        bound=str(answer.plan),
        details=problem.diagnostics(answer, delta),
    )
