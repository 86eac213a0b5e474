"""The content of a report, as plain facts: nothing here is computed, drawn or escaped.

In: numbers and text from the accounting.  Out: `Report`, which can turn into a page.
Rounding: numbers are kept as computed; the properties that format them round upper bounds up and
lower bounds down.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from mmcc.accounting._guarantee import CERTIFIED, VERIFIED, rounded_down, rounded_up

if TYPE_CHECKING:
    from mmcc.accounting._units import Units
    from mmcc.strategies._base import Strategy

UNIT = "one training example"
LARGEST_EXPONENT = 700.0
"""The largest epsilon for which e^epsilon fits into a float."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A name with its value; `code` if the value is something to be typed."""

    name: str
    value: str
    code: bool = False


@dataclass(frozen=True, slots=True)
class RunLine:
    """One run of a ledger."""

    name: str
    state: str
    steps: int
    epsilon: float
    delta: float
    mechanism: str
    digest: str = ""
    """The digest of its mechanism, where the ledger knows all of it."""

    @property
    def pair(self) -> tuple[str, str]:
        """Epsilon and delta for print, rounded up."""
        return rounded_up(self.epsilon), rounded_up(self.delta)


@dataclass(frozen=True, slots=True)
class Claim:
    """(epsilon, delta)-differential privacy of something that was released."""

    heading: str
    """What was released."""
    epsilon: float
    delta: float
    lower: float | None = None
    """Certified: the true epsilon is at least this; None if no lower bound was computed."""
    adaptive: bool = True
    settings: tuple[str, ...] = ()
    """What is assumed about the other examples; empty if nothing is."""
    how: str = ""
    """Which bound or argument gave the number."""
    remark: str = ""
    """The condition under which it holds."""
    runs: tuple[RunLine, ...] = ()
    kind: str = CERTIFIED
    failure: float = 0.0
    """The chance of a wrong verdict, part of delta, if it was verified."""

    @property
    def basis(self) -> str:
        """What the number rests on, in words."""
        if self.kind == CERTIFIED:
            return f"certified by: {self.how}" if self.how else ""
        wrong = f"the chance of a wrong verdict, {rounded_up(self.failure)}, is part of δ"
        how = f" ({self.how})" if self.how else ""
        return f"verified by simulation, not certified{how}; {wrong}"

    @property
    def shown(self) -> tuple[str, str]:
        """Epsilon and delta for print, rounded up."""
        return rounded_up(self.epsilon), rounded_up(self.delta)

    @property
    def exact_delta(self) -> str:
        """Delta to the last digit: a lower end at a delta rounded up would be no lower end."""
        return repr(self.delta)

    @property
    def shown_lower(self) -> str:
        """The lower end for print, rounded down; empty if nothing is known."""
        return rounded_down(self.lower or 0.0) if self.lower or not self.epsilon else ""

    @property
    def ratio(self) -> str:
        """Upper end over lower end, rounded up; empty if nothing is known."""
        if not self.epsilon:
            return "1"
        return rounded_up(self.epsilon / self.lower * (1 + 2**-50)) if self.lower else ""

    @property
    def factor(self) -> str:
        """e^epsilon, rounded up; empty if no float holds it."""
        if self.epsilon > LARGEST_EXPONENT:
            return ""
        return rounded_up(math.exp(self.epsilon) * (1 + 1e-14))

    @property
    def guess(self) -> str:
        r"""How often the right one of two equally likely cases is guessed at most, in per cent.

        A test between P and Q, each with chance 1/2, is right with chance (1 + TV) / 2, and
        P(A) - Q(A) <= (e^eps - 1 + 2 delta) / (e^eps + 1) for every A by adding both inequalities,
        of A and of its complement: in total at most (1 + delta e^-eps) / (1 + e^-eps).
        """
        small = math.exp(-self.epsilon)
        return rounded_up(min((1 + self.delta * small) / (1 + small) * (1 + 1e-14), 1.0) * 100)

    @property
    def reserved(self) -> bool:
        """Whether the number is invalid for training, in which inputs depend on releases."""
        return bool(self.settings) or not self.adaptive


