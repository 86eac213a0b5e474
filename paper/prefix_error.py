"""From which epsilon on correlated noise beats independent noise, by each analysis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import mmcc
from mmcc import sampling, strategies
from mmcc.errors import MmccError
from mmcc.strategies import Strategy
from paper.drawing import STYLES, epsilon_at, legend_below, plain_numbers
from paper.records import Row, Table
from paper.rounding import at_least
from paper.study import Study

STEPS, DELTA = 512, 1e-6
PARTS = (16, 512)
"""One over the rate: the paper's section's, and one participation on average."""
EPSILONS = {16: (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0), 512: (0.125, 0.25, 0.5, 1.0, 2.0)}
"""With one participation and little noise, at larger epsilon, bounds take minutes."""
QUICK_PARTS, QUICK = (16,), (1.0, 8.0)
BANDS = {16: (2, 4, 8, 12), 512: (2, 4, 8, 16, 32, 64, 128)}
CLOSE, MARGIN = 0.99, 2e-3
"""A win is against the noise below which independent noise cannot reach the target, if that is
known within 1 %; else against its certified noise less 0.2 %, more than its bound ever lost."""
FULL = ("counting", "blt", "tree")
QUICK_FULL = ("counting",)
LARGEST_TUNED = 4.0
"""Beyond this epsilon the noise of a BLT is so small that the paper's algorithm takes minutes."""
FOR_THE_PAPER = ((16, 1.0), (16, 4.0))
"""Targets for which a BLT is also searched with the paper's algorithm, a minute of work each."""
METHODS: Mapping[str, dict[str, Any]] = {
    "ours": {"method": "tight"},
    "mmcc_release": {"method": "mmcc", "order": "release"},
    "mmcc_reversed": {"method": "mmcc", "order": "reversed"},
}
LABELS = {
    "independent": "independent noise (DP-SGD), Poisson",
    "cyclic": "bands, cyclic Poisson, best separation",
    "mmcc_release": "full matrix, Poisson, paper's algorithm, release order",
    "mmcc_reversed": "full matrix, Poisson, paper's algorithm, reverse order",
    "ours": "full matrix, Poisson, ours",
}


def _each_point(quick: bool) -> Iterator[Row]:
    """Points in order: cheap and informative ones first."""
    parts = QUICK_PARTS if quick else PARTS
    full = QUICK_FULL if quick else FULL
    targets = [(part, e) for part in parts for e in (QUICK if quick else EPSILONS[part])]
    for part, epsilon in targets:
        yield _point(part, epsilon, "independent", "identity")
        for bands in BANDS[part]:
            yield _point(part, epsilon, "cyclic", f"{bands} bands")
    for strategy in full:
        for analysis in METHODS:
            for part, epsilon in targets:
                if strategy != "blt" or analysis == "ours" or epsilon <= LARGEST_TUNED:
                    yield _point(part, epsilon, analysis, strategy)
    if not quick:
        for part, epsilon in FOR_THE_PAPER:
            yield _point(part, epsilon, "mmcc_release", "blt for mmcc")


def _point(part: int, epsilon: float, analysis: str, strategy: str) -> Row:
    return {"part": part, "epsilon": epsilon, "analysis": analysis, "strategy": strategy}


def _points(quick: bool) -> list[Row]:
    return list(_each_point(quick))


def _measure(point: Row) -> Row:
    from mmcc import utility

    part, epsilon, analysis = point["part"], point["epsilon"], point["analysis"]
    least, _ = _independent(part, epsilon)
    try:
        strategy, scheme, how = _mechanism(part, epsilon, analysis, point["strategy"])
        found = mmcc.sigma(strategy, scheme, epsilon=epsilon, delta=DELTA, **how)
    except MmccError:  # this analysis proves nothing here
        return {**point, "detail": None, "sigma": None, "rmse": None, "saving": None}
    error = utility.rmse(strategy, found.sigma)
    return {
        **point,
        "detail": repr(strategy),
        "sigma": found.sigma,
        "rmse": error,
        "saving": 1 - error / least,
    }


