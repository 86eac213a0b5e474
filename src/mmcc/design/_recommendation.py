"""What `recommend` returns: a mechanism to train with, DP-SGD beside it, and how to use it.

In: offers, each certified for the same target.  Out: text, JSON, a command and Python.
Rounding: in print sigmas and errors go up, savings go down.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mmcc._written import Written, typed, written_scheme, written_strategy
from mmcc.accounting._guarantee import ADJACENCY, CERTIFIED, Guarantee
from mmcc.design._comparison import BASELINE
from mmcc.sampling import Scheme
from mmcc.strategies._base import Strategy

DIGITS = 4


@dataclass(frozen=True, slots=True)
class Offer:
    """A mechanism that reaches the target, certified, and its error there."""

    strategy: Strategy
    sampling: Scheme
    guarantee: Guarantee
    error: float
    """Root mean squared error of the workload, in units of the clip norm."""
    memory: int
    """Noise vectors held at once in training, the new one included."""

    @property
    def sigma(self) -> float:
        """Certified: the noise level in units of the clip norm."""
        return self.guarantee.sigma

    @property
    def sampled(self) -> str:
        """Who takes part when, and what is easily mistaken for it."""
        return f"{self.sampling.words(self.strategy.steps)} {self.sampling.caution}"

    def __str__(self) -> str:
        return f"{self.strategy!r}, {self.sampling!r}"

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return {
            "strategy": repr(self.strategy),
            "sampling": repr(self.sampling),
            "sigma": self.sigma,
            "error": self.error,
            "memory": self.memory,
            "guarantee": self.guarantee.to_dict(),
        }


@dataclass(frozen=True)
class Recommendation:
    """The mechanism with the least error among those looked at; DP-SGD itself if nothing beats it.

    All offers hold the same certified (epsilon, delta).  That no other mechanism is better is not
    claimed.
    """

    examples: int
    batch_size: int
    """As it was given: an epoch has ceil(examples / batch_size) steps."""
    epochs: float
    steps_per_epoch: int
    epsilon: float
    delta: float
    workload: str
    """What the error is of, in words."""
    baseline: Offer
    """DP-SGD: independent noise, Poisson sampling at the same rate."""
    offers: tuple[Offer, ...]
    """All others that were calibrated, the least error first."""
    evaluations: int
    """Strategies whose noise was looked for in the search."""
    cut_short: bool
    """Whether time was up before everything had been looked at."""
    seconds: float
    remembered: bool = False
    """Whether it was found before, in another run, and certified again now."""

    @property
    def steps(self) -> int:
        """Of all epochs."""
        return self.baseline.strategy.steps

    @property
    def wins(self) -> bool:
        """Whether anything has less error than DP-SGD at the same certified guarantee."""
        return bool(self.offers) and self.offers[0].error < self.baseline.error

    @property
    def best(self) -> Offer:
        """What to train with."""
        return self.offers[0] if self.wins else self.baseline

    @property
    def runner_up(self) -> Offer | None:
        """The next best that differs in more than its tuning; None where DP-SGD is all there is."""
        kind = (type(self.best.strategy), type(self.best.sampling))
        others = (*self.offers, self.baseline)
        ranked = sorted(others, key=lambda offer: offer.error)
        unlike = [one for one in ranked if (type(one.strategy), type(one.sampling)) != kind]
        return unlike[0] if unlike else None

    @property
    def strategy(self) -> Strategy:
        """Of the best offer."""
        return self.best.strategy

    @property
    def sampling(self) -> Scheme:
        """Of the best offer."""
        return self.best.sampling

    @property
    def sigma(self) -> float:
        """Certified: the noise of the best offer, in units of the clip norm."""
        return self.best.sigma

    @property
    def guarantee(self) -> Guarantee:
        """Of the best offer: certified."""
        return self.best.guarantee

    def saving(self, offer: Offer) -> float:
        """By which part the error of an offer is below that of DP-SGD; negative where it is not."""
        return 1 - offer.error / self.baseline.error

    @cached_property
    def _written(self) -> tuple[Written, Written]:
        return written_strategy(self.strategy, None), written_scheme(self.sampling)

    @property
    def command(self) -> str:
        """A line for a shell that certifies the recommended mechanism anew."""
        strategy, scheme = self._written
        numbers = ["--sigma", repr(self.sigma), "--delta", repr(self.delta)]
        return typed(["mmcc", "epsilon", *strategy.options, *scheme.options, *numbers])

    @property
    def python(self) -> str:
        """Python that trains with it: arguments of `mmcc.training.make_private`."""
        strategy, scheme = self._written
        return (
            f"make_private(module, optimizer, loader, strategy={strategy.python}, "
            f"sampling={scheme.python}, sigma={self.sigma!r}, delta={self.delta!r}, "
            "max_grad_norm=...)"
        )

    def __str__(self) -> str:
        rows = list(self.facts().items())
        width = max(len(name) for name, _ in rows) + 2
        return "\n".join(f"{name:<{width}}{value}" for name, value in rows)

    def facts(self) -> Mapping[str, str]:
        """The recommendation in words, line by line."""
        best, other = self.best, self.runner_up
        found = {
            "recommended": str(best) if self.wins else f"{BASELINE}: {best}",
            "sigma": f"{best.guarantee.noise_in_words()}; {CERTIFIED} by {best.guarantee.bound}",
            "guarantee": f"epsilon {self.epsilon:g} at delta {self.delta:g}, {ADJACENCY}",
            "error": self._error_in_words(),
        }
        if other is not None:
            found["runner-up"] = f"{other}: {_up(other.error)}"
        found |= {
            "run": f"{self.steps} steps, {self.epochs:g} epochs of {self.steps_per_epoch}; "
            f"{self.examples} examples, {self.baseline.sampling.rate(self.steps):.3g} of them in a "
            "batch on average",
            "memory": f"{best.memory} noise vector{'s' if best.memory > 1 else ''}",
            "loader": best.sampled,
            "command": self.command,
            "python": self.python,
        }
        note = self._written[0].note
        if note:
            found["file"] = note
        if self.remembered:
            found["note"] = "found before, and certified again now (MMCC_CACHE=off: search again)"
        elif self.cut_short:
            found["note"] = "time was up before everything had been looked at; allow more seconds"
        return found

    def _error_in_words(self) -> str:
        rmse = f"RMSE of {self.workload} {_up(self.best.error)} clip norms"
        if not self.wins:
            return f"{rmse}; nothing that was tried has less at this guarantee"
        return (
            f"{rmse}, {_saved(self.saving(self.best))} less than {BASELINE}'s "
            f"{_up(self.baseline.error)} at the same certified guarantee"
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        other = self.runner_up
        return {
            "examples": self.examples,
            "batch_size": self.batch_size,
            "epochs": self.epochs,
            "steps": self.steps,
            "steps_per_epoch": self.steps_per_epoch,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "adjacency": ADJACENCY,
            "workload": self.workload,
            "wins": self.wins,
            "saving": self.saving(self.best),
            "sigma": self.sigma,
            "method": self.guarantee.method,
            "strategy": repr(self.strategy),
            "sampling": repr(self.sampling),
            "best": self.best.to_dict(),
            "baseline": self.baseline.to_dict(),
            "runner_up": other.to_dict() if other is not None else None,
            "offers": [offer.to_dict() for offer in self.offers],
            "loader": self.best.sampled,
            "command": self.command,
            "python": self.python,
            "evaluations": self.evaluations,
            "cut_short": self.cut_short,
            "remembered": self.remembered,
            "seconds": round(self.seconds, 3),
        }


def _up(error: float) -> str:
    """A few digits, not below the error."""
    unit = 10.0 ** (math.floor(math.log10(error)) - DIGITS + 1)
    return f"{math.ceil(error / unit - 1e-9) * unit:.{DIGITS}g}"


def _saved(share: float) -> str:
    """A share in per cent, not above it."""
    return f"{math.floor(1000 * share) / 10:.1f} %"
