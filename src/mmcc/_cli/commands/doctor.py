"""The command `mmcc doctor`: checks the installation, and says what to do about problems.

Exit codes: 0 everything required works, 1 something is broken.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from click.exceptions import Exit

from mmcc._cli import output
from mmcc._cli.command import Command
from mmcc._cli.question_options import JSON

if TYPE_CHECKING:
    from mmcc._doctor import Check

SOMETHING_BROKEN = 1


def run(as_json: bool) -> None:
    import mmcc
    from mmcc import _doctor as doctor

    start = time.perf_counter()
    checks = doctor.examine()
    seconds, works = time.perf_counter() - start, doctor.works(checks)
    if as_json:
        content = {
            "version": mmcc.__version__,
            "works": works,
            "checks": [check.to_dict() for check in checks],
            "seconds": round(seconds, 3),
        }
        print(json.dumps(content, indent=2, allow_nan=False))
    else:
        _print(checks, seconds, works)
    if not works:
        raise Exit(SOMETHING_BROKEN)


def _print(checks: Sequence[Check], seconds: float, works: bool) -> None:
    from rich.markup import escape
    from rich.table import Table

    styles = {"ok": "green", "broken": "bold red", "not installed": "dim", "note": "yellow"}
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("checked", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("seen, and what to do", overflow="fold")
    for check in checks:
        style = styles[check.state]
        table.add_row(check.name, f"[{style}]{check.state}[/{style}]", escape(check.seen))
        if check.remedy:
            table.add_row("", "", escape(check.remedy))
    paper = output.console()
    paper.print(table)
    verdict = "all that is needed works" if works else "SOMETHING IS BROKEN: see above"
    paper.print(f"\n{verdict} ({seconds:.1f} s)")


COMMAND = Command(
    "doctor",
    run,
    JSON,
    help="Check this installation: versions, compiled kernels, a known epsilon, optional packages.",
    example="mmcc doctor",
)
