"""How fast the explorer is: the tables of docs/explore.md.

    python benchmarks/explore.py brackets     # processor seconds of a bracket at 1000 steps
    python benchmarks/explore.py redraw       # clock: first redraw, and complete, as a page asks

`redraw` asks as a page does, again and again until everything is known, and moves sigma by 5 % at
the end: most of the curve is then known.  Neither has a limit; the machine may be busy.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

from mmcc.errors import MmccError
from mmcc.explore import answers, views
from mmcc.explore.desk import Desk
from mmcc.explore.settings import DEFAULTS, read

STEPS = "1000"
STRATEGIES = (
    {"strategy": "identity"},
    {"strategy": "binary-tree"},
    {"strategy": "tree-restart", "height": "5"},
    {"strategy": "continual-counting"},
    {"strategy": "banded-toeplitz", "bands": "8"},
    {"strategy": "banded-toeplitz", "bands": "64"},
    {"strategy": "blt", "buffers": "1"},
    {"strategy": "blt", "buffers": "3"},
)
SCHEMES = (
    {"scheme": "poisson", "prob": "1/1000"},
    {"scheme": "poisson", "prob": "0.01"},
    {"scheme": "cyclic-poisson", "prob": "0.08", "separation": "8"},
    {"scheme": "balls-in-bins", "bins": "100"},
    {"scheme": "balls-in-bins", "bins": "1000"},
)


def name(choice: dict[str, str]) -> str:
    return " ".join(choice.values())


def controls(strategy: dict[str, str], scheme: dict[str, str], columns: float) -> dict[str, str]:
    """The values on the page, with so many column norms of noise."""
    values = {**DEFAULTS, "steps": STEPS, **strategy, **scheme}
    norm = read(values).build_strategy().sensitivity(int(STEPS))
    return values | {"sigma": f"{columns * norm:.4g}"}


def warm() -> None:
    """Kernels are loaded, or compiled, when they are first used."""
    for strategy in STRATEGIES:
        for scheme in SCHEMES:
            values = controls(strategy, scheme, 4) | {"steps": "16", "bins": "4", "bands": "4"}
            answers.certified_bracket(read(values | {"height": "3"}))


def bracket_seconds(values: dict[str, str]) -> str:
    start = time.process_time()
    try:
        answers.certified_bracket(read(values))
    except MmccError as refusal:
        return str(refusal)
    return f"{time.process_time() - start:.2f}"


def bracket_lines() -> Iterator[str]:
    yield f"| | {' | '.join(name(scheme) for scheme in SCHEMES)} |"
    yield "|---" * (len(SCHEMES) + 1) + "|"
    for strategy in STRATEGIES:
        cells = [
            ", ".join(bracket_seconds(controls(strategy, scheme, columns)) for columns in (2, 8))
            for scheme in SCHEMES
        ]
        yield f"| {name(strategy)} | {' | '.join(cells)} |"


def redraw(values: dict[str, str], desk: views.Answers) -> tuple[float, float, float]:
    """Seconds until the first redraw, until the tight number, until everything."""
    start = time.perf_counter()
    first = tight = 0.0
    while True:
        view = views.privacy_view(values, desk)
        views.other_view(values)
        now = time.perf_counter() - start
        first = first or now
        if not tight and not view["epsilon"].startswith("≤"):
            tight = now
        if not view["unfinished"]:
            return first, tight, now


def redraw_lines() -> Iterator[str]:
    yield "| | first redraw | tight number | complete | after a move of 5 % |"
    yield "|---|---|---|---|---|"
    desk: views.Answers = Desk(answers.answer)
    for strategy in STRATEGIES:
        for scheme in SCHEMES:
            values = controls(strategy, scheme, 8)
            moved = values | {"sigma": f"{1.05 * float(values['sigma']):.4g}"}
            cells = [*redraw(values, desk), redraw(moved, desk)[2]]
            shown = " | ".join(f"{cell:.2f}" for cell in cells)
            yield f"| {name(strategy)}, {name(scheme)} | {shown} |"
    desk.close()


TABLES = {"brackets": bracket_lines, "redraw": redraw_lines}


def main() -> None:
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    if wanted not in TABLES:
        raise SystemExit(f"choose a table: {', '.join(TABLES)}")
    warm()
    for line in TABLES[wanted]():
        print(line, flush=True)


if __name__ == "__main__":
    main()
