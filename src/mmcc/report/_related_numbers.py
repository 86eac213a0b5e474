"""Numbers reported beside the headline: without sampling, DP-SGD's error, groups, attacks.

In: a guarantee with its mechanism, and certified points of its curve.  Out: facts and rows of text.
Rounding: epsilons, sigmas and rates of attacks upwards; errors of prefix sums are plain floating
point, and not part of the guarantee.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mmcc._methods import TIGHT
from mmcc.accounting._bounds import PLAIN
from mmcc.accounting._guarantee import rounded_up
from mmcc.errors import MmccError
from mmcc.report._facts import Dot, Fact
from mmcc.sampling import Scheme
from mmcc.sampling._registry import identity_of
from mmcc.strategies import identity
from mmcc.strategies._base import Strategy
from mmcc.strategies._records import strategy_digest
from mmcc.strategies._registry import IDENTITY
from mmcc.utility import rmse

if TYPE_CHECKING:
    from mmcc.accounting._guarantee import Guarantee
    from mmcc.accounting._parallel import Progress

RATES = (1e-3, 1e-2)
"""False positive rates for which bounds on the true positive rate are given."""
MOST_STEPS = 10**5
"""With more steps, DP-SGD's noise is not searched for."""
INFLATED = 1 + 1e-12
"""More than the rounding errors of a few operations."""

Row = tuple[str, str, str]


def beside(
    guarantee: Guarantee,
    strategy: Strategy,
    scheme: Scheme,
    groups: Sequence[int] = (),
    *,
    searched: bool = True,
    progress: Progress | None = None,
) -> tuple[Fact, ...]:
    """Other numbers of the same mechanism; those `searched` for take as long as the headline."""
    options: dict[str, Any] = {"sigma": guarantee.sigma, "delta": guarantee.delta}
    facts = [_plain(strategy, scheme, options | {"group_size": guarantee.group_size})]
    facts += _gaussian(guarantee)
    if searched and guarantee.group_size == 1:
        facts += _errors(guarantee, strategy, scheme, progress)
    for size in groups:
        facts.append(_group(size, strategy, scheme, options | {"progress": progress}))
    return tuple(facts)


def participations(strategy: Strategy, scheme: Scheme) -> tuple[Fact, ...]:
    """How often an example takes part on average, if the scheme samples."""
    try:
        expected = scheme.rate(strategy.steps) * strategy.steps
    except MmccError:
        return ()
    return (Fact("Expected participations of an example", f"{expected:.6g} (epochs)"),)


def noise_multiplier(guarantee: Guarantee, strategy: Strategy) -> Fact:
    """Sigma in the convention of other libraries."""
    norm = strategy.sensitivity(max(strategy.steps, 1))
    if not norm > 0:
        return Fact("Noise multiplier", "without bound: nothing is released of an example")
    value = rounded_up(guarantee.sigma / norm)
    return Fact("Noise multiplier", f"{value} (sigma over the largest column norm of C)")


def mechanism_digest(strategy: Strategy, scheme: Scheme, sigma: float) -> str:
    """What a report, a checkpoint and a ledger share if they are about the same mechanism."""
    return digest_of(strategy_digest(strategy)[:16], identity_of(scheme), repr(sigma))


def digest_of(strategy: str, sampling: str, sigma: str) -> str:
    """The same digest, from the texts in fingerprints."""
    text = "\n".join((strategy, sampling, sigma))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def attacks(dots: Sequence[Dot]) -> tuple[Row, ...]:
    """What an attack can achieve, by the points of the curve: each of them bounds every test.

    A test with false positive rate f has a true positive rate of at most e^eps f + delta, and a
    false negative rate of at least e^-eps (1 - delta - f); its advantage is at most
    (e^eps - 1 + 2 delta) / (e^eps + 1), by adding both inequalities.
    """
    largest = min(map(_advantage, dots))
    rows = [("advantage", rounded_up(largest), "true minus false positive rate, at most")]
    for rate in RATES:
        power = min(_power(dot, rate) for dot in dots)
        name = f"true positive rate at a false positive rate of {rate:g}"
        rows.append((name, rounded_up(power), "share of participants that is found, at most"))
    return tuple(rows)


