"""The numbers behind the page: brackets, their lower ends alone, bounds without sampling, errors.

In: settings.  Out: a `Bracket` (both ends certified), certified epsilons without amplification, and
errors of prefix sums in plain floating point.  Nothing here is an estimate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import mmcc
from mmcc import utility
from mmcc._arrays import FloatArray
from mmcc.accounting._best_bound import lower_epsilon
from mmcc.accounting._bounds import PLAIN, Problem
from mmcc.accounting._guarantee import Bracket, Guarantee
from mmcc.accounting._parallel import Progress
from mmcc.errors import MmccError
from mmcc.explore._settings import FieldError, Settings
from mmcc.sampling import Scheme
from mmcc.sampling._families_at_rate import in_fixed_order
from mmcc.strategies._registry import IDENTITY

PROMPT = 1000
"""Up to this many steps, plots redraw at once."""
LARGEST = 4096
"""With more steps, the page gives the command instead of the tight bound ..."""
HUGE = 100_000
"""... and with more than these, no number at all."""
OCTAVES = 1.0
"""Noise levels of the curve: from half the chosen one to twice the chosen one ..."""
PER_OCTAVE = 2
"""... this many per octave, at fixed values: after a small change of sigma most are known."""
PICTURED = 32
"""Steps of the strategy that are drawn."""


@dataclass(frozen=True, slots=True)
class BracketQuestion:
    """A question about one mechanism at one noise level."""

    asked: Settings
    lower_only: bool = False
    """Ask only for the lower end, which comes long before the upper one if it has its own proof."""


@dataclass(frozen=True, slots=True)
class NoiseQuestion:
    """How much noise a mechanism needs; the sigma of its settings is ignored."""

    asked: Settings
    epsilon: float


@dataclass(frozen=True, eq=False, slots=True)
class Errors:
    """The effect of the noise on prefix sums."""

    steps: FloatArray
    """Standard deviation of each prefix sum, in units of the clip norm."""
    rmse: float
    largest: float


Question = BracketQuestion | NoiseQuestion
Answer = Bracket | Guarantee | float


def check_size(asked: Settings) -> None:
    """Refuse questions that would keep a page waiting too long."""
    if asked.steps > HUGE:
        raise FieldError(
            "steps",
            f"this page answers up to {HUGE} steps: run the command below instead, or choose "
            "fewer steps.",
        )


def check_scheme(asked: Settings) -> None:
    """Refuse a scheme that does not fit the steps before any long computation."""
    asked.build_scheme().check(asked.steps)


def answer(question: Question, progress: Progress | None = None) -> Answer:
    """Both ends, or a lower bound on the true epsilon, or the noise for an epsilon."""
    if isinstance(question, NoiseQuestion):
        return certified_noise(question, progress)
    if question.lower_only:
        return certified_lower(question.asked)
    return certified_bracket(question.asked, progress)


def answered(question: Question) -> Answer | MmccError:
    """The answer at once, or the error if there is none."""
    try:
        return answer(question)
    except MmccError as refusal:
        return refusal


def certified_bracket(asked: Settings, progress: Progress | None = None) -> Bracket:
    """Both ends by the best method there is: exactly what the command line prints."""
    check_size(asked)
    return mmcc.bracket(
        asked.build_strategy(),
        asked.build_scheme(),
        sigma=asked.sigma,
        delta=asked.delta,
        method=asked.method,
        progress=progress,
    )


def certified_noise(question: NoiseQuestion, progress: Progress | None = None) -> Guarantee:
    """The noise that certifies the epsilon."""
    asked = question.asked
    check_size(asked)
    return mmcc.sigma(
        asked.build_strategy(),
        asked.build_scheme(),
        epsilon=question.epsilon,
        delta=asked.delta,
        method=asked.method,
        progress=progress,
    )


def certified_lower(asked: Settings) -> float:
    """A number that no method can undercut; 0 if nothing is known."""
    check_size(asked)
    problem = Problem(asked.build_strategy(), asked.build_scheme(), asked.sigma)
    return lower_epsilon(problem, asked.delta)


@lru_cache(maxsize=1024)
def unamplified_epsilon(asked: Settings) -> float | None:
    """Certified epsilon that makes no use of sampling: the worst participation allowed."""
    return _without_amplification(asked, asked.build_scheme())


@lru_cache(maxsize=1024)
def one_pass_epsilon(asked: Settings) -> float | None:
    """Certified epsilon of as many epochs in a fixed order, without sampling."""
    ordered = in_fixed_order(asked.build_scheme(), asked.steps)
    return None if ordered is None else _without_amplification(asked, ordered)


def _without_amplification(asked: Settings, scheme: Scheme) -> float | None:
    check_size(asked)
    strategy = asked.build_strategy()
    try:
        found = mmcc.epsilon(
            strategy,
            scheme,
            sigma=asked.sigma,
            delta=asked.delta,
            method=PLAIN.name,
        )
    except MmccError:  # the bracket has its own answer, and its own message
        return None
    return found.epsilon


@lru_cache(maxsize=256)
def prefix_errors(asked: Settings) -> Errors:
    """Errors of prefix sums with this noise."""
    check_size(asked)
    strategy, sigma = asked.build_strategy(), asked.sigma
    return Errors(
        steps=utility.step_errors(strategy, sigma),
        rmse=utility.rmse(strategy, sigma),
        largest=utility.max_error(strategy, sigma),
    )


def picture(asked: Settings) -> FloatArray:
    """The first rows and columns of C."""
    check_size(asked)
    strategy = asked.build_strategy()
    return strategy.prefix(min(strategy.steps, PICTURED)).to_dense()


def noise_levels(asked: Settings) -> list[float]:
    """The sigmas of the curve, in increasing order; the chosen one is among them."""
    middle = math.log2(asked.sigma)
    first = math.ceil((middle - OCTAVES) * PER_OCTAVE)
    last = math.floor((middle + OCTAVES) * PER_OCTAVE)
    fixed = (float(f"{2 ** (k / PER_OCTAVE):.4g}") for k in range(first, last + 1))
    apart = (level for level in fixed if abs(math.log2(level) - middle) > 0.1 / PER_OCTAVE)
    return sorted({asked.sigma, *apart})


def questions(asked: Settings) -> list[Question]:
    """Lower ends where they are cheap, then brackets; the chosen noise first, then the nearest."""
    levels = noise_levels(asked)
    levels.sort(key=lambda sigma: (abs(math.log(sigma / asked.sigma)), -sigma))
    mechanisms = [asked.at(sigma) for sigma in levels]
    # With independent rounds the lower end is one direction's loss; otherwise both ends come from
    # one analysis.
    directed = asked.proven and asked.build_scheme().rounds(asked.steps) is not None
    if asked.steps > LARGEST:
        return [BracketQuestion(asked, lower_only=True)] if directed else []
    cheap = mechanisms if asked.strategy != IDENTITY.name and directed else []
    return [
        *(BracketQuestion(mechanism, lower_only=True) for mechanism in cheap),
        *(BracketQuestion(mechanism) for mechanism in mechanisms),
    ]
