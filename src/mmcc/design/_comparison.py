"""The table of a comparison: frozen rows, their assumptions, and where correlated noise wins.

In: answers at equal (epsilon, delta, steps, rate).  Out: text, a dictionary, and verdicts.
Rounding: in print sigmas go up and savings go down.  A row wins only against the noise below which
DP-SGD is impossible (if that is known), and only with a certificate that assumes no more than
DP-SGD's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from mmcc import _html
from mmcc.accounting._bounds import PLAIN
from mmcc.accounting._guarantee import ADJACENCY, rounded_up
from mmcc.strategies._workloads import PREFIX_SUMS

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure

BASELINE = "DP-SGD"
WINS = "wins"
LOSES = "does not win"
CANNOT = "cannot win"
"""Certified: no method can prove the target with as little error as DP-SGD's."""
UNKNOWN = "no answer"

ESTIMATED = "an estimate, not a proof"
UNAMPLIFIED = "without amplification"
FIXED_INPUTS = "for inputs fixed in advance"
ZERO_ONE = "in the 0-1 setting"
CLOSED = 0.99
"""A lower bound on DP-SGD's noise below this fraction of the certified noise is not used."""


@dataclass(frozen=True, slots=True)
class Row:
    """One strategy under one scheme at one epsilon."""

    strategy: str
    detail: str
    """The strategy in full."""
    scheme: str
    sampling: str
    """The scheme in full; of several that were tried, the one that needs the least noise."""
    separation: int | None
    """The separation of cyclic Poisson sampling, the best one if several were tried."""
    epsilon: float
    """The target epsilon."""
    delta: float
    method: str
    verdict: str
    correlated: bool
    sigma: float | None = None
    """The noise that suffices for the target, in units of the clip norm."""
    sigma_lower: float | None = None
    """Certified: below this noise no method can prove the target; None if nothing is known."""
    bound: str = ""
    """The certified bound that gave sigma, or how it was estimated."""
    certified: bool = False
    reservations: tuple[str, ...] = ()
    """What prevents the row from being compared on equal terms."""
    rmse: float | None = None
    max_error: float | None = None
    noise_memory: int | None = None
    saving: float | None = None
    """1 - rmse / (the least RMSE that DP-SGD can have at this guarantee, if it is known)."""
    at_tie: bool = False
    """Whether only the winner was asked for; sigma is then the noise at which errors are equal."""
    skipped: int = 0
    """The number of schemes of the family that need more noise than the one shown."""
    reason: str = ""
    """Why there is no answer, or why there may be a better one."""
    seconds: float = 0.0

    @property
    def wins(self) -> bool:
        """Whether it has certified less error than DP-SGD at the same guarantee."""
        return self.verdict == WINS and self.certified and not self.reservations

    @property
    def closed(self) -> bool:
        """Whether the least noise for the target is known to within a hundredth."""
        return bool(self.sigma and self.sigma_lower and self.sigma_lower >= CLOSED * self.sigma)

    @property
    def text(self) -> str:
        """The verdict in words, with all reservations."""
        if self.verdict == BASELINE and not self.closed and self.bound != PLAIN.name:
            return f"{BASELINE}; wins are against this certified noise"
        if self.verdict == UNKNOWN:
            return f"{UNKNOWN}: {self.reason}"
        if self.verdict == WINS and self.reservations:
            return f"less error, but {' and '.join(self.reservations)}"
        if self.verdict == WINS and not self.at_tie and self.saving is not None:
            percent = 100 * floored(self.saving)
            return f"{WINS} by {f'{percent:.1f}' if percent else 'less than 0.1'} %{self._cut}"
        return self.verdict + self._cut

    @property
    def _cut(self) -> str:
        return f"; {self.reason.rstrip('.')}" if self.reason else ""

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        content = asdict(self) | {"wins": self.wins, "adjacency": ADJACENCY}
        return content | {"reservations": list(self.reservations)}


