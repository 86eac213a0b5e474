"""The smallest of all certified bounds: cheap ones are tried first, until the bracket is closed.

In: a problem, a question, and how long the caller is willing to wait.  Out: the best answer for
each adjacency, and the lower bound.  The two adjacencies may take their numbers from different
bounds: the promise is the larger of the two minima.

Only this module decides which bounds are asked, and in which order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from mmcc._progress import so_far
from mmcc.accounting._bounds import (
    CHANCE,
    PLAIN,
    Answer,
    Bound,
    ByCounts,
    ByRelaxation,
    Cost,
    GroupLemma,
    Groups,
    LowerEnd,
    Problem,
    known_bounds,
)
from mmcc.accounting._in_words import rounded_down, rounded_up
from mmcc.accounting._parallel import Progress
from mmcc.errors import (
    MethodError,
    MmccError,
    NothingCertifiedError,
    PrecisionError,
    StrategyError,
)
from mmcc.sampling._scheme import unproven

CLOSED = 1.02
"""An upper bound this close above the lower one is not worth minutes of work."""
CLOSED_DELTA = 1.1
"""The same for deltas, which change a lot when epsilon changes a little."""
NEARLY = 0.01
"""A remaining gap of this fraction of that one is still worth seconds."""
FAR = 1.1
"""If a bound stays above the lower end by this factor, another is likely to be smaller."""
ENORMOUS = 50.0
"""Above this epsilon slower bounds cannot improve on an exact one, so they are not asked."""
FEW_COLUMNS = 600
"""Most columns for which a bound whose cost grows with them answers in a second or two."""


class Budget(Enum):
    """How long the caller is willing to wait for an answer."""

    MINUTES = "every bound that applies"
    TABLE = "one of many answers: bounds of steady cost first, none that takes minutes"
    STEADY = "every bound if columns are few, a single one of steady cost if they are many"
    SECONDS = "inside a search: a single fast bound, or those that answer in seconds"


@dataclass(frozen=True, slots=True)
class Best:
    """The best answer for each adjacency."""

    remove: Answer
    add: Answer
    lower: float = 0.0
    """A certified lower bound, below which no method can prove anything; 0 if none is known."""

    @property
    def value(self) -> float:
        """The number that is promised: the larger of both adjacencies."""
        return max(self.remove.remove, self.add.add)

    @property
    def winner(self) -> Answer:
        """The answer that sets the promise; preferably one that gives both adjacencies."""
        value = self.value
        for answer in (self.remove, self.add):
            if answer.value <= value:
                return answer
        return self.remove if self.remove.remove >= self.add.add else self.add

    @property
    def bounds(self) -> list[Bound]:
        """The bounds that gave the two numbers, with all their settings chosen."""
        both = (self.remove.bound, self.add.bound)
        return list(dict.fromkeys(bound for bound in both if bound is not None))

    @property
    def needed(self) -> list[Bound]:
        """The bounds that the promise rests on: one bound if a single answer gives it."""
        winner = self.winner
        return [winner.bound or PLAIN] if winner.value <= self.value else self.bounds


def best_of(answers: Iterable[Answer], lower: float = 0.0) -> Best:
    """The best answer for each adjacency among these."""
    answers = list(answers)
    return Best(
        min(answers, key=lambda answer: (answer.remove, answer.value)),
        min(answers, key=lambda answer: (answer.add, answer.value)),
        lower,
    )


def ask_epsilon(
    bound: Bound, problem: Problem, delta: float, known: Sequence[Answer] = ()
) -> Answer:
    """The answer of one bound, signed with its name; given `known`, only what may be smaller."""
    _check_group(bound, problem)
    if not known:
        return _sign(bound, bound.epsilon(problem, delta), math.inf)
    beside = Answer(min(one.remove for one in known), min(one.add for one in known))
    return _sign(bound, bound.epsilon_beside(problem, delta, beside), math.inf)


def ask_delta(bound: Bound, problem: Problem, epsilon: float) -> Answer:
    """The delta of one bound, signed with its name."""
    _check_group(bound, problem)
    return _sign(bound, bound.delta(problem, epsilon), 1.0)


def ask_delta_of(bound: Bound, problem: Problem, epsilon: float, adjacency: str) -> float:
    """The delta of one bound for one adjacency."""
    _check_group(bound, problem)
    answer = _sign(bound, bound.delta_of(problem, epsilon, adjacency), 1.0)
    return answer.remove if adjacency == "remove" else answer.add


def _check_group(bound: Bound, problem: Problem) -> None:
    """Raise an error if the bound would give one example's number for a group."""
    if problem.group_size > 1 and bound.groups is not Groups.OWN:
        raise MethodError(_only_one(bound, problem))


