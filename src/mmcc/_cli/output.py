"""Printing answers: a table or JSON on stdout.

Rounding: the number asked for is rounded up to `DIGITS` digits in tables (a larger epsilon, delta
or sigma is true as well); JSON has it as computed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from mmcc._methods import MMCC, TIGHT, UNAMPLIFIED
from mmcc._progress import progress_bar as progress_bar
from mmcc.accounting._guarantee import CERTIFIED, rounded_down, rounded_up

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from mmcc import Bracket, Estimate, Guarantee
    from mmcc.accounting._units import Units
    from mmcc.design._error_beside_dp_sgd import Beside

LABELS = {
    "remove": "{}, remove",
    "add": "{}, add",
    "remove_by": "bound for remove",
    "add_by": "bound for add",
    "order": "order of analysis",
    "sensitivity": "norm of C times the worst participations",
    "certified_as": "certified as",
    "added_to_delta": "added to delta",
    "chance_to_take_part": "chance of taking part at all",
    "any_sigma": "any sigma satisfies this: choose a smaller delta",
    "group": "examples in the group",
    "black_box": "from one example's epsilon alone, links at their best",
    "black_box_even": "from one example's epsilon alone, all links alike",
    "links": "single steps from the data with the group to those without",
    "not_amplified": "not amplified because of",
    "links_by": "one example's guarantee by",
    "composition": "all iterates, any losses (composition)",
    "samples": "samples",
    "pilot_samples": "samples of the pilot",
    "level": "chance of error of this attempt",
    "attempt": "attempt",
}
"""Printed names of entries of `Guarantee.details`; {} is the number asked for.

