"""Answers into print: a table or JSON on stdout.

Rounding: the number asked for is rounded up to `DIGITS` digits in tables (a larger epsilon, delta
or sigma is true as well); JSON has it as computed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from mmcc._progress import progress_bar as progress_bar
from mmcc.accounting._guarantee import CERTIFIED, rounded_down, rounded_up

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from mmcc import Bracket, Estimate, Guarantee
    from mmcc.accounting._units import Units
    from mmcc.design._beside import Beside

LABELS = {
    "order": "order of analysis",
    "delta_1": "delta for bad events",
    "events": "number of bad events",
    "worst_group": "worst group of examples",
    "remove": "{}, remove",
    "add": "{}, add",
    "max_p_tilde_over_p": "max p~/p (diagnostic, neither bound)",
    "remove_by": "bound for remove",
    "add_by": "bound for add",
    "epsilon_lower": "lower bound on the true epsilon (certified)",
    "delta_lower": "lower bound on the true delta (certified)",
    "sigma_lower": "sigma below which this is impossible (certified)",
    "slack": "sigma that the proof costs beyond that",
    "chance_to_take_part": "chance to take part at all",
    "any_sigma": "any sigma will do: choose a smaller delta",
    "group": "examples in the group",
    "black_box": "from one example's epsilon alone, links at their best",
    "black_box_even": "from one example's epsilon alone, all links alike",
    "links": "single steps from the data with the group to those without",
    "level": "chance of error of this attempt",
    "not_amplified": "not amplified because of",
    "pilot_samples": "samples of the pilot",
    "links_by": "one example's guarantee by",
    "composition": "all iterates, any losses (composition)",
    "epsilon_if_p_tilde_were_p (neither bound)": "epsilon if p~ = p (neither bound)",
}
"""How the entries of `Guarantee.details` are called in print; {} is the number asked for."""


NO_PROOF = "a Monte Carlo estimate, not a proof"
LOWER_BY = "no method can prove less"

COMPARED = {
    "unamplified": "unamplified: part in every step allowed",
    "one_fixed_pass": "one fixed pass: part in a single step",
    "mmcc": "mmcc, rows in release order (the paper's)",
    "tight": "tight (default)",
}

LEAST_WIDTH = 80
"""Letters in a line; a narrower terminal breaks it, but drops nothing."""

Comparison = Mapping[str, float | None]
"""What other certified bounds say, by name; None where a bound could not be computed."""


def console() -> Console:
    """Where answers are printed; not narrower than `LEAST_WIDTH`, so that numbers stay whole."""
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
    """The answer, what it assumes and how it came about."""
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
    """Both ends, and which bound gave the upper one."""
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
    table.add_row("upper / lower", rounded_up(found.ratio))
    table.add_row("delta", f"{guarantee.delta:.12g}")
    table.add_row("sigma", f"{guarantee.sigma:.12g}")
    for name, value in _assumptions(guarantee):
        table.add_row(name, value)
    if found.estimate is not None and found.estimate.setting:
        table.add_row("setting of the estimate", found.estimate.setting)
    table.add_row("seconds", f"{seconds:.2f}")
    console().print(ends, "", *([] if units is None else [_units_table(units), ""]), table)


def print_estimate(found: Estimate, seconds: float) -> None:
    """The interval, how it was obtained and what it assumes."""
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
    """What to think of the estimate of a bracket."""
    estimate = found.estimate
    if estimate is None or (estimate.low <= found.upper and estimate.high >= found.lower):
        return f"nothing: {NO_PROOF}"
    return "nothing, and outside the certified ends: disregard this estimate"


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
    for name in (asked, *(n for n in ("epsilon", "delta", "sigma") if n != asked)):
        value = getattr(found, name)
        # The search for sigma ends at an epsilon just below the one asked for.
        computed = name == asked or (asked, name) == ("sigma", "epsilon")
        text = rounded_up(value) if computed else f"{value:.12g}"
        table.add_row(name, f"[bold]{text}[/bold]" if name == asked else text)
    for name, value in _assumptions(found):
        table.add_row(name, value)
    if found.kind == CERTIFIED:
        table.add_row("certified", "yes: an upper bound, rounding errors included")
        table.add_row("bound", found.bound)
    else:
        table.add_row("certified", f"no: {found.basis}")
    return table


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
        if name == "worst_group" and not found.sampling.startswith("CyclicPoisson"):
            continue  # all examples are alike
        if name == "setting":
            continue  # choices inside a bound: --json has them
        label = LABELS.get(name, name.replace("_", " ")).format(part)
        table.add_row(label, _shown(name, value))
    table.add_row("seconds", f"{seconds:.2f}")
    return table


def _shown(name: str, value: object) -> str:
    """Numbers on the safe side of what they claim."""
    if isinstance(value, dict):
        return "; ".join(f"{key} {_shown(key, inner)}" for key, inner in value.items())
    if isinstance(value, list):
        return "\n".join(_shown(name, one) for one in value)
    if not isinstance(value, float):
        return "not available" if value is None else str(value)
    if name == "slack":
        return f"{100 * value:.2f} %"
    return rounded_down(value) if name.endswith("_lower") else rounded_up(value)


def _table(first: str, second: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=bool(first), header_style="bold")
    table.add_column(first, no_wrap=True)
    table.add_column(second, overflow="fold")
    return table


def _plain(text: str) -> str:
    """Text with brackets that are not markup."""
    from rich.markup import escape

    return escape(text)
