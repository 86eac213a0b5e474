"""The report of a mechanism: strategy, sampling scheme, noise level, delta.

In: the arguments of `mmcc.epsilon`.  Out: a `Report`, or the error that `mmcc.epsilon` raises.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import mmcc
from mmcc._methods import TIGHT
from mmcc._written import typed, written_scheme, written_strategy
from mmcc.errors import ParameterError, real, whole
from mmcc.report._facts import UNIT, Assumption, Claim, Dot, Fact, Report, Reproduction
from mmcc.report._wording import of_training
from mmcc.sampling import Scheme
from mmcc.strategies._base import Order, Strategy

if TYPE_CHECKING:
    from mmcc.accounting._guarantee import Bracket, Guarantee
    from mmcc.accounting._parallel import Progress

TITLE = "Privacy report"
DIGEST = "Digest of the mechanism"
"""The same name in the reports of a mechanism, of a checkpoint and of a ledger's run."""
LONGEST = 1000
"""The most characters in a title, a unit or a name."""


def of_mechanism(
    strategy: Strategy,
    sampling: Scheme,
    *,
    sigma: float,
    delta: float,
    method: str = TIGHT,
    order: Order | None = None,
    group_size: int = 1,
    title: str | None = None,
    unit: str = UNIT,
    data: str | None = None,
    clip_norm: float | None = None,
    file: str | None = None,
    seconds: float | None = None,
    units: bool = False,
    groups: Sequence[int] = (),
    verified: Guarantee | None = None,
    model: str | None = None,
    commit: str | None = None,
    author: str | None = None,
    tuning: str | None = None,
    progress: Progress | None = None,
) -> Report:
    """The report of a mechanism; mechanisms without a proof are refused as by `mmcc.epsilon`.

    `unit` is what the training treats as one example, `data` the name of the data set, `file` the
    file that holds the strategy.  `seconds=0` leaves out what takes longest, the curve and DP-SGD's
    noise; other values have no effect.  `group_size` units are protected together, and `groups` are
    sizes for which epsilon is given beside the headline.  `model`, `commit` and `author` identify
    what the report is about and who is responsible for it, `tuning` describes other runs that were
    made to tune this one.  `units=True` gives the guarantee in other units too, which takes a few
    dozen evaluations.  `verified`, a result of `mmcc.verify` for the same mechanism, is given
    beside the certified number.
    """
    from mmcc.accounting._questions import bracket  # numba takes a second

    clip = None if clip_norm is None else real("clip_norm", clip_norm, 0, 1e30)
    found = bracket(
        strategy,
        sampling,
        sigma=sigma,
        delta=delta,
        method=method,
        order=order,
        group_size=group_size,
        progress=progress,
    )
    if verified is not None:
        found = replace(found, verified=_of_the_same(verified, found.guarantee))
    return described(
        found,
        strategy,
        sampling,
        order=order,
        title=title,
        unit=unit,
        data=data,
        clip_norm=clip,
        file=file,
        subject="a mechanism: all of its steps",
        seconds=seconds,
        units=units,
        groups=groups,
        signed=Signed(model, commit, author, tuning),
        progress=progress,
    )


@dataclass(frozen=True, slots=True)
class Signed:
    """What only the author knows; the report leaves room for what is missing."""

    model: str | None = None
    commit: str | None = None
    author: str | None = None
    tuning: str | None = None

    def facts(self) -> tuple[Fact, ...]:
        """The model, the code, the author, as far as they are given."""
        names = ("model", "commit", "author")
        titles = ("Model", "Code", "Author")
        told = [words(name, getattr(self, name), "") for name in names]
        return tuple(Fact(title, text) for title, text in zip(titles, told, strict=True) if text)