The others are internals of a bound, or are printed elsewhere in the answer: --json has them.
"""


NO_PROOF = "a Monte Carlo estimate, not a proof"
LOWER_BY = "no method can prove less"

COMPARED = {
    UNAMPLIFIED: "unamplified: part in every step allowed",
    "fixed_order": "the same epochs in a fixed order: no sampling",
    MMCC: "mmcc, rows in release order (the paper's)",
    TIGHT: "tight (default)",
}

LEAST_WIDTH = 80
"""Characters in a line; a narrower terminal wraps it, but nothing is cut off."""

Comparison = Mapping[str, float | None]
"""Epsilon by other certified bounds, by name; None if one could not be computed."""


def console() -> Console:
    """Where answers are printed; at least `LEAST_WIDTH` wide, so that numbers stay whole."""
    from rich.console import Console

    made = Console(highlight=False)
    made.width = max(made.width, LEAST_WIDTH)
    return made


def print_json(
    found: Guarantee | Bracket | Estimate,
    seconds: float,
    comparison: Comparison | None,
    units: Units | None = None,
    beside: Beside | None = None,
) -> None:
    """One object on stdout."""
    content = found.to_dict() | {"seconds": round(seconds, 3)}
    if beside is not None:
        content["error"] = beside.to_dict()
    if units is not None:
        content["units"] = units.to_dict()
    if comparison is not None:
        content["comparison"] = dict(comparison)
    print(json.dumps(content, indent=2, allow_nan=False, default=float))


def print_tables(
    asked: str,
    found: Guarantee,
    seconds: float,
    comparison: Comparison | None,
    units: Units | None = None,
    beside: Beside | None = None,
) -> None:
    """Print the answer, its assumptions and how it was found."""
    paper = console()
    answer = _answer_table(asked, found)
    if beside is not None:
        answer.add_row("error", str(beside))
    paper.print(answer)
    if units is not None:
        paper.print("", _units_table(units))
    if comparison is not None:
        paper.print("", _comparison_table(comparison))
    paper.print("", _details_table(asked, found, seconds))


def print_bracket(found: Bracket, seconds: float, units: Units | None = None) -> None:
    """Print both ends, and which bound gave the upper one."""
    from rich.table import Table

    guarantee = found.guarantee
    ends = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("epsilon", "", "certified by"):
        ends.add_column(name, no_wrap=name != "certified by")
    ends.add_row(
        "lower",
        f"[bold]{rounded_down(found.lower)}[/bold]",
        LOWER_BY if found.lower > 0 or found.upper == 0 else "nothing is known here",
    )
    if found.estimate is not None:
        ends.add_row("estimate", _interval(found.estimate), _remark(found))
    if found.verified is not None:
        ends.add_row("verified", rounded_up(found.verified.epsilon), _not_certified(found.verified))
    if found.refused is not None:
        ends.add_row("verified", "refused", f"nothing: {_plain(found.refused)}")
    ends.add_row("upper", f"[bold]{rounded_up(found.upper)}[/bold]", found.method)
    table = _table("", "")
    table.add_row("truth", found.truth)
    table.add_row("delta", f"{guarantee.delta:.12g}")
    _add_noise(table, guarantee, f"{guarantee.sigma:.12g}")
    for name, value in _assumptions(guarantee):
        table.add_row(name, value)
    if found.estimate is not None and found.estimate.setting:
        table.add_row("setting of the estimate", found.estimate.setting)
    table.add_row("seconds", f"{seconds:.2f}")
    console().print(ends, "", *([] if units is None else [_units_table(units), ""]), table)


def print_estimate(found: Estimate, seconds: float) -> None:
    """Print the interval, how it was obtained and what it assumes."""
    table = _table("", "")
    table.add_row("epsilon", f"[bold]{found.epsilon:.4g}[/bold]")
    table.add_row("interval", _interval(found))
    table.add_row("certified", f"no: {NO_PROOF}")
    for name in ("delta", "sigma"):
        table.add_row(name, f"{getattr(found, name):.12g}")
    table.add_row("likelihood ratio", found.method)
    table.add_row("samples", f"{found.samples}, worth {found.effective:.0f} of equal weight")
    table.add_row("seed", str(found.seed))
    table.add_row("strategy", _plain(found.strategy))
    table.add_row("sampling", _plain(found.sampling))
    table.add_row("adjacency", found.adjacency)
    if found.setting:
        table.add_row("setting", found.setting)
    table.add_row("seconds", f"{seconds:.2f}")
    console().print(table)


def _remark(found: Bracket) -> str:
    """A remark on the estimate of a bracket."""
    estimate = found.estimate
    if estimate is None or (estimate.low <= found.upper and estimate.high >= found.lower):
        return f"nothing: {NO_PROOF}"
    return "nothing; it lies outside the certified ends: disregard it"


def _not_certified(found: Guarantee) -> str:
    return f"nothing: {found.basis}"


def _interval(found: Estimate) -> str:
    ends = f"{rounded_down(found.low)} to {rounded_up(found.high)}"
    return f"{ends} with confidence {found.confidence:g}"


def _assumptions(found: Guarantee) -> list[tuple[str, str]]:
    return [
        ("strategy", _plain(found.strategy)),
        ("sampling", _plain(found.sampling)),
        ("adjacency", found.adjacency),
        ("inputs", "adaptive" if found.adaptive else "non-adaptive only"),
        *([("setting", found.setting)] if found.setting else []),
    ]


def _answer_table(asked: str, found: Guarantee) -> Table:
    table = _table("", "")
    _add_number(table, asked, asked, found)
    told = found.truth(asked)
    if told:
        table.add_row("truth", told)
    for name in ("epsilon", "delta", "sigma"):
        if name != asked:
            _add_number(table, name, asked, found)
    for name, value in _assumptions(found):
        table.add_row(name, value)
    if found.kind == CERTIFIED:
        table.add_row("certified", "yes: an upper bound, rounding errors included")
        table.add_row("bound", found.bound)
    else:
        table.add_row("certified", f"no: {found.basis}")
    return table


def _add_number(table: Table, name: str, asked: str, found: Guarantee) -> None:
    """A number of the guarantee: as it was given, or rounded up if it was computed."""
    value = getattr(found, name)
    # The search for sigma ends at an epsilon just below the one asked for.
    computed = name == asked or (asked, name) == ("sigma", "epsilon")
    text = rounded_up(value) if computed else f"{value:.12g}"
    shown = f"[bold]{text}[/bold]" if name == asked else text
    if name == "sigma":
        _add_noise(table, found, shown)
    else:
        table.add_row(name, shown)


def _add_noise(table: Table, found: Guarantee, shown: str) -> None:
    """The noise as it is added, and in the convention of other libraries."""
    table.add_row("sigma", f"{shown} clip norms")
    if found.noise_multiplier is not None and found.column_norm is not None:
        table.add_row(
            "noise multiplier",
            f"{rounded_up(found.noise_multiplier)}: sigma over the sensitivity to one "
            f"participation, {found.column_norm:.4g}",
        )


def _units_table(units: Units) -> Table:
    table = _table("in other units, certified", "")
    table.add_column("", overflow="fold")
    for row in units.rows():
        table.add_row(*row)
    return table


def _comparison_table(comparison: Comparison) -> Table:
    table = _table("certified bound", "epsilon")
    for name, value in comparison.items():
        table.add_row(COMPARED[name], "not available" if value is None else rounded_up(value))
    return table


def _details_table(asked: str, found: Guarantee, seconds: float) -> Table:
    part = "delta" if asked == "delta" else "epsilon"
    table = _table("how it came about", "")
    for name, value in found.details.items():
        if name in LABELS:
            table.add_row(LABELS[name].format(part), _shown(value))
    table.add_row("seconds", f"{seconds:.2f}")
    return table


def _shown(value: object) -> str:
    """A number rounded to its safe side; other values as text."""
    if not isinstance(value, float):
        return "not available" if value is None else str(value)
    return rounded_up(value)


def _table(first: str, second: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=bool(first), header_style="bold")
    table.add_column(first, no_wrap=True)
    table.add_column(second, overflow="fold")
    return table


def _plain(text: str) -> str:
    """Text with its brackets escaped, which would otherwise be markup."""
    from rich.markup import escape

    return escape(text)
