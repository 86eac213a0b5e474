"""Claims of Sections 6.1 and 6.2: improvements by sampling for trees and counting."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise

from paper import binary_tree, continual_counting, improvement, prefix_error
from paper.claims import NO, OPEN, PARTLY, Finding, Tables, claim, verdict
from paper.records import Table
from paper.rounding import each_at_least, each_at_most, rounded_up

NAMES = {"mmcc_release": "release order", "mmcc_reversed": "root first", "upper": "ours"}
REVERSED = NAMES | {"mmcc_reversed": "last row first"}


def _lines(table: Table, analysis: str) -> dict[int, improvement.Line]:
    return {c: improvement.fit(table.where(c=c), analysis) for c in sorted(table.values("c"))}


def _listed(values: Mapping[int, float], form: str = ".3f") -> str:
    return ", ".join(f"{value:{form}}" for value in values.values())


def _cs(table: Table) -> str:
    return ", ".join(f"{c:g}" for c in sorted(table.values("c")))


def _growing(values: Mapping[int, float]) -> bool:
    found = list(values.values())
    return all(a < b for a, b in pairwise(found))


def _ends(table: Table, analysis: str) -> dict[int, float]:
    """The improvement at the largest n that every c has, by c."""
    table = improvement.comparable(table)
    n = int(table["n"].max())
    return {c: improvement.at(table, c, n, analysis) for c in sorted(table.values("c"))}


# ------------------------------------------------------------------------------------- Section 6.1


@claim("6.1")
def tree_fixed(tables: Tables) -> Finding:
    """Without amplification the tree has one epsilon for all n that are powers of 2."""
    return _fixed_without(tables["tree"])


def _fixed_without(table: Table) -> Finding:
    words, spread = [], 0.0
    for c in sorted(table.values("c")):
        plain = table.where(c=c)["unamplified"]
        spread = max(spread, float(plain.max() / plain.min() - 1))
        words.append(f"{rounded_up(plain.max())} at c = {c:g}")
    return verdict(spread < 1e-6), f"{', '.join(words)}, whatever n"


@claim("6.1")
def tree_falls(tables: Tables) -> Finding:
    """With subsampling we expect epsilon to decrease as Omega(sqrt(log n))."""
    table = improvement.comparable(tables["tree"])
    words, good = [], []
    for analysis, name in NAMES.items():
        factors = []
        for c in sorted(table.values("c")):
            found = table.where(c=c).ordered("n")[analysis]
            good.append(bool((found[1:] < found[:-1]).all()))
            factors.append(found[0] / found[-1])
        words.append(f"{name} {', '.join(f'{factor:.3f}' for factor in factors)}")
    first, last = int(table["n"].min()), int(table["n"].max())
    root = math.sqrt((math.log2(last) + 1) / (math.log2(first) + 1))
    return (
        verdict(*good),
        f"epsilon falls at every doubling of n in {sum(good)} of {len(good)} curves; by these "
        f"factors from n = {first} to {last}, c = {_cs(table)}: {'; '.join(words)} (below 1: it "
        f"rises).  sqrt(log2 n + 1) grows by {root:.3f} there; a constant is not part of the claim",
    )


@claim("6.1 and Figure 1")
def tree_shape(tables: Tables) -> Finding:
    """Improvement in epsilon is roughly proportional to sqrt(log(n) + 1)."""
    table = tables["tree"]
    words, good = [], []
    for analysis, name in NAMES.items():
        some = _lines(table, analysis)
        good.append(binary_tree.improves(table, analysis))
        words.append(
            f"{name}: slopes {_listed({c: line.slope for c, line in some.items()})}, R^2 "
            f"{_listed({c: line.r_squared for c, line in some.items()}, '.4f')}"
        )
    matching = [name for name, fits in zip(NAMES.values(), good, strict=True) if fits]
    return (
        verdict(*good),
        f"c = {_cs(table)}; {'; '.join(words)}.  A rising line and a ratio above 1 at "
        f"the largest n, for every c: {' and '.join(matching)}",
    )


@claim("6.1")
def tree_grows(tables: Tables) -> Finding:
    """As c increases the multiplicative improvement in epsilon increases."""
    table = improvement.comparable(tables["tree"])
    good, words = [], []
    for analysis, label in NAMES.items():
        by_n = [
            {c: improvement.at(table, c, n, analysis) for c in sorted(table.values("c"))}
            for n in table.values("n")
        ]
        good.append(all(_growing(some) for some in by_n))
        words.append(f"{label} {each_at_least(_ends(table, analysis).values())}")
    n = int(table["n"].max())
    return verdict(*good), f"c = {_cs(table)}, n = {n}: {'; '.join(words)} times"


@claim("6.1")
def tree_fits(tables: Tables) -> Finding:
    """As c increases the improvements better match a linear fit."""
    return _better_fit(tables["tree"], NAMES)


def _better_fit(table: Table, names: Mapping[str, str]) -> Finding:
    good, words = [], []
    for analysis, label in names.items():
        some = {c: line.r_squared for c, line in _lines(table, analysis).items()}
        good.append(_growing(some))
        words.append(f"{label} {_listed(some, '.4f')}")
    return verdict(*good), f"R^2 at c = {_cs(table)}: {'; '.join(words)}"


@claim("6.1")
def tighter_with_noise(tables: Tables) -> Finding:
    """As sigma grows MMCC reports a tighter epsilon."""
    table = improvement.comparable(tables["tree"])
    n = int(table["n"].max())
    words, good = [], []
    for analysis in ("mmcc_release", "mmcc_reversed"):
        over = {row["c"]: row[analysis] / row["lower"] for row in table.where(n=n).rows}
        over = dict(sorted(over.items()))
        good.append(_growing({c: -value for c, value in over.items()}))
        words.append(f"{NAMES[analysis]} {each_at_most(over.values())}")
    told = f"MMCC over the lower bound at n = {n}, c = {_cs(table)}: {'; '.join(words)}"
    return verdict(*good), told


# ------------------------------------------------------------------------------------- Section 6.2


@claim("6.2")
def counting_fixed(tables: Tables) -> Finding:
    """Sigma = c times the norm of the first column results in a fixed epsilon."""
    return _fixed_without(tables["counting"])


@claim("6.2, Figure 2")
def column_norm(tables: Tables) -> Finding:
    """sqrt(log(n) + 1) is about the norm of the first column."""
    table = continual_counting.in_the_paper(tables["counting"])
    rows = table.where(c=table.values("c")[0]).ordered("n").rows
    first, last = rows[0], rows[-1]
    roots = [math.sqrt(math.log2(row["n"]) + 1) for row in (first, last)]
    near = [
        abs(row["column_norm"] / root - 1) < 0.1
        for row, root in zip((first, last), roots, strict=True)
    ]
    return (
        verdict(*near),
        f"n = {first['n']}: norm {first['column_norm']:.3f} against {roots[0]:.3f}; n = "
        f"{last['n']}: {last['column_norm']:.3f} against {roots[1]:.3f}.  Its square grows with "
        "log n too, but with a smaller factor",
    )


@claim("6.2")
def norm_growth(tables: Tables) -> Finding:
    """The norms of the columns are Theta(sqrt(log n))."""
    table = tables["counting"]
    rows = table.where(c=table.values("c")[0]).ordered("n").rows
    per = [
        (b["column_norm"] ** 2 - a["column_norm"] ** 2) / math.log2(b["n"] / a["n"])
        for a, b in ((rows[0], rows[1]), (rows[-2], rows[-1]))
    ]
    return (
        verdict(per[-1] > 0.1),
        f"the squared norm grows by {per[0]:.4f} at the first doubling of n and still by "
        f"{per[1]:.4f} at the last (n = {rows[-1]['n']})",
    )


def _shared(tables: Tables) -> list[tuple[int, int]]:
    """Points that both figures of the paper have."""
    of_tree = {(row["c"], row["n"]) for row in tables["tree"].rows}
    papers = continual_counting.in_the_paper(tables["counting"])
    return sorted((row["c"], row["n"]) for row in papers.rows if (row["c"], row["n"]) in of_tree)


@claim("6.2")
def less_orthogonal(_: Tables) -> Finding:
    """The columns of the counting matrix are less orthogonal than those of the tree's."""
    return OPEN, "no study computes overlaps of columns; the claims that follow from it are below"


