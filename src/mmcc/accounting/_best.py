"""The smallest of all certified bounds: cheap ones first, until the bracket is closed.

In: a problem and the plans that may be tried.  Out: for each adjacency the best answer, and the
lower bound.  Each adjacency may take its number from another bound: the promise is the larger of
the two smallest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from mmcc.accounting._bounds import chain
from mmcc.accounting._bounds.sides import Sides
from mmcc.accounting._methods import EVEN, Answer, Plan, Problem
from mmcc.errors import MethodError, MmccError, PrecisionError, StrategyError

CLOSED = 1.02
"""An upper bound this close above the lower one is not worth more work."""
CLOSED_DELTA = 1.1
"""The same for deltas, which move a lot where epsilon moves a little."""
SHARES = (0.5, 0.1, 0.02)
"""Shares of delta for bad events: the paper's, and two that the search starts from."""
CROWDED = 24
"""With more bad events than this for each column MMCC is far behind the projection, and slow."""
ENORMOUS = 50.0
"""Above this epsilon an exact MMCC is not compared with slower bounds: there they know nothing."""
LONG = 4096
"""From this many columns on the chain is tried before the projection."""


@dataclass(frozen=True, slots=True)
class Best:
    """The best answer for each adjacency."""

    remove: Answer
    add: Answer
    lower: float = 0.0
    """Certified: no method can prove less; 0 where nothing is known."""

    @property
    def sides(self) -> Sides:
        """The smallest number of each adjacency."""
        return Sides(self.remove.sides.remove, self.add.sides.add, self.winner.sides.group)

    @property
    def value(self) -> float:
        """What is promised."""
        return max(self.remove.sides.remove, self.add.sides.add)

    @property
    def winner(self) -> Answer:
        """The answer that sets the promise; one that gives both adjacencies, if there is one."""
        value = self.value
        for answer in (self.remove, self.add):
            if answer.value <= value:
                return answer
        return self.remove if self.remove.sides.remove >= self.add.sides.add else self.add

    @property
    def plans(self) -> list[Plan]:
        """The plans that gave the two numbers."""
        return list(dict.fromkeys((self.remove.plan, self.add.plan)))


def best_of(answers: Iterable[Answer], lower: float = 0.0) -> Best:
    """The smallest number of each adjacency."""
    answers = list(answers)
    return Best(
        min(answers, key=lambda a: (a.sides.remove, a.value)),
        min(answers, key=lambda a: (a.sides.add, a.value)),
        lower,
    )


def best_epsilon(problem: Problem, plans: list[Plan], delta: float) -> Best:
    """The smallest certified epsilon at delta."""
    if zero := problem.rarely(delta):
        return best_of([zero])
    lower = problem.lower_epsilon(delta)

    def search(some: list[Plan]) -> Plan:
        return best_share(problem, some, delta)

    return _best(
        problem, plans, lower, CLOSED, lambda plan: problem.epsilon(plan, delta), search, None
    )


def best_delta(problem: Problem, plans: list[Plan], epsilon: float) -> Best:
    """The smallest certified delta at epsilon."""
    lower = problem.lower_delta(epsilon)

    def search(some: list[Plan]) -> Plan:
        scout = problem.scouting()
        tried = [replace(plan, share=share) for plan in some for share in (EVEN, SHARES[-1])]
        return min(dict.fromkeys(tried), key=lambda plan: scout.delta(plan, epsilon).sides.remove)

    return _best(
        problem,
        plans,
        lower,
        CLOSED_DELTA,
        lambda plan: problem.delta(plan, epsilon),
        search,
        problem.rarely(),
    )


def _best(
    problem: Problem,
    plans: list[Plan],
    lower: float,
    closed: float,
    ask: Callable[[Plan], Answer],
    search: Callable[[list[Plan]], Plan],
    free: Answer | None,
) -> Best:
    """Ask the plans in turn until one is close to the lower bound; `free` is known already."""
    answers: list[Answer] = []
    refusal: MmccError | None = None
    for group in _in_turn(problem, plans):
        if group[0].bound == "mmcc" and _hopeless(problem, group[0], answers):
            continue
        try:
            answers.append(ask(search(group) if group[0].bound == "mmcc" else group[0]))
        except PrecisionError as too_far:
            refusal = refusal or too_far
            continue
        except (MethodError, StrategyError) as not_possible:
            refusal = not_possible
            continue
        if best_of(answers).value <= closed * lower:
            break
        if closed == CLOSED and _exact(problem, group[0]) and answers[-1].value > ENORMOUS:
            break
    amplified = any(answer.plan.bound != "unamplified" for answer in answers)
    # Where floats cannot go the plain bound will do; that a mechanism is too large must be known.
    plain_will_do = answers and isinstance(refusal, PrecisionError)
    if refusal is not None and not amplified and not plain_will_do:
        raise refusal
    return best_of([*answers, free] if free else answers, lower)


def _in_turn(problem: Problem, plans: list[Plan]) -> Iterator[list[Plan]]:
    """Plans in the order of their cost; all orders of MMCC together, first where it is exact."""
    mmcc = [plan for plan in plans if plan.bound == "mmcc"]
    single = {plan.bound: plan for plan in plans if plan.bound != "mmcc"}
    if "unamplified" in single:
        yield [single["unamplified"]]
    exact = bool(mmcc) and _exact(problem, mmcc[0])
    if exact:
        yield mmcc[:1]
    names = ["cascade", "projection", "chain"]
    rounds = problem.scheme.rounds(problem.strategy.steps)
    if rounds is not None and problem.strategy.steps // rounds.separation > LONG:
        names.reverse()
    for name in names:
        if name in single and (name != "chain" or chain.applies(problem.strategy)):
            yield [single[name]]
    if mmcc and not exact:
        yield mmcc


def _exact(problem: Problem, plan: Plan) -> bool:
    """Whether MMCC loses next to nothing: no two rows share a column, no probability is bounded.

    Its grid may still cost something, so the lower bound decides whether others are asked.
    """
    if plan.bound != "mmcc" or problem.rounds.probability == 1.0:
        return False
    try:
        return not problem.has_events(plan)
    except (MethodError, StrategyError):
        return False


def _hopeless(problem: Problem, plan: Plan, answers: list[Answer]) -> bool:
    """Whether the projection has answered where MMCC has to bound very many probabilities."""
    if not any(a.plan.bound == "projection" and math.isfinite(a.value) for a in answers):
        return False
    geometry = problem.strategy.geometry(plan.order, problem.rounds.separation, 0)
    return geometry.events > CROWDED * geometry.columns


def best_share(problem: Problem, plans: list[Plan], delta: float) -> Plan:
    """MMCC's best order, then its best share for bad events: a rough search, one adjacency."""
    scout = problem.scouting()
    tried: dict[Plan, float] = {}

    def value(plan: Plan) -> float:
        if plan not in tried:
            tried[plan] = scout.epsilon(plan, delta).sides.remove
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
