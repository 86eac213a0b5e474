"""Every empirical sentence of the paper's Section 6 and Appendix B, and what the CSVs say about it.

Numbers come from the tables alone; a verdict is the outcome of a comparison
in the modules that import this one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from paper.records import Table

Tables = Mapping[str, Table]
Finding = tuple[str, str]
YES, NO, PARTLY, OPEN = "yes", "**no**", "**in part**", "not measured"
NOT_SHOWN = "**not shown**"
"""What was computed neither shows it nor rules it out."""


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, shortened, and the finding it is compared with."""

    section: str
    quote: str
    found: Callable[[Tables], Finding]


CLAIMS: list[Claim] = []


def claim(section: str) -> Callable[[Callable[[Tables], Finding]], Callable[[Tables], Finding]]:
    """A decorator for functions whose docstring is the claim and whose result is our finding."""

    def register(found: Callable[[Tables], Finding]) -> Callable[[Tables], Finding]:
        quote = " ".join(str(found.__doc__).split()).rstrip(".")
        CLAIMS.append(Claim(section, quote, found))
        return found

    return register


def verdict(*outcomes: bool) -> str:
    """Yes if all hold, no if none does."""
    if all(outcomes):
        return YES
    return PARTLY if any(outcomes) else NO


def claims() -> list[Claim]:
    """All claims, in the order of the paper; those beyond Section 6 and Appendix B last."""
    places = ("6.1", "6.2", "6.3", "6.4", "B.1", "B.2", "B.3", "B.4", "B.5", "5", "7")

    def place(one: Claim) -> int:
        return next(i for i, start in enumerate(places) if one.section.startswith(start))

    return sorted(CLAIMS, key=place)
