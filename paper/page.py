"""Write docs/reproduction.md from the CSVs in docs/figures: python -m paper.page.

No result on that page is typed by hand: all come from the tables.
"""

from __future__ import annotations

from pathlib import Path

from paper import (
    STUDIES,
    claims_beyond,  # noqa: F401  registers its claims
    claims_improvement,  # noqa: F401
    claims_training,  # noqa: F401
    improvement,
    learning,
)
from paper.claims import claims
from paper.records import Table
from paper.rounding import at_least
from paper.study import Study

DOCS = Path(__file__).parents[1] / "docs"
FIGURES = DOCS / "figures"
LINES = (
    ("mmcc_reversed", "the paper's algorithm root first", 0.98),
    ("upper", "ours", 0.99),
)
RATIOS = {5: 1.447, 10: 1.943, 20: 2.167}
"""The least that the paper's algorithm, root first, and ours must reach."""
OPENING = """# The paper, reproduced

    python -m paper                               # list the studies
    python -m paper all --quick --out figures     # a part of the points, minutes
    python -m paper tree --out figures            # one study, all its points

The studies are in the folder `paper/` of the repository, not in the package: run them at the top of
a checkout, with mmcc installed.  They use only its public names, like any other program.

Each study writes `NAME.csv`, `NAME.png` and `NAME.md` (what it shows, and what each column is:
given, certified or estimated).  Points are appended to the CSV as they come; a study that was
stopped continues where it was, and points already there are not computed again (delete the CSV to
start over).  Pictures need matplotlib: `pip install 'mmcc[plot]'`.  From Python:
`paper.STUDIES["tree"].run("figures", quick=True)`.

`cifar10` trains: it needs `pip install 'mmcc[train]'` and the images, `--data DIR` with
`cifar-10-batches-py` or `cifar-10-batches-bin`; `python -m paper.fetch_cifar10 DIR` fetches them
with npm and checks them against the published checksums.  Without either, `all` says so and leaves
it out.  Its {runs} runs take about two hours on two cores, and each is kept when it ends; with
glibc, `MALLOC_TRIM_THRESHOLD_=4000000000 MALLOC_MMAP_THRESHOLD_=4000000000` in the environment
saves a third of the time, which is otherwise spent on requesting the same memory again.

The paper's figures were published without their data.  The CSVs in [figures](figures) drew
everything on this page, and `python -m paper.page` writes this page from them: no result is typed
by hand, except for the promises, the meaning assumed for words like "dramatically", and the paper's
numbers.  "Certified" means proven, rounding included, and printed digits are rounded to the safe
side; estimates are Monte Carlo intervals, not proofs.
"The paper's algorithm" is method `mmcc` with rows in the stated order; "ours" is method `tight`
of 0.9.0, and some of it has become smaller since ([how tight](tightness.md)).
Method `mmcc` is not the same bound at every n.  {tails}
*speed* and *counting* show the step.

The tests compare points of a fresh run with these files, and (`pytest -m slow`) all points of
`python -m paper all --quick`, which must take less than ten minutes.  What the studies must show:
"""


def tables() -> dict[str, Table]:
    """The computed tables, by the name of the study."""
    return {
        study.name: study.record(FIGURES).read().ordered(*study.keys) for study in STUDIES.values()
    }


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
    """The points of the full study that have not been computed."""
    known = {tuple(row[key] for key in study.keys) for row in table.rows}
    points = [tuple(point[key] for key in study.keys) for point in study.points(False)]
    left = [f"({', '.join(map(str, point))})" for point in points if point not in known]
    if not left:
        return ""
    return f"\n\nNot computed ({', '.join(study.keys)}): {', '.join(left)}."


def _trained() -> int:
    """The number of full runs in the learning study."""
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
    for study in STUDIES.values():
        table = known[study.name]
        parts.append(
            f"## {study.title}\n\n`python -m paper {study.name}` "
            f"([points](figures/{study.name}.csv), "
            f"{len(table)} of {len(study.points(False))}; [columns](figures/{study.name}.md))\n\n"
            f"![{study.title}](figures/{study.name}.png)\n\n{study.describe(table)}\n\n"
            f"{study.assumed}{missing(study, table)}\n"
        )
    return "\n".join(parts)


if __name__ == "__main__":
    (DOCS / "reproduction.md").write_text(page(), encoding="utf-8")