@claim("6.2")
def smaller_error(tables: Tables) -> Finding:
    """The counting matrices improve on the error of the binary tree by a constant."""
    n = prefix_error.STEPS
    errors = {}
    for name, study in (("counting", "counting"), ("tree", "tree")):
        rows = tables["prefix-sums"].where(strategy=name).having("rmse").rows
        norms = tables[study].where(n=n).rows
        if not rows or not norms:
            return OPEN, f"n = {n} has not been run"
        errors[name] = rows[0]["rmse"] / rows[0]["sigma"] * norms[0]["column_norm"]
    ratio = errors["tree"] / errors["counting"]
    return (
        PARTLY if ratio > 1 else NO,
        f"n = {n}, one participation, no sampling: the tree's error (decoded causally) is "
        f"{ratio:.3f} times that of counting.  That it is a constant is not measured: there is "
        "one n",
    )


@claim("6.2")
def less_room(tables: Tables) -> Finding:
    """The amount by which its analysis can improve is smaller than for the binary tree."""
    points = _shared(tables)
    of_tree = [improvement.at(tables["tree"], c, n, "lower") for c, n in points]
    of_counting = [improvement.at(tables["counting"], c, n, "lower") for c, n in points]
    less = [mine < other for mine, other in zip(of_counting, of_tree, strict=True)]
    c, n = points[-1]
    return (
        verdict(*less),
        f"by the lower bound on epsilon, whatever the analysis: smaller at {sum(less)} of "
        f"{len(less)} points of both figures; at c = {c:g}, n = {n} at most "
        f"{each_at_most((of_counting[-1], of_tree[-1]))} times (counting, tree)",
    )


