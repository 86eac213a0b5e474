"""The command `mmcc ledger`: a file into one guarantee for each data set.

In: the options as typed.  Out: a line for each data set and, for a single one, its runs; or one
JSON object on stdout.  Rounding: epsilons and deltas are rounded up in print; JSON has them as
computed.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from mmcc._cli import output
from mmcc._cli.words import UsageError, number

if TYPE_CHECKING:
    from mmcc.ledger import Total


def show_ledger(file: str, data: str | None, delta: str | None, as_json: bool) -> None:
    """Read and check the file, compose the runs of each data set, print what they amount to."""
    from mmcc.ledger import Ledger
    from mmcc.ledger._total import totals

    share = None if delta is None else number("delta", delta)
    history = Ledger(file).history()
    if data is None and not history.data_sets():
        raise UsageError(f"no run is known: the ledger {file!r} is empty.")
    with output.progress_bar() as progress:
        start = time.perf_counter()
        found = totals(history, data, delta=share, progress=progress)
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
    """Each run with what became of it, and the guarantee it began with."""
    for run in found.runs:
        begin = run.begin
        print(f"\nrun {begin.run}: {run.state}; {begin.steps} steps, {begin.mechanism}")
        print(f"  {begin.guarantee}")
