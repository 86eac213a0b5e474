"""Mixtures of Gaussians beyond matrices: groups, batches of a fixed size, the last iterate.

In: the numbers that describe a run of DP-SGD.  Out: a `Guarantee`, whose details have both
adjacencies and the numbers that follow without this analysis, for comparison.
Rounding: upper bounds.  In each step, a probability that is off by a factor 1 + e moves epsilon by
e and delta by a factor 1 + e; mass that is not listed is taken from delta.  docs/mixtures.md has
the proofs.

>>> group_privacy(4, 2000, 1 / 100, sigma=1.0, delta=1e-5).epsilon < 13.2
True
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from mmcc.accounting._adjacency import Side
from mmcc.accounting._group_lemma import bound_by_even_links, bound_by_links
from mmcc.accounting._guarantee import Guarantee
from mmcc.accounting._losses.distribution import PrivacyLossDistribution
from mmcc.accounting._losses.laws import MixtureLaw
from mmcc.errors import (
    MethodError,
    ParameterError,
    PrecisionError,
    SamplingError,
    real,
    suggestion,
    whole,
)
from mmcc.mixtures._counts import CountLaw, binomial, hypergeometric
from mmcc.pld import MAX_RATIO
from mmcc.sampling import Poisson, Shuffle

MAX_STEPS = MAX_EXAMPLES = 10**12
RARE = 1e-250
SMALLEST_DELTA = 1e-280
SETTINGS = ("any", "0-1")
LINEAR = (
    "linear losses: gradients do not depend on the iterate; equal step sizes, no projection, no "
    "momentum; only the last iterate is released"
)


def group_privacy(
    group: int, steps: int, probability: float, *, sigma: float, delta: float
) -> Guarantee:
    """DP-SGD with Poisson sampling, for `group` examples at once.

    Adjacency is zero-out: the contributions of the whole group are replaced by zero (equivalently,
    here, its examples are removed).  Each step is dominated by a Gaussian mechanism with
    sensitivity Binomial(group, probability).
    """
    group = whole("group", group, 1, MAX_EXAMPLES)
    steps, sigma, delta = _run(steps, sigma, delta)
    scheme = Poisson(probability)
    p = scheme.probability
    whole_group = _Mixture(binomial(group, p, _rare(delta, steps)), 1.0, sigma, steps)
    one = _Mixture(binomial(1, p, RARE), 1.0, sigma, steps)
    return _answer(
        whole_group,
        delta,
        _lemma(one, group, delta),
        sampling=repr(scheme),
        bound=f"sensitivity Binomial({group}, {p:g}) in each step",
        adjacency=f"zero-out of {_examples(group)}: the larger of remove and add",
        group=group,
    )


def fixed_batches(
    examples: int,
    batch: int,
    steps: int,
    *,
    group: int = 1,
    sigma: float,
    delta: float,
    setting: str = "any",
) -> Guarantee:
    """DP-SGD with batches of a fixed size, drawn afresh without replacement in each step.

    Adjacency: `group` of the `examples` are removed, and the batch keeps its size.  A member that
    is drawn takes the place of another example, so the sum moves by up to two clip norms: the
    sensitivity is 2 Hypergeometric(examples, group, batch), whatever the other examples are.

    `setting="0-1"` is the paper's: all other examples contribute nothing, and the sensitivity is
    one clip norm per member.  It is not a guarantee for a run in which the others contribute.
    """
    examples = whole("examples", examples, 1, MAX_EXAMPLES)
    batch = whole("batch", batch, 1, examples)
    group = whole("group", group, 1, examples)
    steps, sigma, delta = _run(steps, sigma, delta)
    if setting not in SETTINGS:
        raise MethodError(f"unknown setting {setting!r}; {suggestion(setting, SETTINGS)}")
    sampling = f"fixed batches of {batch} out of {examples}, without replacement"
    law = hypergeometric(examples, group, batch, _rare(delta, steps))
    listed = f"Hypergeometric({examples}, {group}, {batch}) in each step"
    if setting == "0-1":
        found = _Mixture(law, 1.0, sigma, steps)
        return _answer(
            found,
            delta,
            # The lemma's chain contains other members of the group, which do contribute.
            {"black_box": found.epsilon(delta) if group == 1 else None},
            sampling=sampling,
            bound=f"sensitivity {listed}",
            adjacency=f"zero-out of {_examples(group)}, which keep their places in the batches: "
            "the larger of remove and add",
            setting=Shuffle().setting,
            adaptive=False,
            group=group,
        )
    left = examples - group
    if batch > left:
        raise SamplingError(
            f"without {_examples(group)} only {left} of {examples} are left, too few for a batch "
            f"of {batch}: the neighbouring run does not exist. Use a smaller batch."
        )
    last = _Mixture(hypergeometric(left + 1, 1, batch, RARE), 2.0, sigma, steps)
    return _answer(
        _Mixture(law, 2.0, sigma, steps),
        delta,
        _lemma(last, group, delta),
        sampling=sampling,
        bound=f"sensitivity 2 {listed}",
        adjacency=f"{examples} examples with, {left} without {_examples(group)}, batches of the "
        "same size: the larger of remove and add",
        group=group,
    )


def last_iterate(steps: int, probability: float, *, sigma: float, delta: float) -> Guarantee:
    """DP-SGD with Poisson sampling on linear losses, of which only the last iterate is released.

    This is exactly a Gaussian mechanism with sensitivity Binomial(steps, probability) and variance
    steps sigma^2.  For other losses there is no such proof; see `details["composition"]`, which
    holds for any loss and for all iterates.
    """
    steps, sigma, delta = _run(steps, sigma, delta)
    scheme = Poisson(probability)
    p = scheme.probability
    unit = 1.0 / math.sqrt(steps) * (1 + 2.0**-51)
    found = _Mixture(binomial(steps, p, _rare(delta, 1)), unit, sigma, 1)
    all_iterates = _Mixture(binomial(1, p, RARE), 1.0, sigma, steps)
    return _answer(
        found,
        delta,
        {"composition": all_iterates.epsilon(delta)},
        sampling=repr(scheme),
        bound=f"sensitivity Binomial({steps}, {p:g}), variance {steps} sigma^2, once",
        adjacency="zero-out: the larger of remove and add",
        strategy=f"last iterate of {steps} steps",
        setting=LINEAR,
        adaptive=False,
    )


@dataclass(frozen=True, eq=False, slots=True)
class _Mixture:
    """Sensitivity `unit` times a count, in units of the clip norm; composed `steps` times."""

    law: CountLaw
    unit: float
    sigma: float
    steps: int

    def epsilon(self, delta: float, adjacency: Side = "both") -> float:
        """Certified epsilon, including the errors of the law.

        With p the true and r the listed probabilities, p <= r/(1 - e) and p >= r/(1 + e), each
        for every count that is listed.  Remove: P^n <= R^n/(1-e)^n plus n `beyond`.  Add:
        P^n >= R^n/(1+e)^n.  So epsilon moves by n log(1/(1-e)) <= 2ne, delta by e^(2ne).
        """
        drift = 2 * self.steps * self.law.error
        if not drift <= 1e-3:
            raise PrecisionError(
                f"{self.steps} steps with {self.law.values.size} counts each: round-off of the "
                "probabilities adds up to too much. Use fewer steps or a smaller group."
            )
        left = (delta - self.steps * self.law.beyond * (1 + 1e-9)) * (1 - 2 * drift)
        if not left > SMALLEST_DELTA:
            raise PrecisionError(
                f"delta = {delta:g} is below what floating point can certify here; use a larger "
                "delta."
            )
        return self._distribution().epsilon(left, adjacency) + drift

    def _distribution(self) -> PrivacyLossDistribution:
        largest = float(self.law.values[-1]) * self.unit / self.sigma
        if not largest <= MAX_RATIO:
            raise ParameterError(
                f"a sensitivity of {largest:g} times sigma is not private at any useful epsilon "
                f"(at most {MAX_RATIO:g}). Use a larger sigma or a smaller group."
            )
        shifts = self.law.values * (self.unit / self.sigma) * (1 + 2.0**-50)
        laws = ((MixtureLaw(np.asarray(shifts), self.law.probs), self.steps),)
        return PrivacyLossDistribution(laws, laws)


def _answer(
    found: _Mixture,
    delta: float,
    beside: dict[str, Any],
    *,
    sampling: str,
    bound: str,
    adjacency: str,
    strategy: str = "",
    setting: str = "",
    adaptive: bool = True,
    group: int | None = None,
) -> Guarantee:
    sides = {side: found.epsilon(delta, side) for side in ("remove", "add")}
    return Guarantee(
        epsilon=max(sides.values()),
        delta=delta,
        sigma=found.sigma,
        method="mixture",
        strategy=strategy or f"identity({found.steps})",
        sampling=sampling,
        adaptive=adaptive,
        bound=f"mixture of Gaussians: {bound}",
        details={**({} if group is None else {"group": group}), **sides, **beside},
        adjacency=adjacency,
        setting=setting,
        group_size=1 if group is None else group,
        column_norm=1.0,
    )


def _lemma(one: _Mixture, group: int, delta: float) -> dict[str, float | None]:
    """What one example's guarantee implies for a group: the best lemma, and the usual one."""
    even = bound_by_even_links(one.epsilon, group, delta)
    found = [bound_by_links(one.epsilon, group, delta), even]
    return {
        "black_box": min((bound for bound in found if bound is not None), default=None),
        "black_box_even": even,
    }


def _run(steps: int, sigma: float, delta: float) -> tuple[int, float, float]:
    return (
        whole("steps", steps, 1, MAX_STEPS),
        real("sigma", sigma, 0, 1e12),
        real("delta", delta, 0, 1),
    )


def _rare(delta: float, steps: int) -> float:
    """The mass that may be left out of a law, negligible beside delta."""
    return max(min(1e-10 * delta / steps, 1e-18), RARE)


def _examples(group: int) -> str:
    return "one example" if group == 1 else f"{group} examples"
