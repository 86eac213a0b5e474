"""The paper's figures and ours: a study is a function that writes a CSV, a figure, a paragraph.

    from mmcc import studies
    studies.tree("figures", quick=True)

Every study takes a folder, `quick` (a part of the points, within a minute) and `progress`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mmcc.studies.binary_tree import tree
from mmcc.studies.brackets import bracket
from mmcc.studies.continual_counting import counting
from mmcc.studies.groups import group
from mmcc.studies.learning import cifar10
from mmcc.studies.linear_losses import last_iterate
from mmcc.studies.prefix_error import prefix_sums
from mmcc.studies.restarted_tree import tree_restart
from mmcc.studies.shuffling import shuffled_tree
from mmcc.studies.study import MissingPartError, Report
from mmcc.studies.timing import speed

__all__ = (
    "STUDIES",
    "MissingPartError",
    "Report",
    "bracket",
    "cifar10",
    "counting",
    "group",
    "last_iterate",
    "prefix_sums",
    "shuffled_tree",
    "speed",
    "tree",
    "tree_restart",
)

STUDIES: Mapping[str, Callable[..., Report]] = {
    "tree": tree,
    "counting": counting,
    "tree-restart": tree_restart,
    "prefix-sums": prefix_sums,
    "cifar10": cifar10,
    "group": group,
    "last-iterate": last_iterate,
    "shuffled-tree": shuffled_tree,
    "bracket": bracket,
    "speed": speed,
}
"""Studies by the name on the command line, in the order of `mmcc reproduce all`."""
