"""Several mechanisms at the same epsilon: the noise each needs, and its effect on prefix sums.

In: the values of the controls, and those of mechanisms kept for comparison.  Out: rows and a
figure.  Every sigma is certified and rounded up; errors are those of that sigma.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mmcc.accounting._guarantee import Guarantee, rounded_up
from mmcc.errors import MmccError
from mmcc.explore import _answers as answers
from mmcc.explore import _figures as figures
from mmcc.explore._answers import Errors, NoiseQuestion
from mmcc.explore._desk import Desk
from mmcc.explore._settings import STRATEGIES, Settings, read, read_target
from mmcc.sampling._registry import SCHEMES
from mmcc.strategies._registry import IDENTITY

MOST = 6
"""The most mechanisms side by side: as many as there are distinguishable lines."""
BASELINE = "DP-SGD"
PATIENCE = 0.4
"""Seconds after which a page receives what is known so far."""


@dataclass(frozen=True, slots=True)
class Row:
    """A mechanism of the comparison."""

    name: str
    remark: str = ""
    sigma: str = ""
    rmse: str = ""
    largest: str = ""
    saving: str = ""
    """How much smaller or larger the error is than that of DP-SGD."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The content of the comparison."""

    rows: tuple[Row, ...]
    figure: figures.Figure
    problem: str
    unfinished: bool


def compare(
    values: Mapping[str, object],
    aside: Sequence[Mapping[str, object]],
    desk: Desk[answers.Question, answers.Answer],
    patience: float = PATIENCE,
) -> Comparison:
    """The mechanism of the controls beside DP-SGD and those that were kept."""
    try:
        target = read_target(values)
        chosen = read(values)
        mechanisms = _mechanisms(chosen, [read(one) for one in aside])
        for one in mechanisms.values():
            answers.check_scheme(one)
    except MmccError as wrong:
        text = str(wrong)
        return Comparison((), figures.empty_figure(), text[:1].upper() + text[1:], False)
    small = {name: one for name, one in mechanisms.items() if one.steps <= answers.LARGEST}
    asked = {name: NoiseQuestion(replace(one, sigma=1.0), target) for name, one in small.items()}
    known = desk.ask([*asked.values()], patience)
    found = {name: known.get(question) for name, question in asked.items()}
    errors = {
        name: answers.prefix_errors(small[name].at(one.sigma))
        for name, one in found.items()
        if isinstance(one, Guarantee)
    }
    base = errors.get(BASELINE)
    rows = tuple(
        _row(name, one, found.get(name), errors.get(name), base) for name, one in mechanisms.items()
    )
    figure = figures.comparison_figure([*errors.items()]) if errors else figures.empty_figure()
    return Comparison(rows, figure, "", len(known) < len({*asked.values()}))


def describe(asked: Settings) -> str:
    """A mechanism in a few words, made of known names and numbers only."""
    entry = STRATEGIES[asked.strategy]
    size = "" if asked.size is None else f", {asked.size_name} {asked.size}"
    rounds = "".join(f", {name.replace('-', ' ')} {value}" for name, value in asked.rounds)
    chance = "" if asked.prob is None else f" {asked.prob}"
    scheme = SCHEMES[asked.scheme].label
    return f"{entry.label}{size}; {scheme}{chance}{rounds}; {asked.steps} steps"


def _mechanisms(chosen: Settings, aside: Sequence[Settings]) -> dict[str, Settings]:
    """DP-SGD under the same sampling first, then the kept ones, then the one of the controls."""
    base = replace(chosen, strategy=IDENTITY.name, size=None)
    found = {BASELINE: base}
    for one in (*aside, chosen):
        one = replace(one, sigma=chosen.sigma, delta=chosen.delta)
        if one != base:
            found[describe(one)] = one
    return dict([*found.items()][:MOST])


def _row(
    name: str, asked: Settings, found: object, errors: Errors | None, base: Errors | None
) -> Row:
    if asked.steps > answers.LARGEST:
        return Row(name, f"up to {answers.LARGEST} steps here")
    if isinstance(found, MmccError):
        return Row(name, str(found))
    if not isinstance(found, Guarantee) or errors is None:
        return Row(name, "being computed")
    plain = "" if asked.proven else "no amplification is proven: unamplified"
    remark = f"only in {found.setting}" if found.setting else plain
    saving = ""
    if base is not None and name != BASELINE:
        saved = 100 * (1 - errors.rmse / base.rmse)
        saving = f"{abs(saved):.1f} % {'less' if saved >= 0 else 'more'}"
    return Row(
        name,
        remark,
        sigma=rounded_up(found.sigma),
        rmse=f"{errors.rmse:.5g}",
        largest=f"{errors.largest:.5g}",
        saving=saving,
    )
