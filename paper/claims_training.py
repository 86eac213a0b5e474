"""Claims of Section 6.3: trees on CIFAR-10."""

from __future__ import annotations

from paper import learning
from paper.claims import Finding, Tables, claim, verdict
from paper.records import Table
from paper.rounding import rounded_down, rounded_up

ORDERS = {"mmcc_release": "release order", "mmcc_reversed": "roots first"}


@claim("6.3, Figure 3")
def training(tables: Tables) -> Finding:
    """MMCC gives significant improvements for DP-FTRL with trees on CIFAR-10, post hoc."""
    table = tables["cifar10"]
    outcomes, words = [], []
    for name in table.values("strategy"):
        for run in learning.runs(table, name):
            row = run.row
            outcomes += [row[order] < row["fixed_order"] for order in ORDERS]
            words.append(
                f"{name}, sigma {row['sigma']:g}: {rounded_up(row['mmcc_release'])} and "
                f"{rounded_up(row['mmcc_reversed'])} against {rounded_up(row['fixed_order'])} "
                f"(ours {rounded_up(row['upper'])})"
            )
    return verdict(*outcomes), (
        "epsilon of our runs by MMCC in release order and roots first, against a fixed order with "
        f"the same noise: {'; '.join(words)}.  {why(table)}"
    )


def why(table: Table) -> str:
    """Where sampling does not help, and whether that is the analysis or the truth."""
    least = table.where(strategy=learning.TREE).ordered("sigma").rows[0]
    truth = (
        f"At sigma {least['sigma']:g} for {learning.TREE} no analysis helps: epsilon is at least "
        f"{rounded_down(least['lower'])}, and {rounded_up(least['fixed_order'])} in a fixed order, "
        "because Poisson sampling may use an example more often.  "
        if least["lower"] > least["fixed_order"]
        else ""
    )
    return (
        "Where MMCC is above, there is little noise: what was released before makes participation "
        "likely, and it pays for the likeliest past in every row.  "
        f"{truth}"
        "Our baseline is the exact sensitivity of the fixed order, the least that an analysis "
        "without sampling can give; the paper's is the analysis of DP-FTRL's authors, with "
        "another network, and neither its epsilons nor its noise are printed: the sizes of the "
        "gains cannot be compared"
    )


@claim("6.3, Figure 3")
def training_small_epsilon(tables: Tables) -> Finding:
    """These benefits become larger as epsilon becomes small."""
    outcomes, words = [], []
    for name in tables["cifar10"].values("strategy"):
        some = tables["cifar10"].where(strategy=name).ordered("sigma")
        for order in ORDERS:
            gains = some["fixed_order"] / some[order]
            outcomes.append(bool((gains[1:] >= gains[:-1]).all()))
            words.append(
                f"{name}, {ORDERS[order]}: from {gains[0]:.2g} at epsilon "
                f"{rounded_up(some.rows[0][order])} to {gains[-1]:.3g} at "
                f"{rounded_up(some.rows[-1][order])}"
            )
    return verdict(*outcomes), f"epsilon in a fixed order over MMCC's: {'; '.join(words)}"