@claim("6.2")
def less_than_tree(tables: Tables) -> Finding:
    """There is less benefit from amplification than for the binary tree."""
    points = _shared(tables)
    words, good = [], []
    for analysis, name in NAMES.items():
        less = [
            improvement.at(tables["counting"], c, n, analysis)
            < improvement.at(tables["tree"], c, n, analysis)
            for c, n in points
        ]
        good += less
        words.append(f"{name} {sum(less)} of {len(less)}")
    return (
        verdict(*good),
        "points (c, n) of both figures at which counting improves less than the tree: "
        f"{'; '.join(words)}",
    )


@claim("6.2")
def smaller_slope(tables: Tables) -> Finding:
    """The constant multiplier in the improvement is smaller."""
    words, good = [], []
    points = _shared(tables)
    several = sorted({c for c, _ in points})
    steps = {n for _, n in points}
    for analysis, name in NAMES.items():
        pairs = []
        for c in several:
            slopes = [
                improvement.fit(
                    Table(tuple(r for r in tables[study].where(c=c).rows if r["n"] in steps)),
                    analysis,
                ).slope
                for study in ("counting", "tree")
            ]
            pairs.append(slopes)
        good.append(all(mine < other for mine, other in pairs))
        told = ", ".join(f"{mine:.3f} against {other:.3f}" for mine, other in pairs)
        words.append(f"{name} {told}")
    return (
        verdict(*good),
        f"slopes, counting against tree, n up to {max(steps)}, c = "
        f"{', '.join(map(str, several))}: {'; '.join(words)}",
    )


@claim("6.2")
def counting_shape(tables: Tables) -> Finding:
    """For sufficiently large sigma again roughly proportional to sqrt(log(n) + 1)."""
    table = tables["counting"]
    largest = max(table.values("c"))
    words, good = [], []
    for analysis, name in REVERSED.items():
        near = improvement.fit(continual_counting.in_the_paper(table).where(c=largest), analysis)
        far = improvement.fit(table.where(c=largest), analysis)
        good.append(near.slope > 0 and near.r_squared > 0.9)
        words.append(f"{name} {near.r_squared:.4f} and {far.r_squared:.4f}")
    return (
        verdict(*good),
        f"c = {largest:g}, R^2 up to n = {continual_counting.PAPER} and up to n = "
        f"{table['n'].max():.0f}: {'; '.join(words)}",
    )


@claim("6.2")
def counting_fits(tables: Tables) -> Finding:
    """The fit of the linear regression is better as sigma increases."""
    return _better_fit(continual_counting.in_the_paper(tables["counting"]), REVERSED)


@claim("6.2")
def larger_c_needed(tables: Tables) -> Finding:
    """A larger value of c is needed for the fit to improve."""
    words, good = [], []
    points = _shared(tables)
    steps = {n for _, n in points}
    for analysis, name in NAMES.items():
        found = {}
        for c in sorted({c for c, _ in points}):
            found[c] = [
                improvement.fit(
                    Table(tuple(r for r in tables[study].where(c=c).rows if r["n"] in steps)),
                    analysis,
                ).r_squared
                for study in ("counting", "tree")
            ]
        good.append(all(mine < other for mine, other in found.values()))
        told = ", ".join(f"{mine:.4f} against {other:.4f}" for mine, other in found.values())
        words.append(f"{name} {told}")
    return (
        verdict(*good),
        f"R^2, counting against tree at the same c = {', '.join(map(str, found))}, n up to "
        f"{max(steps)}: {'; '.join(words)}",
    )