def _sign(bound: Bound, answer: Answer, largest: float) -> Answer:
    """The answer with its bound's name; an error unless both sides can be promised."""
    if not (0.0 <= answer.remove <= largest and 0.0 <= answer.add <= largest):
        raise PrecisionError(
            f"the bound {bound} returned {answer.remove!r} and {answer.add!r}, which promises "
            "nothing; use another method."
        )
    return replace(answer, bound=bound)


def amplified(problem: Problem) -> list[Bound]:
    """The applicable bounds that make use of sampling."""
    return [bound for bound in _applicable(problem) if bound.amplified]


def _applicable(problem: Problem) -> list[Bound]:
    every = (adapt_bound(bound, problem) for bound in known_bounds())
    return [bound for bound in every if refusal(bound, problem) is None]


def adapt_bound(bound: Bound, problem: Problem) -> Bound:
    """The bound in the form to ask: about a simpler scheme, by counts, or from other bounds.

    For one example, under a scheme without a simpler replacement, it is the bound itself.
    """
    if problem.relaxed is not None and bound.amplified:
        return ByRelaxation(adapt_bound(bound, problem.under(problem.relaxed.scheme)))
    if problem.group_size == 1:
        return bound
    if bound.groups is Groups.COUNTS:
        return ByCounts(bound)
    if bound == GroupLemma():
        return GroupLemma(tuple(amplified(problem.of_one())))
    return bound


def refusal(bound: Bound, problem: Problem) -> str | None:
    """Why a bound does not apply to a mechanism, or to groups; None if it applies."""
    if problem.group_size > 1 and bound.groups is not Groups.OWN:
        return _only_one(bound, problem)
    return bound.refusal(problem)


def _only_one(bound: Bound, problem: Problem) -> str:
    return f"{bound.name!r} is proven for one example, not for a group of {problem.group_size}."


def bounds_for(problem: Problem, budget: Budget = Budget.MINUTES) -> list[Bound]:
    """The bounds worth asking, cheapest first; an error if there is chance but none amplifies."""
    if problem.certain:
        return [PLAIN]
    if not amplified(problem):
        raise unproven(problem.scheme, problem.group_size)
    costs = {bound: bound.cost(problem) for bound in _applicable(problem)}
    every = sorted(costs, key=lambda bound: costs[bound])
    fast = [bound for bound in every if costs[bound] == Cost.FAST]
    steady = [bound for bound in every if costs[bound] == Cost.STEADY]
    growing = [bound for bound in every if costs[bound] in (Cost.SHORT, Cost.LONG)]
    few = problem.columns <= FEW_COLUMNS or not steady
    if budget is Budget.SECONDS:
        free = [bound for bound in every if costs[bound] == Cost.FREE]
        return [*free, *(fast or [*steady, *(growing if few else [])])]
    if budget is Budget.STEADY and not few and not fast:
        return steady[:1]
    if budget is Budget.TABLE and steady and not fast:
        close = any(bound.close(problem) for bound in steady)
        return [*steady, *([] if close else growing)]
    return every


def best_epsilon(
    problem: Problem,
    delta: float,
    bounds: Sequence[Bound],
    *,
    known: Sequence[Answer] = (),
    lower: float | None = None,
    tell: Progress | None = None,
) -> Best:
    """The smallest certified epsilon at delta, by bounds in the order of their cost.

    `known` holds answers certified already; `lower` is the lower end if it is known, or 0 if it is
    not needed.  `tell` receives what is certified so far after every bound.
    """
    if problem.chance <= delta:
        return best_of([ask_epsilon(CHANCE, problem, delta)])
    lower = lower_epsilon(problem, delta) if lower is None else lower
    bounds = _promising_first(bounds, problem, delta, lower)

    def ask(bound: Bound, answers: list[Answer]) -> Answer:
        settled = bound.tune_for_epsilon(problem, delta)
        answer = ask_epsilon(settled, problem, delta, [*known, *answers])
        if tell is not None:
            value = best_of([*known, *answers, answer]).value
            _tell(tell, "epsilon", lower, value, len(answers) + 1, len(bounds))
        return answer

    def enough(answers: list[Answer], worth: float) -> bool:
        if best_of([*known, *answers]).value <= (1 + worth * (CLOSED - 1)) * lower:
            return True
        last = _complete(answers, known)[-1]
        # Groups have no composed lower end, so even an exact bound cannot be recognised.
        far = last.value > ENORMOUS or problem.group_size > 1
        return far and last.bound is not None and last.bound.exact(problem)

    return best_of([*known, *_ask_in_turn(problem, bounds, ask, enough, known)], lower)


