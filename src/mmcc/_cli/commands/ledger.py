"""The command `mmcc ledger`: composes a file of runs into one guarantee for each data set.

Rounding: epsilons and deltas are rounded up in print; JSON has them as computed.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from mmcc._cli import output
from mmcc._cli.command import GUARANTEE, NUMBER, QUESTION, TEXT, Argument, Command, Option
from mmcc._cli.parsing import UsageError
from mmcc._cli.question_options import JSON

if TYPE_CHECKING:
    from mmcc.ledger import Total


def run(file: str, data: str | None, delta: float | None, as_json: bool) -> None:
    from mmcc.ledger import Ledger
    from mmcc.ledger._total import totals

    history = Ledger(file).history()
    if data is None and not history.data_sets():
        raise UsageError(f"the ledger {file!r} is empty: it has no runs.")
    with output.progress_bar() as progress:
        start = time.perf_counter()
        found = totals(history, data, delta=delta, progress=progress)
        seconds = time.perf_counter() - start
    if as_json:
        content = {
            "file": file,
            "lines": history.lines,
            "data_sets": [total.to_dict() for total in found],
            "seconds": round(seconds, 3),
        }
        print(json.dumps(content, indent=2, allow_nan=False))
        return
    for total in found:
        print(total)
    if len(found) == 1:
        _print_runs(found[0])


def _print_runs(found: Total) -> None:
    """Print each run, what became of it, and the guarantee it began with."""
    for run in found.runs:
        begin = run.begin
        print(f"\nrun {begin.run}: {run.state}; {begin.steps} steps, {begin.mechanism}")
        print(f"  {begin.guarantee}")


COMMAND = Command(
    "ledger",
    run,
    Argument("file", "The ledger: JSON lines.", "FILE"),
    Option("--data", TEXT, QUESTION, "Only this data set; default: all of them."),
    Option("--delta", NUMBER, GUARANTEE, "Delta of the plan; default: the sum of its deltas."),
    JSON,
    help="Print what all runs on a data set amount to: one guarantee, killed runs included.",
    example="mmcc ledger runs.jsonl --data patients",
)