@dataclass(frozen=True, slots=True)
class Crossing:
    """Where correlated noise starts to win under one scheme."""

    scheme: str
    epsilon: float | None
    """The smallest epsilon of the sweep at which a correlated strategy wins; None: at none."""
    strategy: str = ""
    saving: float | None = None
    impossible_below: bool = False
    """Whether at all smaller epsilons of the sweep no method can prove a win."""

    def __str__(self) -> str:
        if self.epsilon is None:
            shown = "no method can show one" if self.impossible_below else "none is shown"
            return f"{self.scheme}: no win at any epsilon of the sweep ({shown})"
        return f"{self.scheme}: first at epsilon {self.epsilon:g} ({self.strategy})"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Strategies at equal (epsilon, delta, steps, rate), compared with DP-SGD.

    DP-SGD is independent noise under Poisson sampling at the same rate, with one row per epsilon.
    """

    steps: int
    rate: float
    delta: float
    method: str
    baseline: tuple[Row, ...]
    rows: tuple[Row, ...]
    workload: str = PREFIX_SUMS
    """The workload that errors refer to, in words."""

    @property
    def epsilons(self) -> tuple[float, ...]:
        """The epsilons of the sweep, in increasing order."""
        return tuple(row.epsilon for row in self.baseline)

    @property
    def crossings(self) -> tuple[Crossing, ...]:
        """For each scheme the smallest epsilon at which a correlated strategy wins."""
        schemes = dict.fromkeys(row.scheme for row in self.rows if row.correlated)
        return tuple(_crossing(scheme, self.rows) for scheme in schemes)

    def at(self, epsilon: float) -> tuple[Row, ...]:
        """The rows of one epsilon."""
        return tuple(row for row in self.rows if row.epsilon == epsilon)

    def best(self, epsilon: float) -> Row | None:
        """The certified row without reservations with the least RMSE, including DP-SGD."""
        fair = [
            row
            for row in (*self.baseline, *self.at(epsilon))
            if row.epsilon == epsilon and row.certified and not row.reservations
            if row.rmse is not None and not row.at_tie
        ]
        return min(fair, key=lambda row: row.rmse or math.inf, default=None)

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return {
            "steps": self.steps,
            "rate": self.rate,
            "delta": self.delta,
            "epsilon": list(self.epsilons),
            "method": self.method,
            "workload": self.workload,
            "adjacency": ADJACENCY,
            "baseline": [row.to_dict() for row in self.baseline],
            "rows": [row.to_dict() for row in self.rows],
            "crossings": [asdict(crossing) for crossing in self.crossings],
        }

    def plot(self, file: str | Path | None = None) -> Figure:
        """Plot the errors of all certified rows: bars at one epsilon, lines against several.

        Needs matplotlib; `file` may end with .png, .svg or .pdf.
        """
        from mmcc.plots import errors_against_epsilon

        return errors_against_epsilon(self, file)

    def _repr_html_(self) -> str:
        """An HTML table for each epsilon, for notebooks."""
        parts = [_html.paragraph(self._title)]
        for base in self.baseline:
            rows = [cells(row) for row in (base, *self.at(base.epsilon))]
            parts += [
                _html.paragraph(f"epsilon {base.epsilon:g}"),
                _html.table(rows, HEADER, strong=BASELINE),
            ]
        return "\n".join([*parts, *map(_html.paragraph, self._notes)])

    @property
    def _title(self) -> str:
        return (
            f"{self.steps} steps, rate {self.rate:g}, delta {self.delta:g}, method {self.method}; "
            f"errors of {self.workload} in clip norms"
        )

    @property
    def _notes(self) -> list[str]:
        """The lines below the table: where correlated noise wins, and the units of sigma."""
        simulated = any(not row.certified and row.sigma is not None for row in self.rows)
        marked = "sigmas with ~ are estimates, the others certified" if simulated else "certified"
        return [
            "Correlated noise wins, certified and amplified:",
            *([f"  {crossing}" for crossing in self.crossings] or ["  nothing was compared"]),
            f"Sigma: in clip norms, {marked}; adjacency {ADJACENCY}.",
        ]

    def __str__(self) -> str:
        lines = [self._title]
        for base in self.baseline:
            lines += ["", f"epsilon {base.epsilon:g}", *aligned((base, *self.at(base.epsilon)))]
        *wins, sigmas = self._notes
        return "\n".join([*lines, "", *wins, "", sigmas])


HEADER = ("strategy", "scheme", "sigma", "RMSE", "max error", "memory", "against DP-SGD")


def cells(row: Row) -> tuple[str, ...]:
    """The row as text: sigma rounded up, estimates marked, errors to four digits."""
    mark = "~" if row.sigma is not None and not row.certified else ""
    mark += "<=" if row.at_tie else ""  # the noise at a tie, not what the row needs

    def error(value: float | None) -> str:
        return "-" if value is None or sigma == "-" else f"{mark}{value:.4g}"

    told = row.sigma is not None and (row.verdict == WINS or not row.at_tie)
    sigma = mark + rounded_up(row.sigma) if told and row.sigma is not None else "-"
    memory = "-" if row.noise_memory is None else str(row.noise_memory)
    scheme = row.scheme if row.separation is None else f"{row.scheme} {row.separation}"
    return row.strategy, scheme, sigma, error(row.rmse), error(row.max_error), memory, row.text


def aligned(rows: Sequence[Row]) -> list[str]:
    """The lines of a plain-text table."""
    lines = [HEADER, *(cells(row) for row in rows)]
    widths = [max(len(line[k]) for line in lines) for k in range(len(HEADER) - 1)]
    return [
        "  ".join([*(c.ljust(w) for c, w in zip(line, widths, strict=False)), line[-1]])
        for line in lines
    ]


def _crossing(scheme: str, rows: Sequence[Row]) -> Crossing:
    mine = [row for row in rows if row.scheme == scheme and row.correlated]
    winners = [row for row in mine if row.wins]
    first = min((row.epsilon for row in winners), default=None)
    below = [row for row in mine if first is None or row.epsilon < first]
    impossible = bool(below) and all(row.verdict == CANNOT for row in below)
    if first is None:
        return Crossing(scheme, None, impossible_below=impossible)
    best = max((row for row in winners if row.epsilon == first), key=lambda row: row.saving or 0)
    return Crossing(scheme, first, best.strategy, best.saving, impossible)


def floored(saving: float) -> float:
    """The saving rounded down to a tenth of a per cent."""
    return math.floor(1000 * saving) / 1000