def described(
    found: Bracket,
    strategy: Strategy,
    scheme: Scheme,
    *,
    subject: str,
    title: str | None,
    unit: str,
    data: str | None,
    clip_norm: float | None,
    file: str | None,
    order: Order | None = None,
    seconds: float | None = None,
    units: bool = False,
    groups: Sequence[int] = (),
    signed: Signed = Signed(),
    progress: Progress | None = None,
    facts: Sequence[Fact] = (),
    claims: Sequence[Claim] = (),
    assumptions: Sequence[Assumption] = (),
    notes: Sequence[str] = (),
) -> Report:
    """The report around a bracket; `facts` and the arguments after it are added."""
    from mmcc.accounting._units import units_of
    from mmcc.report._epsilon_curve import dots_around
    from mmcc.report._related_numbers import attacks, beside

    guarantee = found.guarantee
    unit = words("unit", unit, UNIT)
    settings = (guarantee.setting,) if guarantee.setting else ()
    dots: tuple[Dot, ...] = (Dot(guarantee.delta, found.lower, found.upper),)
    missing: tuple[str, ...] = ()
    searched = seconds is None or real("seconds", seconds, 0, 1e9, closed="l") > 0
    if searched:
        dots, missing = dots_around(found, strategy, scheme, order=order, progress=progress)
    sizes = [whole("groups", size, 1, 10**6) for size in groups]
    return Report(
        title=words("title", title, TITLE),
        subject=subject,
        claims=(
            claim(f"All {strategy.steps:,} steps", found),
            *([_verified_claim(strategy.steps, found.verified)] if found.verified else []),
            *claims,
        ),
        facts=(
            *([Fact("Data", words("data", data, ""))] if data else []),
            *_mechanism_facts(guarantee, strategy, scheme, clip_norm),
            *facts,
        ),
        unit=unit,
        adjacency=guarantee.adjacency,
        assumptions=(
            *of_training(
                scheme,
                unit=unit,
                adaptive=guarantee.adaptive,
                settings=settings,
                steps=strategy.steps,
                group_size=guarantee.group_size,
                verified=found.verified is not None,
            ),
            *assumptions,
        ),
        reproduction=_reproduction(guarantee, strategy, scheme, order, file),
        versions=versions(),
        made=today(),
        notes=tuple(notes),
        dots=dots,
        strategy=strategy,
        group_size=guarantee.group_size,
        units=units_of(guarantee) if units else None,
        beside=beside(guarantee, strategy, scheme, sizes, searched=searched, progress=progress),
        attacks=attacks(dots),
        missing=missing,
        about=signed.facts(),
        tuning=words("tuning", signed.tuning, ""),
    )


def claim(heading: str, found: Bracket, remark: str = "") -> Claim:
    """A bracket, as a claim."""
    guarantee = found.guarantee
    return Claim(
        heading=heading,
        epsilon=guarantee.epsilon,
        delta=guarantee.delta,
        lower=found.lower,
        adaptive=guarantee.adaptive,
        settings=(guarantee.setting,) if guarantee.setting else (),
        how=guarantee.bound,
        remark=remark,
    )


def _verified_claim(steps: int, found: Guarantee) -> Claim:
    return Claim(
        heading=f"All {steps:,} steps, verified by simulation",
        epsilon=found.epsilon,
        delta=found.delta,
        adaptive=found.adaptive,
        how=found.bound,
        kind=found.kind,
        failure=found.failure,
    )


def _of_the_same(verified: object, certified: Guarantee) -> Guarantee:
    """The verified guarantee, if it is about the same mechanism as the certified number."""
    from mmcc.accounting._guarantee import VERIFIED, Guarantee

    if not isinstance(verified, Guarantee) or verified.kind != VERIFIED:
        raise ParameterError("verified must be a guarantee returned by mmcc.verify.")
    for name in ("strategy", "sampling", "sigma", "group_size", "adaptive"):
        one, other = getattr(verified, name), getattr(certified, name)
        if one != other:
            raise ParameterError(
                f"verified is about another mechanism: its {name} is {one}, not {other}."
            )
    return verified