@dataclass(frozen=True, slots=True)
class Dot:
    """A certified point of the curve: at delta, lower <= true epsilon <= upper."""

    delta: float
    lower: float
    upper: float

    @property
    def shown(self) -> tuple[str, str, str]:
        """Delta to the last digit; the upper and the lower end, each rounded to its safe side."""
        return (
            repr(self.delta),
            rounded_up(self.upper),
            rounded_down(self.lower) if self.lower else "",
        )


@dataclass(frozen=True, slots=True)
class Assumption:
    """Something that only the user can check."""

    head: str
    text: str


@dataclass(frozen=True, slots=True)
class Reproduction:
    """How to obtain the numbers again."""

    command: str
    """The command; empty if none can describe the mechanism."""
    snippet: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """A guarantee with everything a reader needs to judge it; the first claim is the headline."""

    title: str
    subject: str
    """What the report is about, in a few words."""
    claims: tuple[Claim, ...]
    facts: tuple[Fact, ...]
    unit: str
    adjacency: str
    assumptions: tuple[Assumption, ...]
    reproduction: Reproduction
    versions: tuple[Fact, ...]
    made: str
    """The date, in UTC."""
    notes: tuple[str, ...] = ()
    dots: tuple[Dot, ...] = ()
    """The epsilon-delta curve of the headline, by increasing delta."""
    strategy: Strategy | None = field(default=None, repr=False)
    """The strategy to draw."""
    group_size: int = 1
    """How many units are protected together."""
    units: Units | None = None
    """The headline in other units, if they were asked for."""
    beside: tuple[Fact, ...] = ()
    """Other numbers of the same mechanism."""
    attacks: tuple[tuple[str, str, str], ...] = ()
    """What an attack can achieve, by the points of the curve."""
    missing: tuple[str, ...] = ()
    """Why points of the curve are missing."""
    about: tuple[Fact, ...] = ()
    """The model, the code, the author of the report."""
    tuning: str = ""
    """What the author declares about other runs, made to tune this one."""

    @property
    def protected(self) -> str:
        """Who is protected, as the subject of a sentence."""
        if self.group_size == 1:
            return self.unit
        return f"any {self.group_size:,} together of what is protected ({self.unit} each)"

    @property
    def verified(self) -> bool:
        """Whether any number is verified instead of certified."""
        return any(claim.kind == VERIFIED for claim in self.claims)

    @property
    def differ(self) -> str:
        """How neighbours differ."""
        return f"the contributions of {named(self.unit, self.group_size)}"

    @property
    def runs(self) -> bool:
        """Whether the report is about runs in a ledger, with one claim for each data set."""
        return self.strategy is None

    def html(self) -> str:
        """One page without scripts that loads nothing from elsewhere."""
        from mmcc.report._pages import html_page

        return html_page(self)

    def markdown(self) -> str:
        """The same without pictures: their numbers are in tables."""
        from mmcc.report._pages import markdown_page

        return markdown_page(self)

    def save(self, path: str | Path, format: str | None = None) -> None:
        """Write the page; without `format` ("html", "markdown") the file's extension decides."""
        from mmcc.report._pages import page_format

        kind = page_format(path, format)
        text = self.html() if kind == "html" else self.markdown()
        Path(path).write_text(text, encoding="utf-8")


def named(unit: str, group_size: int = 1) -> str:
    """The protected unit within a sentence, in the user's words."""
    return unit if group_size == 1 else f"{group_size:,} of the protected units ({unit} each)"


def counted(number: int, noun: str) -> str:
    """A number with its noun, in the plural if need be."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def listed(words: Sequence[str]) -> str:
    """Words as a list within a sentence."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
