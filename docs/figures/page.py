"""Write docs/reproduction.md from the CSVs beside this file: python docs/figures/page.py.

No result on that page is typed by hand: all come from the tables.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import claims_beyond  # noqa: E402, F401  registers its claims
import claims_improvement  # noqa: E402, F401
import claims_training  # noqa: E402, F401
from claims import claims  # noqa: E402

from mmcc.studies import (  # noqa: E402
    binary_tree,
    brackets,
    continual_counting,
    groups,
    improvement,
    learning,
    linear_losses,
    prefix_error,
    restarted_tree,
    shuffling,
    timing,
)
from mmcc.studies.records import Table  # noqa: E402
from mmcc.studies.rounding import at_least  # noqa: E402
from mmcc.studies.study import Study  # noqa: E402

STUDIES = tuple(
    module.STUDY
    for module in (
        binary_tree,
        continual_counting,
        restarted_tree,
        prefix_error,
        learning,
        groups,
        linear_losses,
        shuffling,
        brackets,
        timing,
    )
)
LINES = (
    ("mmcc_reversed", "the paper's algorithm root first", 0.98),
    ("upper", "ours", 0.99),
)
RATIOS = {5: 1.447, 10: 1.943, 20: 2.167}
"""What the paper's algorithm must reach, root first, and what ours must not fall below."""
OPENING = """# The paper, reproduced

    mmcc reproduce all --quick --out figures      # a part of the points, minutes
    mmcc reproduce tree --out figures             # one study, all its points

Each study writes `NAME.csv`, `NAME.png` and `NAME.md` (what it shows, and what each column is:
given, certified or estimated).  Points are appended to the CSV as they come; a study that was
stopped goes on where it was, and points that are there are not computed again (delete the CSV to
start afresh).  Pictures need matplotlib: `pip install 'mmcc[plot]'`.  From Python:
`mmcc.studies.tree("figures", quick=True)`.

`cifar10` trains: it needs `pip install 'mmcc[train]'` and the images, `--data DIR` with
`cifar-10-batches-py` or `cifar-10-batches-bin`; `python scripts/fetch_cifar10.py DIR` fetches them
with npm and checks them against the published checksums.  Without either, `all` says so and leaves
it out.  Its {runs} runs take about two hours on two cores, and each is kept when it ends; with
glibc, `MALLOC_TRIM_THRESHOLD_=4000000000 MALLOC_MMAP_THRESHOLD_=4000000000` in the environment
saves a third of the time, which goes into asking for the same memory again.

The paper's figures were published without their data.  The CSVs in [figures](figures) drew
everything on this page, and `docs/figures/page.py` writes this page from them: no result is typed
by hand (promises, what a word like "dramatically" is taken to mean, and the paper's numbers are).
"Certified" is proven, rounding included, and few digits are rounded to the safe side; estimates are
Monte Carlo intervals, not proofs.
"The paper's algorithm" is method `mmcc` with rows in the order said; "ours" is method `tight`.
Method `mmcc` is not the same bound at every n.  {tails}
*speed* and *counting* show the step.

The tests compare points of a fresh run with these files, and (`pytest -m slow`) all points of
`mmcc reproduce all --quick`, which must take less than ten minutes.  What the studies must show:
"""


def tables() -> dict[str, Table]:
    """What has been computed, by the name of the study."""
    return {study.name: study.record(HERE).read().ordered(*study.keys) for study in STUDIES}


def promises(tree: Table) -> str:
    """What the tree must show, and what it shows."""
    n = int(improvement.comparable(tree)["n"].max())
    rows = ["| promise | found | holds? |", "|---|---|---|"]
    for analysis, name, least in LINES:
        line = improvement.fit(tree.where(c=20), analysis)
        rows.append(
            f"| tree, c = 20, {name}: a line in sqrt(log2 n + 1) with R^2 > {least} | "
            f"{at_least(line.r_squared, 4)} | {'yes' if line.r_squared > least else 'no'} |"
        )
    for analysis, name, _ in LINES:
        for c, least in RATIOS.items():
            found = improvement.at(tree, c, n, analysis)
            holds = round(found, 3) >= least
            rows.append(
                f"| tree, c = {c}, n = {n}, {name}: improvement {least} to three digits, or more | "
                f"{at_least(found, 5)} | {'yes' if holds else 'no'} |"
            )
    return "\n".join(rows) + "\n"


def missing(study: Study, table: Table) -> str:
    """Which points of the full study have not been computed."""
    known = {tuple(row[key] for key in study.keys) for row in table.rows}
    points = [tuple(point[key] for key in study.keys) for point in study.points(False)]
    left = [f"({', '.join(map(str, point))})" for point in points if point not in known]
    if not left:
        return ""
    return f"\n\nNot computed ({', '.join(study.keys)}): {', '.join(left)}."


def _trained() -> int:
    """How many runs of all steps the learning study has."""
    return sum(point["trained"] == learning.STEPS for point in learning.STUDY.points(False))


def page() -> str:
    """The whole page."""
    known = tables()
    opening = OPENING.format(runs=_trained(), tails=improvement.TAILS)
    parts = [opening, promises(known["tree"]), "## Claim by claim\n"]
    parts.append(
        "Sentences of the paper's Section 6 and Appendix B that make an empirical claim "
        "(shortened), and three of its Sections 5 and 7.\n"
    )
    rows = ["| section | claim of the paper | what we find | agrees? |", "|---|---|---|---|"]
    for claim in claims():
        agrees, text = claim.found(known)
        rows.append(f"| {claim.section} | {claim.quote} | {text} | {agrees} |")
    parts.append("\n".join(rows) + "\n")
    for study in STUDIES:
        table = known[study.name]
        parts.append(
            f"## {study.title}\n\n`mmcc reproduce {study.name}` "
            f"([points](figures/{study.name}.csv), "
            f"{len(table)} of {len(study.points(False))}; [columns](figures/{study.name}.md))\n\n"
            f"![{study.title}](figures/{study.name}.png)\n\n{study.tell(table)}\n\n"
            f"{study.assumed}{missing(study, table)}\n"
        )
    return "\n".join(parts)


if __name__ == "__main__":
    (HERE.parent / "reproduction.md").write_text(page(), encoding="utf-8")
