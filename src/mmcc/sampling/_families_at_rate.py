"""Sampling schemes that share one rate, the expected share of the examples in a batch.

In: schemes, or words for them.  Out: their rate, and families of schemes to choose the best from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mmcc.errors import SamplingError, real, shown, suggestion, whole
from mmcc.sampling._balls_in_bins import BallsInBins
from mmcc.sampling._cyclic_poisson import CyclicPoisson
from mmcc.sampling._min_separation import MinSeparation
from mmcc.sampling._participations import MAX_STEPS
from mmcc.sampling._poisson import Poisson
from mmcc.sampling._random_allocation import RandomAllocation
from mmcc.sampling._registry import COMPARED, CYCLIC, FIXED_ORDER, SCHEMES, SEPARATED
from mmcc.sampling._scheme import Scheme
from mmcc.sampling._shuffle import Shuffle

SAME_RATE = 1e-6
"""Rates that differ by no more than this, relatively, count as equal."""
MOST_EXAMPLES, MOST_EPOCHS = 10**9, 10**9
MOST_DIGITS = 18
"""Most digits of the number after a colon; Python refuses to parse thousands of them."""


@dataclass(frozen=True, slots=True)
class Family:
    """Schemes of one kind and rate; a table shows the one that needs the least noise."""

    name: str
    schemes: tuple[Scheme, ...]


def family_of(given: object) -> Family:
    """The family that a user's argument means: one scheme, or several to choose the best from."""
    schemes = tuple(given) if isinstance(given, Sequence) and not isinstance(given, str) else given
    if not isinstance(schemes, tuple):
        schemes = (schemes,)
    for scheme in schemes:
        if not isinstance(scheme, Scheme):
            names = ", ".join(entry.class_name for entry in SCHEMES.values())
            raise SamplingError(
                f"samplings must come from mmcc.sampling ({names}), or be lists of such schemes "
                f"from which the best one is chosen; got {scheme!r}."
            )
    if not schemes:
        raise SamplingError("an empty list of schemes has no best one; leave it out.")
    return Family("/".join(dict.fromkeys(_label(scheme) for scheme in schemes)), schemes)


def _label(scheme: Scheme) -> str:
    """The name of a scheme; cyclic sampling with probability 1 is called a fixed order."""
    certain = isinstance(scheme, CyclicPoisson) and scheme.probability == 1
    return FIXED_ORDER if certain else scheme.name


def common_rate(families: Sequence[Family], steps: int) -> float:
    """The rate that all schemes share; an error if they differ, as no comparison is fair then."""
    rates = {scheme: scheme.rate(steps) for family in families for scheme in family.schemes}
    first, rate = next(iter(rates.items()))
    for scheme, other in rates.items():
        if not abs(other - rate) <= SAME_RATE * rate:
            raise SamplingError(
                f"{first!r} has batches of {rate:g} of the examples but {scheme!r} has {other:g}: "
                "only schemes with the same rate can be compared. Change a probability, or ask "
                "for two tables."
            )
    return rate


def family(word: str, rate: float, steps: int) -> Family:
    """The schemes that a word of the command line stands for at a given rate.

    `cyclic-poisson` is all of `separations(...)`, `cyclic-poisson:8` a single one; `fixed-order` is
    cyclic Poisson sampling with probability 1, which amplifies nothing.
    """
    rate, steps = real("rate", rate, 0, 1, closed="h"), whole("steps", steps, 1, MAX_STEPS)
    if word == "poisson":
        return Family(word, (Poisson(rate),))
    if word == CYCLIC:
        several = tuple(CyclicPoisson(b * rate, b) for b in separations(rate, steps))
        if not several:
            raise SamplingError(
                f"rate {rate:g} leaves no separation of 2 or more steps with a chance below 1; "
                f"leave {CYCLIC} out."
            )
        return Family(word, several)
    name = word.partition(":")[0]
    if name in (SEPARATED, CYCLIC):
        separation = _separation(word, rate, steps)
        if name == CYCLIC:
            return Family(word, (CyclicPoisson(min(1.0, separation * rate), separation),))
        chance = min(1.0, rate / (1 - rate * (separation - 1)))
        return Family(word, (MinSeparation(chance, separation),))
    if word not in COMPARED:
        raise SamplingError(f"unknown scheme {word!r}; {suggestion(word, COMPARED)}")
    length = epoch(rate, steps)
    if length is None:
        raise SamplingError(
            f"{word} needs epochs of 1 / rate = {1 / rate:g} steps, a whole number that divides "
            f"the {steps} steps. Change the rate or the steps, or leave {word} out."
        )
    if word == "balls-in-bins":
        return Family(word, (BallsInBins(length),))
    if word == "random-allocation":
        return Family(word, (RandomAllocation(length),))
    if word == FIXED_ORDER:
        return Family(word, (CyclicPoisson(1, length),))
    return Family(word, (Shuffle(length),))


