"""The figures of the paper, computed again: every study writes a CSV, a picture and a paragraph.

    python -m paper tree --quick

From Python: `paper.STUDIES["tree"].run("figures", quick=True)`.
"""

from __future__ import annotations

from collections.abc import Mapping

from paper import (
    binary_tree,
    brackets,
    continual_counting,
    groups,
    learning,
    linear_losses,
    prefix_error,
    restarted_tree,
    shuffling,
    timing,
)
from paper.study import Study

STUDIES: Mapping[str, Study] = {
    module.STUDY.name: module.STUDY
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
}
"""Studies by name, in the order of `python -m paper all`."""