@cache
def _independent(part: int, epsilon: float) -> tuple[float, float]:
    """RMSE of independent noise: at the noise that no method can undercut, and certified."""
    from mmcc import utility

    plain = strategies.identity(STEPS)
    found = mmcc.sigma(plain, sampling.Poisson(1 / part), epsilon=epsilon, delta=DELTA)
    certified = utility.rmse(plain, found.sigma)
    least = found.details.get("sigma_lower", 0.0)
    if least < CLOSE * found.sigma:
        least = (1 - MARGIN) * found.sigma
    return certified * least / found.sigma, certified


def _mechanism(
    part: int, epsilon: float, analysis: str, name: str
) -> tuple[Strategy, sampling.Poisson | sampling.CyclicPoisson, dict[str, Any]]:
    """Strategy, scheme and analysis of a point."""
    everywhere = sampling.Poisson(1 / part)
    if analysis == "independent":
        return strategies.identity(STEPS), everywhere, {"method": "tight"}
    if analysis == "cyclic":
        bands = int(name.split()[0])
        in_turn = sampling.CyclicPoisson(bands / part, bands)
        return strategies.banded_toeplitz(STEPS, bands), in_turn, {"method": "mmcc"}
    how = METHODS[analysis]
    if name == "counting":
        return strategies.continual_counting(STEPS), everywhere, how
    if name == "tree":
        return strategies.binary_tree(STEPS), everywhere, how
    method = "mmcc" if name.endswith("mmcc") else "tight"
    return _tuned(part, epsilon, method), everywhere, how


@cache
def _tuned(part: int, epsilon: float, method: str) -> Strategy:
    """The one-buffer BLT found for a target by a bound."""
    from mmcc.design import TunedBlt  # takes a second to import

    return TunedBlt(STEPS).tune(sampling.Poisson(1 / part), epsilon, DELTA, method)


def best(table: Table, part: int, analysis: str) -> Table:
    """For each epsilon, the strategy with the least error."""
    some = table.where(part=part, analysis=analysis).having("rmse")
    several = (some.where(epsilon=epsilon).rows for epsilon in sorted(some.values("epsilon")))
    return Table(tuple(min(rows, key=lambda row: float(row["rmse"])) for rows in several))


def first_win(table: Table, part: int, analysis: str) -> Row | None:
    """The smallest epsilon at which a strategy has less error than independent noise can have."""
    rows = [row for row in best(table, part, analysis).rows if row["saving"] > 0]
    return rows[0] if rows else None


def tried(table: Table, part: int, analysis: str) -> dict[str, list[float]]:
    """The epsilons at which each strategy was computed under an analysis."""
    some = table.where(part=part, analysis=analysis)
    return {name: sorted(some.where(strategy=name).values("epsilon")) for name in _named(some)}


def _named(table: Table) -> list[str]:
    """Strategies: fixed ones first, then those tuned for the target."""
    return sorted(table.values("strategy"), key=lambda name: (name.startswith("blt"), name))


def tuned_for(table: Table, part: int, analysis: str) -> list[float]:
    """The epsilons at which a matrix was searched with the bound that then accounts for it."""
    own = "blt" if analysis == "ours" else "blt for mmcc"
    orders = (analysis,) if analysis == "ours" else tuple(METHODS)
    found = (tried(table, part, order).get(own, []) for order in orders)
    return sorted({epsilon for some in found for epsilon in some})


def _describe(table: Table) -> str:
    words = []
    for part in sorted(table.values("part")):
        epsilons = sorted(table.where(part=part).values("epsilon"))
        told = []
        for analysis in ("cyclic", *METHODS):
            row = first_win(table, part, analysis)
            told.append(
                f"{LABELS[analysis]}: "
                + (
                    f"at none of the {len(best(table, part, analysis))} epsilons computed"
                    if row is None
                    else f"from epsilon {row['epsilon']:g} ({row['strategy']}, "
                    f"{at_least(100 * row['saving'], 1)} % less error there)"
                )
                + ("" if analysis == "cyclic" else f", with {_tried(table, part, analysis)}")
            )
        words.append(f"Rate 1/{part}, epsilon in {_set(epsilons)}: {'; '.join(told)}.")
    return (
        f"Error of the {STEPS} prefix sums at equal epsilon and rate.  The smallest epsilon "
        "computed at which correlated noise has less error than independent noise can have, "
        "whatever its accounting.  Bands are optimised for the error without sampling; counting "
        "and tree are tuned by nothing; blt is searched for each target by our bound, whatever "
        "analysis it is then held against; blt for mmcc is searched by the paper's algorithm in "
        f"release order, at the targets named.  {'  '.join(words)}"
    )


