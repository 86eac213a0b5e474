"""The report of a ledger: everything that was ever released on its data sets.

In: a ledger's file.  Out: a `Report` with a claim for each data set.  Rounding: upwards.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from mmcc._written import printable, typed
from mmcc.errors import ParameterError
from mmcc.report._facts import (
    UNIT,
    Claim,
    Fact,
    Report,
    Reproduction,
    RunLine,
    counted,
    listed,
)
from mmcc.report._mechanisms import TITLE, Signed, today, versions, words
from mmcc.report._wording import of_runs

if TYPE_CHECKING:
    from mmcc.accounting._parallel import Progress
    from mmcc.ledger import Total

NAME = "ledger.jsonl"


def of_ledger(
    path: str | Path,
    *,
    data: str | None = None,
    delta: float | None = None,
    title: str | None = None,
    unit: str = UNIT,
    model: str | None = None,
    commit: str | None = None,
    author: str | None = None,
    tuning: str | None = None,
    progress: Progress | None = None,
) -> Report:
    """The report of one data set of a ledger, or of all; `delta` is the share of the plan.

    Totals and refusals are those of `mmcc ledger`.
    """
    from mmcc.ledger import Ledger
    from mmcc.ledger._total import totals

    history = Ledger(path).history()
    if data is None and not history.data_sets():
        raise ParameterError(f"the ledger {str(path)!r} is empty: it has no runs.")
    found = totals(history, data, delta=delta, progress=progress)
    unit = words("unit", unit, UNIT)
    signed = Signed(model, commit, author, tuning)
    adaptive = all(total.adaptive for total in found)
    settings = tuple(dict.fromkeys(setting for total in found for setting in total.settings))
    relations = dict.fromkeys(total.adjacency for total in found)
    # Of several data sets the smallest size: protecting more units also protects that many.
    sizes = [run.begin.guarantee.group_size for total in found for run in total.runs]
    names = listed([f"“{total.data}”" for total in found])
    return Report(
        title=words("title", title, TITLE),
        subject=f"all runs that a ledger has on {names}",
        claims=tuple(_claim(total) for total in found),
        facts=(
            Fact("Data sets", names),
            Fact("Runs", _states(found)),
            Fact("Lines of the ledger", f"{history.lines:,}"),
            Fact("SHA-256 of the ledger", _digest(Path(path)), code=True),
        ),
        unit=unit,
        adjacency="; ".join(relations),
        assumptions=of_runs(
            adaptive,
            settings,
            any(total.resumed for total in found),
            unit,
            verified=any(total.verified for total in found),
        ),
        reproduction=_reproduction(path, data, delta),
        versions=versions(),
        made=today(),
        group_size=min(sizes, default=1),
        about=signed.facts(),
        tuning=words("tuning", tuning, ""),
    )


def _claim(total: Total) -> Claim:
    return Claim(
        heading=f"All runs on “{total.data}”",
        epsilon=total.epsilon,
        delta=total.delta,
        adaptive=total.adaptive,
        settings=total.settings,
        how=total.method,
        kind=total.kind,
        failure=total.failure,
        runs=tuple(
            RunLine(
                run.begin.run,
                run.state,
                run.begin.steps,
                run.begin.guarantee.epsilon,
                run.begin.guarantee.delta,
                run.begin.mechanism,
                _run_digest(run.begin.fingerprint),
            )
            for run in total.runs
        ),
    )


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _run_digest(fingerprint: object) -> str:
    """The digest also in the reports of its mechanism and of its checkpoints, or empty text."""
    from mmcc.report._related_numbers import digest_of

    if not isinstance(fingerprint, dict):
        return ""
    parts = [fingerprint.get(name, "") for name in ("strategy", "sampling", "sigma")]
    known, _, strategy = parts[0].rpartition(" with digest ")
    return digest_of(strategy, *parts[1:]) if known and all(parts) else ""


def _states(found: list[Total]) -> str:
    runs = sum(len(total.runs) for total in found)
    ended, stopped, missing = (
        sum(total.states[name] for total in found) for name in ("ended", "stopped", "no_end")
    )
    return (
        f"{counted(runs, 'run')}: {ended} ended, {stopped} stopped early, {missing} without an end "
        "(killed, or still running); each counted in full"
    )


def _reproduction(path: str | Path, data: str | None, delta: float | None) -> Reproduction:
    name = printable(str(path), NAME)
    line = ["mmcc", "ledger", name]
    line += [] if data is None else ["--data", data]
    line += [] if delta is None else ["--delta", repr(delta)]
    share = "" if delta is None else f", delta={delta!r}"
    each = "" if delta is None else f", delta={delta!r} if data in history.plans else None"
    ask = f"print(ledger.total({data!r}{share}))"
    if data is None:
        ask = (
            "history = ledger.history()\nfor data in history.data_sets():\n"
            f"    print(ledger.total(data{each}))"
        )
    snippet = f"from mmcc.ledger import Ledger\n\nledger = Ledger({name!r})\n{ask}"
    note = f"{name} is the ledger as it was when this report was made; later runs add to it."
    return Reproduction(typed(line), snippet, (note,))