def _advantage(dot: Dot) -> float:
    small = math.exp(-dot.upper)
    return min((2 * dot.delta * small - math.expm1(-dot.upper)) / (1 + small) * INFLATED, 1.0)


def _power(dot: Dot, rate: float) -> float:
    small = math.exp(-dot.upper)
    right = rate / small + dot.delta if small > 0 else 1.0
    missed = small * (1 - dot.delta - rate) / INFLATED
    return min(right * INFLATED, (1 - missed) * INFLATED, 1.0)


def _plain(strategy: Strategy, scheme: Scheme, options: dict[str, Any]) -> Fact:
    from mmcc.accounting._questions import epsilon

    name = "Without amplification (no use of sampling)"
    try:
        found = epsilon(strategy, scheme, method=PLAIN.name, **options)
    except MmccError as problem:
        return Fact(name, f"nothing is certified: {problem}")
    return Fact(name, f"ε ≤ {rounded_up(found.epsilon)} at the same δ")


def _gaussian(guarantee: Guarantee) -> list[Fact]:
    """Units defined by the whole curve, from bounds that need no sampling."""
    try:
        mu, rho = guarantee.gdp(0), guarantee.zcdp()
    except MmccError:  # only a pair of numbers is known
        return []
    text = f"{rounded_up(mu)}, without amplification"
    zero = f"{rounded_up(rho)}, without amplification"
    return [Fact("Mu of Gaussian DP, at most", text), Fact("Rho of zCDP, at most", zero)]


def _errors(
    guarantee: Guarantee, strategy: Strategy, scheme: Scheme, progress: Progress | None
) -> list[Fact]:
    """RMSE of prefix sums, and that of independent noise with the same guarantee."""
    try:
        ours = rmse(strategy, guarantee.sigma)
    except MmccError:  # no decoder
        return []
    facts = [Fact("Error of prefix sums (RMSE)", f"{ours:.4g} clip norms")]
    name = "DP-SGD's, same sampling and guarantee"
    if repr(strategy).startswith(IDENTITY.name):
        return [*facts, Fact(name, "the same: this is DP-SGD")]
    if strategy.steps > MOST_STEPS:
        return [*facts, Fact(name, f"not computed above {MOST_STEPS:,} steps")]
    try:
        sigma = _noise(guarantee, strategy.steps, scheme, progress)
    except MmccError as problem:
        return [*facts, Fact(name, f"not known: {problem}")]
    theirs = rmse(identity(strategy.steps), sigma)
    change = 100 * (1 - ours / theirs)
    than = f"the error here is {abs(change):.1f} % {'smaller' if change > 0 else 'larger'}"
    text = f"{theirs:.4g} clip norms, with sigma {rounded_up(sigma)}; {than}"
    return [*facts, Fact(name, text)]


def _noise(guarantee: Guarantee, steps: int, scheme: Scheme, progress: Progress | None) -> float:
    from mmcc.accounting._questions import sigma

    asked: dict[str, Any] = {"epsilon": guarantee.epsilon, "delta": guarantee.delta}
    method = guarantee.method if guarantee.method == PLAIN.name else TIGHT
    found = sigma(identity(steps), scheme, method=method, progress=progress, **asked)
    return float(found.sigma)


def _group(size: int, strategy: Strategy, scheme: Scheme, options: dict[str, Any]) -> Fact:
    from mmcc.accounting._questions import epsilon

    name = f"A group of {size}"
    try:
        found = epsilon(strategy, scheme, group_size=size, **options)
    except MmccError as problem:
        return Fact(name, f"nothing is certified: {problem}")
    return Fact(name, f"ε ≤ {rounded_up(found.epsilon)} at the same δ, certified by {found.bound}")
