"""What the accounting returns: proofs with everything they assume, and estimates."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mmcc import _html
from mmcc._methods import TIGHT
from mmcc.accounting._in_words import REMEDIES, between
from mmcc.accounting._in_words import rounded_down as rounded_down
from mmcc.accounting._in_words import rounded_up as rounded_up
from mmcc.errors import MethodError

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure

    from mmcc.accounting._privacy_curve import PrivacyCurve

ADJACENCY = "zero-out: the larger of remove and add"
CERTIFIED, VERIFIED = "certified", "verified"
"""The two kinds of guarantees: proven, and verified by a simulation that may err."""


def adjacency_of(group_size: int) -> str:
    """Which data sets are neighbours, in words."""
    if group_size == 1:
        return ADJACENCY
    return f"zero-out of {group_size} examples at once: the larger of remove and add"


FLOOR = 1e-12
"""The delta that a guarantee expressed by mu alone may leave uncovered."""


class Details(Mapping[str, Any]):
    """A read-only mapping; entries in `later` are computed when first accessed."""

    def __init__(
        self, known: Mapping[str, Any], later: Mapping[str, Callable[[], Any]] | None = None
    ) -> None:
        self._known = dict(known)
        self._later = dict(later or {})

    def extended(self, more: Mapping[str, Any]) -> Details:
        """A copy with more entries, which replace those of the same name."""
        return Details({**self._known, **more}, self._later)

    def __getitem__(self, key: str) -> Any:
        if key in self._later:
            self._known[key] = self._later.pop(key)()
        return self._known[key]

    def __iter__(self) -> Iterator[str]:
        return iter((*self._known, *self._later))

    def __len__(self) -> int:
        return len(self._known) + len(self._later)

    def __repr__(self) -> str:
        return repr(self._known)

    def __reduce__(self) -> tuple[type[Details], tuple[dict[str, Any]]]:
        return Details, (dict(self),)


@dataclass(frozen=True, slots=True)
class Guarantee:
    """(epsilon, delta)-differential privacy, certified or verified according to `kind`.

    Certified means proven.  Verified means shown by a simulation (`mmcc.verify`), which is wrong
    with a chance of at most `failure`; that chance is part of delta.

    A matrix mechanism releases C x + z, with z ~ N(0, sigma^2) in units of the clip norm and
    examples sampled by `sampling`; adjacency is zero-out (one example's contribution is replaced by
    zero, or the other way round).  If `adaptive`, inputs may depend on everything released before
    them.  With a `group_size`, the contributions of any that many examples are replaced at once.
    """

    epsilon: float
    delta: float
    sigma: float
    method: str
    strategy: str
    sampling: str
    adaptive: bool
    bound: str
    """The certified bound that gave the number."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """How the number was obtained; entries marked 'neither bound' are diagnostics."""
    adjacency: str = ADJACENCY
    setting: str = ""
    """What is assumed about the other examples; empty if nothing."""
    group_size: int = 1
    """The number of examples that are protected together."""
    curve: PrivacyCurve | None = field(default=None, repr=False, compare=False)
    """The privacy curve, for other units; None if the mechanism is not available."""
    kind: str = CERTIFIED
    """`CERTIFIED` or `VERIFIED`."""
    failure: float = 0.0
    """The chance of a wrong verdict, which is part of delta; 0 if certified."""
    column_norm: float | None = None
    """The largest norm of a column of C: the sensitivity to one participation, in clip norms.

    None if the mechanism is not available.
    """

    def __post_init__(self) -> None:
        if not isinstance(self.details, Details):
            object.__setattr__(self, "details", Details(self.details))
        if (self.kind, self.failure > 0) not in ((CERTIFIED, False), (VERIFIED, True)):
            raise MethodError(
                f"a guarantee must be {CERTIFIED!r}, or {VERIFIED!r} with a chance of failure, not "
                f"{self.kind!r} with {self.failure!r}."
            )

    @property
    def noise_multiplier(self) -> float | None:
        """Sigma over the sensitivity to one participation, as other libraries define it."""
        return None if self.column_norm is None else self.sigma / self.column_norm

    @property
    def basis(self) -> str:
        """What the guarantee rests on, in a sentence."""
        if self.kind == CERTIFIED:
            return f"certified by {self.bound}"
        return (
            f"verified by simulation; the chance of a wrong verdict, {self.failure:g}, is part of "
            "delta"
        )

    def gdp(self, floor: float = FLOOR) -> float:
        """Certified mu of Gaussian differential privacy, up to a delta of `floor`.

        Delta at every epsilon is at most that of the Gaussian mechanism with this mu plus `floor`.
        With `floor=0` it is the mu without amplification, which is the smallest possible if an
        example may take part in every step.
        """
        return self._curve().gdp(floor)

    def zcdp(self) -> float:
        """Certified rho of zero-concentrated differential privacy, without amplification."""
        return self._curve().zcdp()

    def true_positive_rate(self, false_positive_rate: float) -> float:
        """Certified upper bound on the true positive rate of a membership attack.

        The attack mistakes an example that did not take part for one that did at most at the given
        rate; the bound also holds with the two roles exchanged.
        """
        return self._curve().power(false_positive_rate)

    def advantage(self) -> float:
        """Certified upper bound on an attack's true minus its false positive rate."""
        return self._curve().advantage()

    def epsilon_at(self, delta: float) -> float:
        """The certified epsilon of the same mechanism at another delta."""
        return self._curve().epsilon(delta)

    def _curve(self) -> PrivacyCurve:
        if self.curve is None:
            raise MethodError(
                "this guarantee is a pair of numbers without its mechanism (read from a file, "
                "unpickled, verified, or from mmcc.mixtures), so no other unit can be computed; "
                "call mmcc.epsilon on the mechanism and ask its result."
            )
        return self.curve

    @property
    def _asked(self) -> str:
        """The name of the number that was computed, for which `details` may have a lower end."""
        return next((n for n in ("sigma", "delta") if f"{n}_lower" in self.details), "epsilon")

    def truth(self, asked: str | None = None) -> str:
        """Where the true number lies, in words, and what would close the gap if it is wide.

        Empty if only a single bound was asked, since then there is no lower end.
        """
        name = asked or self._asked
        if self.method != TIGHT or self.kind != CERTIFIED:
            return ""
        lower = self.details.get(f"{name}_lower", 0.0)
        return between(lower, getattr(self, name), name, self.details.get(REMEDIES, ()))

    def noise_in_words(self) -> str:
        """Sigma and the noise multiplier, rounded up."""
        text = f"{rounded_up(self.sigma)} clip norms"
        if self.noise_multiplier is None:
            return text
        return f"{text}; noise multiplier {rounded_up(self.noise_multiplier)}"

    def _repr_html_(self) -> str:
        """An HTML table, for notebooks."""
        truth = self.truth()
        rows = [
            ("epsilon", rounded_up(self.epsilon)),
            *([("truth", truth)] if truth else []),
            ("delta", rounded_up(self.delta)),
            ("sigma", self.noise_in_words()),
            ("strategy", self.strategy),
            ("sampling", self.sampling),
            ("adjacency", self.adjacency),
            ("inputs", "adaptive" if self.adaptive else "non-adaptive only"),
            *([("setting", self.setting)] if self.setting else []),
            ("basis", self.basis),
        ]
        return _html.table(rows, strong="epsilon")

    def __str__(self) -> str:
        inputs = "adaptive inputs" if self.adaptive else "non-adaptive inputs only"
        pair = f"({rounded_up(self.epsilon)}, {rounded_up(self.delta)})"
        return (
            f"{pair}-DP, {self.basis}; "
            f"sigma {rounded_up(self.sigma)}, {self.strategy}, {self.sampling}, {inputs}, "
            f"{self.adjacency}{', in ' * bool(self.setting)}{self.setting}"
        )

    def to_dict(self) -> dict[str, Any]:
        """All fields, ready for JSON."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "sigma": self.sigma,
            "noise_multiplier": self.noise_multiplier,
            "column_norm": self.column_norm,
            "method": self.method,
            "bound": self.bound,
            "strategy": self.strategy,
            "sampling": self.sampling,
            "adjacency": self.adjacency,
            "group_size": self.group_size,
            "adaptive": self.adaptive,
            "setting": self.setting,
            "kind": self.kind,
            "failure": self.failure,
            "certified": self.kind == CERTIFIED,
            "details": dict(self.details),
        }


def assumes_more(asked: Guarantee, found: Guarantee) -> bool:
    """Whether `asked` assumes more than `found`, so that it may fail where `found` holds.

    Which bound is the smallest depends on epsilon: under Shuffle one guarantee may be unamplified,
    for adaptive inputs, and the next amplified, for the 0-1 setting only.
    """
    elsewhere = asked.setting not in ("", found.setting)
    others = (asked.adjacency, asked.group_size) != (found.adjacency, found.group_size)
    less_sure = asked.failure > found.failure
    return elsewhere or others or less_sure or asked.adaptive < found.adaptive


@dataclass(frozen=True, slots=True)
class Bracket:
    """Two certified numbers: lower <= true epsilon <= upper, at `guarantee.delta`.

    The true epsilon is that of the mechanism on its worst inputs; no method can prove less than
    `lower`.
    """

    lower: float
    guarantee: Guarantee
    """The guarantee that certifies the upper end, with everything it assumes."""
    estimate: Estimate | None = None
    """A Monte Carlo estimate, if it was asked for; not certified."""
    verified: Guarantee | None = None
    """A verified guarantee, if asked for and passed; its chance of error is part of delta."""
    refused: str | None = None
    """Why verification failed, if it was asked for, and what the simulation suggests instead."""

    def __post_init__(self) -> None:
        right = self.guarantee.kind == CERTIFIED
        if not right or (self.verified is not None and self.verified.kind != VERIFIED):
            raise MethodError(
                "the ends of a bracket must be certified, and `verified` must be a verified "
                "guarantee."
            )
        if self.verified is not None and self.refused is not None:
            raise MethodError(
                "a verdict passed or was refused: give `verified` or `refused`, not both."
            )

    @property
    def upper(self) -> float:
        """The certified upper end: the mechanism is (upper, delta)-differentially private."""
        return self.guarantee.epsilon

    @property
    def method(self) -> str:
        """The certified bound that gave the upper end."""
        return self.guarantee.bound

    @property
    def ratio(self) -> float:
        """Upper over lower: the largest factor that the proof may lose; 1 if both are 0."""
        if self.upper == 0:
            return 1.0
        return self.upper / self.lower if self.lower > 0 else math.inf

    @property
    def truth(self) -> str:
        """Where the true epsilon lies, in words, and what would close the gap if it is wide."""
        remedies = self.guarantee.details.get(REMEDIES, ())
        return between(self.lower, self.upper, "epsilon", remedies)

    def plot(self, file: str | Path | None = None) -> Figure:
        """Plot epsilon against sigma for every bound that applies, from half to twice the noise.

        This takes a while, because every point is certified.  Needs matplotlib.
        """
        from mmcc.plots import epsilon_against_sigma

        found, problem = self.guarantee, self.guarantee._curve().problem
        return epsilon_against_sigma(
            problem.strategy, problem.scheme, sigma=found.sigma, delta=found.delta, file=file
        )

    def _repr_html_(self) -> str:
        """An HTML table, for notebooks."""
        beside = [
            *([("estimate", f"{self.estimate.epsilon:.4g}", "nothing")] if self.estimate else []),
            *(
                [("verified", rounded_up(self.verified.epsilon), self.verified.basis)]
                if self.verified
                else []
            ),
            *([("verified", "refused", self.refused)] if self.refused else []),
        ]
        rows = [
            ("lower", rounded_down(self.lower), "no method can prove less"),
            *beside,
            ("upper", rounded_up(self.upper), self.method),
        ]
        ends = _html.table(rows, ("epsilon", "", "certified by"))
        found = self.guarantee
        facts = [
            ("truth", self.truth),
            ("delta", rounded_up(found.delta)),
            ("sigma", found.noise_in_words()),
            ("strategy", found.strategy),
            ("sampling", found.sampling),
            ("adjacency", found.adjacency),
        ]
        return f"{ends}\n{_html.table(facts)}"

    def __str__(self) -> str:
        ends = f"[{rounded_down(self.lower)}, {rounded_up(self.upper)}]"
        text = f"epsilon in {ends}, both certified; upper end: {self.guarantee}"
        text = f"{text}; beside it: {self.verified}" if self.verified else text
        text = f"{text}; nothing is verified beside it: {self.refused}" if self.refused else text
        return f"{text}; {self.estimate}" if self.estimate else text

    def to_dict(self) -> dict[str, Any]:
        """All fields, ready for JSON."""
        return {
            **self.guarantee.to_dict(),
            "method": self.method,
            "lower": self.lower,
            "upper": self.upper,
            "estimate": self.estimate.to_dict() if self.estimate else None,
            "verified": self.verified.to_dict() if self.verified else None,
            "refused": self.refused,
        }


@dataclass(frozen=True, slots=True)
class Estimate:
    """Epsilon by simulation: low <= true epsilon <= high with the given confidence.  Not a proof.

    The true epsilon is that of the mechanism for fixed inputs, all of clip norm one in the same
    direction; adjacency is zero-out, the larger of both directions.
    """

    epsilon: float
    low: float
    high: float
    confidence: float
    samples: int
    """The number of simulated outputs."""
    effective: float
    """The effective sample size: the number of equally weighted outputs they are worth."""
    delta: float
    sigma: float
    method: str
    """How the likelihood ratio was computed."""
    strategy: str
    sampling: str
    seed: int
    setting: str = ""
    """What the number assumes beyond the scheme itself."""
    adjacency: str = ADJACENCY

    def __str__(self) -> str:
        ends = f"[{rounded_down(self.low)}, {rounded_up(self.high)}]"
        setting = f"; {self.setting}" if self.setting else ""
        return (
            f"epsilon about {self.epsilon:.4g}, in {ends} with confidence {self.confidence:g}: "
            f"an estimate from {self.samples} simulated outputs, not a proof; "
            f"delta {self.delta:g}, sigma {self.sigma:g}, {self.strategy}, {self.sampling}, "
            f"{self.method}, {self.adjacency}{setting}"
        )

    def to_dict(self) -> dict[str, Any]:
        """All fields, ready for JSON."""
        return {
            "epsilon": self.epsilon,
            "low": self.low,
            "high": self.high,
            "confidence": self.confidence,
            "samples": self.samples,
            "effective": self.effective,
            "delta": self.delta,
            "sigma": self.sigma,
            "method": self.method,
            "strategy": self.strategy,
            "sampling": self.sampling,
            "seed": self.seed,
            "setting": self.setting,
            "adjacency": self.adjacency,
            "certified": False,
        }