def _tried(table: Table, part: int, analysis: str) -> str:
    found = tried(table, part, analysis)
    most = max(map(len, found.values()), default=0)
    words = [
        name if len(epsilons) == most else f"{name} at {_set(epsilons)}"
        for name, epsilons in found.items()
    ]
    return ", ".join(words)


def _set(epsilons: Sequence[float]) -> str:
    return f"{{{', '.join(f'{epsilon:g}' for epsilon in epsilons)}}}"


def _draw(figure: Any, table: Table) -> None:
    several = sorted(table.values("part"))
    all_axes = figure.subplots(1, len(several), squeeze=False)[0]
    styles = {
        "independent": {"color": "black", "linestyle": "-", "marker": "*"},
        **{name: STYLES[name] for name in ("cyclic", "mmcc_release", "mmcc_reversed")},
        "ours": STYLES["upper"],
    }
    tuned = {"color": "#56b4e9", "linestyle": "-", "marker": "v"}
    fixed = Table(tuple(row for row in table.rows if not row["strategy"].startswith("blt")))
    curves = [
        (fixed, analysis, LABELS[analysis].replace("full matrix", "counting or tree"), style)
        for analysis, style in styles.items()
    ]
    curves.append((table.where(strategy="blt"), "ours", "BLT for the target, Poisson, ours", tuned))
    for axes, part in zip(all_axes, several, strict=True):
        base = {row["epsilon"]: row["rmse"] for row in best(table, part, "independent").rows}
        for some, analysis, label, style in curves:
            rows = [row for row in best(some, part, analysis).rows if row["epsilon"] in base]
            axes.plot(
                [row["epsilon"] for row in rows],
                [row["rmse"] / base[row["epsilon"]] for row in rows],
                label=label,
                markersize=5,
                **style,
            )
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        plain_numbers(axes.xaxis, *sorted(base))
        plain_numbers(axes.yaxis, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.2, 1.4, 1.7, 2, 3, 5)
        axes.set_title(f"{STEPS} steps, rate 1/{part}", fontsize="medium")
        axes.set_xlabel(f"{epsilon_at(DELTA)} (certified)")
        axes.grid(alpha=0.3)
    all_axes[0].set_ylabel("RMSE of prefix sums / that of independent noise")
    figure.suptitle(
        "the best strategy of each kind; below 1 correlated noise wins", fontsize="medium"
    )
    legend_below(figure, all_axes[0], 2)


STUDY = Study(
    name="prefix-sums",
    title="Prefix sums: correlated against independent noise",
    keys=("part", "epsilon", "analysis", "strategy"),
    columns={
        "part": "given: one over the rate, the share of the examples in a batch",
        "epsilon": "given: the target",
        "analysis": "given: scheme and analysis",
        "strategy": (
            "given; blt: one buffer, decay and scale searched for the target by our bounds, or by "
            "the paper's algorithm (blt for mmcc)"
        ),
        "detail": "the strategy in full",
        "sigma": "certified: noise that is enough for the target; empty where nothing is proven",
        "rmse": "computed: root mean squared error of the prefix sums at that sigma",
        "saving": (
            "computed: 1 - rmse / the error of independent noise at the sigma below which the "
            "target is impossible (certified lower bound; where it is not known within 1 %: at its "
            "certified sigma less 0.2 %)"
        ),
    },
    points=_points,
    measure=_measure,
    describe=_describe,
    draw=_draw,
    assumed=(
        "Adjacency zero-out, the larger of remove and add; adaptive inputs; delta = 1e-6.  Rate "
        "1/part: Poisson(1/part) for independent noise and full matrices, CyclicPoisson(b/part, b) "
        "for b bands (optimised Toeplitz bands; the analysis is exact).  The tree is decoded "
        "causally.  Other strategies may do better: these are choices, not optima."
    ),
    size=(9.5, 4.8),
    words=("detail",),
    empty=("detail", "sigma", "rmse", "saving"),
)