def _separation(word: str, rate: float, steps: int) -> int:
    """The separation after the colon, checked to allow `rate`."""
    name, _, size = word.partition(":")
    if not (size.isascii() and size.isdigit() and len(size) <= MOST_DIGITS):
        raise SamplingError(f"{shown(word)}: {name} needs a separation, such as {name}:4.")
    separation = whole("separation", int(size), 1, steps)
    if separation * rate > 1 + SAME_RATE:
        raise SamplingError(
            f"with a separation of {separation} steps no batch holds {rate:g} of the examples in "
            f"the long run; use {name}:{int((1 + SAME_RATE) / rate)} or less."
        )
    return separation


def default_words(rate: float, steps: int) -> tuple[str, ...]:
    """Words for the schemes that amplify and are possible at this rate."""
    cyclic = ("cyclic-poisson",) if separations(rate, steps) else ()
    bins = ("balls-in-bins",) if epoch(rate, steps) else ()
    return ("poisson", *cyclic, *bins)


def epoch(rate: float, steps: int) -> int | None:
    """Steps in an epoch in which every example takes part once; None if epochs do not fit."""
    length = round(min(1 / rate, 2.0 * steps))  # a longer epoch does not fit, and may be infinite
    fits = abs(length * rate - 1) <= SAME_RATE and steps % length == 0
    return length if fits else None


def in_fixed_order(scheme: Scheme, steps: int) -> Scheme | None:
    """The same number of epochs in a fixed order: shows what giving up sampling costs.

    At rate p an example is expected to take part p * steps times; in the fixed order it takes part
    once in every round(1 / p) steps, and at least once.  None if the scheme has no rate.
    """
    if not scheme.random:
        return None
    rate = scheme.rate(steps)
    return CyclicPoisson(1, max(1, min(steps, round(1 / max(rate, 0.5 / steps)))))


def run_length(examples: int, batch_size: int, epochs: float) -> tuple[int, int]:
    """Steps of the whole run and of one epoch, with as many batches as an ordinary data loader.

    The rate is 1 / (steps of an epoch), so a batch is expected to hold at most `batch_size`
    examples.
    """
    examples = whole("examples", examples, 1, MOST_EXAMPLES)
    batch_size = whole("batch_size", batch_size, 1, examples)
    epochs = real("epochs", epochs, 0, MOST_EPOCHS)
    length = -(-examples // batch_size)
    steps = math.ceil(epochs * length * (1 - 1e-12))
    return whole("the number of steps", steps, 1, MAX_STEPS), length


def separations(rate: float, steps: int) -> tuple[int, ...]:
    """Separations to try for cyclic Poisson sampling: powers of two and two fractions of the epoch.

    They are the powers of two, and 1/2 and 3/4 of the longest epoch, from 2 up to the last value
    that leaves a chance below 1 in a round.  Separation 1 is Poisson sampling, and chance 1 is a
    fixed order.
    """
    rate, steps = real("rate", rate, 0, 1, closed="h"), whole("steps", steps, 1, MAX_STEPS)
    longest = min(1 / rate, float(steps))
    powers = [2**k for k in range(1, math.ceil(math.log2(longest)) + 1)]
    found = {*powers, round(longest / 2), round(3 * longest / 4)}
    return tuple(sorted(b for b in found if b >= 2 and b * rate < 1 - SAME_RATE and b <= steps))