def words(name: str, given: str | None, otherwise: str) -> str:
    """Free text, or what replaces it if it is missing."""
    if given is None or (isinstance(given, str) and not given.strip()):
        return otherwise
    if not isinstance(given, str) or len(given) > LONGEST:
        raise ParameterError(f"{name} must be text of at most {LONGEST} characters.")
    return given


def versions() -> tuple[Fact, ...]:
    """The software that computed the numbers."""
    found = [Fact("mmcc", mmcc.__version__), Fact("Python", platform.python_version())]
    found += [Fact(name, version(name)) for name in ("numpy", "scipy", "numba")]
    return tuple(found)


def today() -> str:
    """The date, in UTC."""
    return datetime.now(timezone.utc).date().isoformat()


def _mechanism_facts(
    guarantee: Guarantee, strategy: Strategy, scheme: Scheme, clip_norm: float | None
) -> list[Fact]:
    from mmcc.report._related_numbers import mechanism_digest, noise_multiplier, participations

    inputs = "may depend on everything released before (adaptive)"
    if not guarantee.adaptive:
        inputs = "fixed in advance (not adaptive)"
    facts = [
        Fact("Strategy", guarantee.strategy, code=True),
        Fact("Steps", f"{strategy.steps:,}"),
        Fact("Vectors released", f"{strategy.rows:,}"),
        Fact("Sampling", scheme.words(strategy.steps)),
        *participations(strategy, scheme),
        Fact("Sigma, in clip norms", repr(guarantee.sigma)),
        noise_multiplier(guarantee, strategy),
    ]
    if clip_norm is not None:
        noise = f"{guarantee.sigma * clip_norm:.6g}"
        facts += [
            Fact("Clip norm", repr(clip_norm)),
            Fact("Noise standard deviation", f"{noise} (sigma times the clip norm)"),
        ]
    facts.append(Fact("Inputs", inputs))
    if guarantee.group_size > 1:
        facts.append(Fact("Units protected together", f"{guarantee.group_size:,}"))
    if guarantee.setting:
        facts.append(Fact("Setting", guarantee.setting))
    facts += [
        Fact("Method asked for", guarantee.method, code=True),
        Fact("Certified by", guarantee.bound),
        Fact(DIGEST, mechanism_digest(strategy, scheme, guarantee.sigma), code=True),
    ]
    return facts


def _reproduction(
    guarantee: Guarantee, strategy: Strategy, scheme: Scheme, order: Order | None, file: str | None
) -> Reproduction:
    """The command and the Python code that reproduce the headline."""
    from mmcc.strategies._records import strategy_digest

    written = written_strategy(strategy, file)
    drawn = written_scheme(scheme)
    options: dict[str, Any] = {"sigma": guarantee.sigma, "delta": guarantee.delta}
    if guarantee.method != TIGHT:
        options["method"] = guarantee.method
    if order is not None:
        options["order"] = order
    if guarantee.group_size > 1:
        options["group_size"] = guarantee.group_size
    spelled = {
        name: value if isinstance(value, str) else repr(value) for name, value in options.items()
    }
    line = ["mmcc", "epsilon", *written.options, *drawn.options]
    for name, text in spelled.items():
        line += [f"--{name.replace('_', '-')}", text]
    arguments = "".join(f"    {name}={value!r},\n" for name, value in options.items())
    snippet = (
        "import mmcc\nfrom mmcc import sampling, strategies\n\n"
        f"found = mmcc.epsilon(\n    {written.python},\n    {drawn.python},\n{arguments})\n"
        "print(found)"
    )
    notes = [drawn.note] if drawn.note else []
    if written.file is not None:
        how = f", {written.note}," if written.note else ""
        notes.append(
            f"{written.file} is the file of the strategy{how} and belongs to this report. The "
            f"SHA-256 of its numbers is {strategy_digest(strategy)}."
        )
    return Reproduction(typed(line) if drawn.options else "", snippet, tuple(notes))