def _promising_first(
    bounds: Sequence[Bound], problem: Problem, delta: float, lower: float
) -> list[Bound]:
    """A bound that will stay far above the lower end waits for others that take seconds."""
    soon = [bound for bound in bounds if Cost.FREE < bound.cost(problem) <= Cost.LONG]
    if lower == 0 or len(soon) < 2:
        return list(bounds)
    far = [bound for bound in soon if bound.outlook(problem, delta) > FAR * lower]
    return sorted(bounds, key=lambda b: (b.cost(problem) > Cost.LONG, b in far))


def _tell(
    progress: Progress, asked: str, lower: float, value: float, done: int, bounds: int
) -> None:
    """Report what is certified so far: the first bound at once, then better ones as they come."""
    if not math.isfinite(value):
        return
    ends = f"between {rounded_down(lower)} and" if lower > 0 else "at most"
    progress(so_far(f"{asked} {ends} {rounded_up(value)}", "bound", bounds, about=True), done)


def best_delta(
    problem: Problem, epsilon: float, bounds: Sequence[Bound], tell: Progress | None = None
) -> Best:
    """The smallest certified delta at epsilon, by bounds in the order of their cost."""
    lower = lower_delta(problem, epsilon)

    def ask(bound: Bound, answers: list[Answer]) -> Answer:
        answer = ask_delta(bound.tune_for_delta(problem, epsilon), problem, epsilon)
        if tell is not None:
            value = best_of([*answers, answer]).value
            _tell(tell, "delta", lower, value, len(answers) + 1, len(bounds))
        return answer

    def enough(answers: list[Answer], worth: float) -> bool:
        return best_of(answers).value <= (1 + worth * (CLOSED_DELTA - 1)) * lower

    answers = _ask_in_turn(problem, bounds, ask, enough)
    if CHANCE.refusal(problem) is None:
        answers.append(ask_delta(CHANCE, problem, epsilon))
    return best_of(answers, lower)


def _ask_in_turn(
    problem: Problem,
    bounds: Sequence[Bound],
    ask: Callable[[Bound, list[Answer]], Answer],
    enough: Callable[[list[Answer], float], bool],
    known: Sequence[Answer] = (),
) -> list[Answer]:
    """Ask one bound after another until the next one is not worth its cost."""
    answers: list[Answer] = []
    refusal: MmccError | None = None
    for bound in bounds:
        worth = NEARLY if bound.cost(problem) <= Cost.SHORT else 1.0
        if answers and enough(answers, worth):
            continue
        if not bound.worthwhile(problem, _complete(answers, known)):
            continue
        try:
            answers.append(ask(bound, answers))
        except PrecisionError as too_far:
            refusal = refusal or too_far
        except (MethodError, StrategyError) as not_possible:
            refusal = not_possible
    proven = any(answer.bound is not PLAIN for answer in answers)
    # If floating point fails or nothing is certified at this delta, the plain bound will do; that
    # a mechanism is too large must be reported.
    plain_will_do = answers and isinstance(refusal, (PrecisionError, NothingCertifiedError))
    if refusal is not None and not proven and not plain_will_do:
        raise refusal
    return answers


def _complete(answers: Sequence[Answer], known: Sequence[Answer]) -> list[Answer]:
    """The answers, completed by the known ones for sides that they skipped."""
    remove = min((one.remove for one in known), default=math.inf)
    add = min((one.add for one in known), default=math.inf)
    return [replace(a, remove=min(a.remove, remove), add=min(a.add, add)) for a in answers]


def lower_epsilon(problem: Problem, delta: float, most: Cost = Cost.FAST) -> float:
    """A lower bound: no method can prove a smaller epsilon; 0 if nothing is known.

    Lower ends that cost more than `most` are not asked.  A lower bound for one example holds for a
    group too: the other members may contribute nothing.
    """
    able = _with_lower_ends(problem, most)
    own = _largest(bound.lower_epsilon(problem, delta) for bound in able)
    if problem.group_size == 1:
        return own
    return max(own, lower_epsilon(problem.of_one(), delta, most))


def lower_delta(problem: Problem, epsilon: float) -> float:
    """A lower bound: no method can prove a smaller delta; 0 if nothing is known."""
    able = _with_lower_ends(problem, Cost.FAST)
    own = _largest(bound.lower_delta(problem, epsilon) for bound in able)
    return own if problem.group_size == 1 else max(own, lower_delta(problem.of_one(), epsilon))


def _with_lower_ends(problem: Problem, most: Cost) -> list[Bound]:
    return [bound for bound in _applicable(problem) if bound.lower_cost(problem) <= most]


def _largest(ends: Iterable[LowerEnd]) -> float:
    found = 0.0
    for end in ends:
        found = max(found, end.value)
        if end.closed:
            break
    return found
