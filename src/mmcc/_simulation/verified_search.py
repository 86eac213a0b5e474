"""Which epsilon, or which noise, a verdict is likely to pass: found by pilots, then verified.

In: a mechanism and a delta, or a target.  Out: a verified `Guarantee`.
Rounding: none in the search, which may look at anything except the verdict's own random numbers.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import Any

from mmcc._simulation.claims import MAX_EPSILON, Claim, Work
from mmcc._simulation.record import new_seed
from mmcc._simulation.trials import PASSING, Pilot
from mmcc._simulation.verify import pilots_of, verify
from mmcc.accounting._guarantee import Guarantee
from mmcc.accounting._parallel import Progress, one_thread
from mmcc.errors import MethodError, NotVerifiedError, ParameterError, shown, suggestion
from mmcc.sampling import Scheme
from mmcc.strategies._base import Strategy

OPTIONS = ("failure", "samples", "record")
"""Options of `mmcc.verify` that other questions pass on."""
SAMPLES = 150.0
"""Samples of a pilot, in units of `trials.rough`: within 7 % of delta, or .5 % of epsilon."""
MARGIN = 1.003
"""A margin of epsilon or noise above what passes according to a pilot."""
RETRIES, STEP = 3, 1.02
"""The most verdicts, and the factor of epsilon or noise from one to the next."""
TURNS, CLOSE = 8, 0.08
"""The tolerance of the search for a noise level, in log delta."""
DIGITS = 4


def check_verifiable(
    strategy: Strategy,
    sampling: Scheme,
    *,
    sigma: float,
    delta: float,
    failure: float = 1e-9,
    group_size: int = 1,
    **_: Any,
) -> None:
    """Refuse what no verdict can be about, before anything takes long."""
    numbers = {"sigma": sigma, "delta": delta, "failure": failure}
    claim = Claim.about(strategy, sampling, group_size, epsilon=0.0, **numbers)
    claim.pairs()(claim.places[0][0])


def verified_epsilon(
    strategy: Strategy,
    sampling: Scheme,
    *,
    sigma: float,
    delta: float,
    low: float = 0.0,
    failure: float = 1e-9,
    group_size: int = 1,
    executor: Executor | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Guarantee:
    """An epsilon that passes a verdict, approximately the smallest; it is at least `low`."""
    numbers: dict[str, Any] = {"sigma": sigma, "delta": delta, "failure": failure}
    claim = Claim.about(strategy, sampling, group_size, epsilon=low, **numbers)
    with one_thread():
        pilots = pilots_of(claim, new_seed(), Work(executor, progress), SAMPLES)
    epsilon = max(pilot.passing() for pilot in pilots.values()) * MARGIN
    if not epsilon < MAX_EPSILON:
        raise NotVerifiedError(
            f"not verified: a pilot finds no epsilon below {MAX_EPSILON:g} that would pass at "
            f"sigma = {sigma:g}. Use a larger sigma.",
            samples=sum(pilot.count for pilot in pilots.values()),
        )
    options |= {"group_size": group_size, "executor": executor, "progress": progress}

    def larger(tried: float, refusal: NotVerifiedError) -> float:
        return max(tried * STEP, (refusal.epsilon or 0.0) * MARGIN)

    def ask(tried: float) -> Guarantee:
        found: Guarantee = verify(strategy, sampling, epsilon=tried, **numbers, **options)
        return found

    return _first_to_pass("epsilon", ask, epsilon, larger)


def verified_sigma(
    strategy: Strategy,
    sampling: Scheme,
    *,
    epsilon: float,
    delta: float,
    failure: float = 1e-9,
    group_size: int = 1,
    executor: Executor | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Guarantee:
    """A noise level at which a verdict passes a target, approximately the least.

    The search derives its random numbers from the question, so repeating it gives the same noise:
    resumed runs need that.
    """
    numbers: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "failure": failure}
    seed = int(hashlib.sha256(repr((strategy, sampling, numbers)).encode()).hexdigest()[:16], 16)
    work = Work(executor, progress)

    def excess(sigma: float) -> float:
        """Log of the largest delta over the one that passes; falls with sigma."""
        claim = Claim.about(strategy, sampling, group_size, sigma=sigma, **numbers)
        return max(_excess(pilot) for pilot in pilots_of(claim, seed, work, SAMPLES).values())

    with one_thread():
        sigma = _root(excess, _first_sigma(strategy, epsilon, delta))
    options |= {"group_size": group_size, "executor": executor, "progress": progress}

    def ask(tried: float) -> Guarantee:
        found: Guarantee = verify(strategy, sampling, sigma=tried, **numbers, **options)
        return found

    return _first_to_pass(
        "sigma", ask, _rounded_up(sigma * MARGIN), lambda tried, _: _rounded_up(tried * STEP)
    )


def _first_to_pass(
    name: str,
    ask: Callable[[float], Guarantee],
    value: float,
    larger: Callable[[float, NotVerifiedError], float],
) -> Guarantee:
    """The first of a few verdicts that passes; each is a separate attempt."""
    for turn in range(RETRIES):
        try:
            return ask(value)
        except NotVerifiedError as refusal:
            last = refusal
        if turn < RETRIES - 1:
            value = larger(value, last)
    raise NotVerifiedError(
        f"{RETRIES} verdicts were refused, the last at {name} = {value:.6g}, so there is no "
        f"{name} to use: {last}",
        samples=last.samples,
        epsilon=last.epsilon,
        delta=last.delta,
    ) from last


def _excess(pilot: Pilot) -> float:
    mean = max(pilot.delta()[0], 0.1 * pilot.experiment.largest / pilot.count)
    return math.log(mean / (PASSING * pilot.mean))


def _first_sigma(strategy: Strategy, epsilon: float, delta: float) -> float:
    """Where the search starts: approximately what one participation needs."""
    column = strategy.sensitivity(strategy.steps)
    return column * math.sqrt(2 * math.log(1.25 / delta)) / max(epsilon, 1e-3) / 4


def _root(excess: Callable[[float], float], first: float) -> float:
    """A noise level just above where the excess is 0: doubled or halved, then by secants."""
    points: dict[float, float] = {}

    def at(place: float) -> float:
        if place not in points:
            points[place] = excess(math.exp(place))
        return points[place]

    low = high = math.log(first)
    while at(high) > 0:
        low, high = high, high + math.log(2)
        if high > math.log(1e12):
            raise NotVerifiedError("no noise level was found at which a verdict would pass.")
    while low == high or at(low) <= 0:
        if at(low) > -0.02:
            return math.exp(low)
        high, low = low, low - math.log(2)
        if low < math.log(1e-12):
            raise MethodError("any noise satisfies this target: choose a smaller delta.")
    for _ in range(TURNS):
        left, right = at(low), at(high)
        if right >= -CLOSE:
            break
        share = min(max(left / (left - right), 0.05), 0.95)
        middle = low + (high - low) * share + 0.02 * (high - low)
        low, high = (low, middle) if at(middle) <= 0 else (middle, high)
    return math.exp(high)


def _rounded_up(sigma: float) -> float:
    """Rounded up to a few digits, so that a repeated search ends at the same number."""
    unit = 10.0 ** (math.floor(math.log10(sigma)) - DIGITS + 1)
    return float(f"{math.ceil(sigma / unit) * unit:.{DIGITS}g}")


def options_of(verify: object) -> dict[str, Any]:
    """A caller's options of verdicts: no seed, and nothing that the question itself determines."""
    if not isinstance(verify, Mapping):
        raise ParameterError(
            f"verify has options of mmcc.verify, as a mapping; got {shown(verify)}."
        )
    options = {name: value for name, value in verify.items() if (name, value) != ("seed", None)}
    if "seed" in options:
        raise MethodError(
            "a verdict cannot have the caller's seed; leave it out, or use mmcc.verify."
        )
    for name in options:
        if name not in OPTIONS:
            raise ParameterError(f"verify has no option {name!r}; {suggestion(name, OPTIONS)}")
    return options
