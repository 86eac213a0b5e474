"""A progress line of a run: its step, its loss, its epsilon, and what a shorter run would cost.

In: the optimizer of a run, and losses if they are given.  Out: a line on stderr, and the same facts
passed to a function, step by step.
Rounding: both epsilons are upper bounds, and are rounded up.  What a shorter run would have cost is
certified for a few numbers of steps; in between, that of the next one, which is larger, is shown.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from torch import Tensor

from mmcc.accounting._guarantee import rounded_up
from mmcc.errors import whole
from mmcc.training._mechanism import spent_by

if TYPE_CHECKING:
    from rich.progress import Progress

    from mmcc.training._optimizer import PrivateOptimizer

PARTS = 10
"""How often a line is printed without a terminal, and how many shorter runs are accounted for."""


class ProgressLine:
    """A line about a run while it trains: `with ProgressLine(optimizer) as line: ... line(loss)`.

    Call it once for each batch.  `report` gets the facts of each step: a mapping with `step`,
    `loss` if one was given, `epsilon` of the whole run, and `epsilon_if_ended_here`, for
    TensorBoard, a log or a file.  The whole run's epsilon is the valid one: the other would be, had
    the run been *declared* to end there (`stop_after`); ending it because of what was seen does not
    make epsilon smaller.  `parts` is the number of lengths for which the latter is certified; 0
    leaves it out.

    A loss on the training data is a release without noise, which no epsilon here covers: show it
    only to those who may see the data.
    """

    def __init__(
        self,
        optimizer: PrivateOptimizer,
        *,
        report: Callable[[Mapping[str, Any]], None] | None = None,
        parts: int = PARTS,
    ) -> None:
        self._optimizer = optimizer
        self._report = report
        self._parts = whole("parts", parts, 0, 10**6)
        self._reported = optimizer.position
        self._printed = self._part
        self._spent = (0, 0.0)
        self._bar: Progress | None = None
        self._task: Any = None

    def __enter__(self) -> ProgressLine:
        _ = self._optimizer.guarantee  # this may take a while, with a progress bar of its own
        if self._first and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (BarColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
            self._bar = Progress(*columns, console=Console(stderr=True))
            self._task = self._bar.add_task("", total=self._optimizer.mechanism.steps)
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, loss: Tensor | float | None = None) -> None:
        """Show where the run is; parts of a batch that do not complete a step are skipped."""
        position = self._optimizer.position
        if not self._first or position == self._reported:
            return
        self._reported = position
        facts = self._facts(position, loss)
        if self._bar is not None:
            self._bar.update(self._task, completed=position, description=self._text(facts))
        elif self._part > self._printed:
            self._printed = self._part
            print(f"mmcc: {self._text(facts)}", file=sys.stderr)
        if self._report is not None:
            self._report(facts)

    @property
    def _first(self) -> bool:
        """Whether this process shows the line: the first of several does."""
        return self._optimizer.run.peers.rank == 0

    @property
    def _part(self) -> int:
        return PARTS * self._optimizer.position // self._optimizer.mechanism.steps

    def _facts(self, position: int, loss: Tensor | float | None) -> dict[str, Any]:
        facts: dict[str, Any] = {"step": position}
        if loss is not None:
            facts["loss"] = float(loss.detach() if isinstance(loss, Tensor) else loss)
        facts["epsilon"] = self._optimizer.guarantee.epsilon
        if self._parts:
            facts["epsilon_if_ended_here"] = self._spent_at(position)
        return facts

    def _spent_at(self, position: int) -> float:
        """The cost of the shortest certified length that is at least this one."""
        if position > self._spent[0]:
            run = self._optimizer.run
            steps = run.mechanism.steps
            part = -(-position * self._parts // steps)
            length = steps * part // self._parts
            self._spent = (length, spent_by(run.mechanism, run.guarantee, length).epsilon)
        return self._spent[1]

    def _text(self, facts: Mapping[str, Any]) -> str:
        whole_run = self._optimizer.guarantee
        said = [f"step {facts['step']} of {self._optimizer.mechanism.steps}"]
        if math.isfinite(facts.get("loss", math.nan)):
            said.append(f"loss {facts['loss']:.4g}")
        said.append(
            f"epsilon {rounded_up(whole_run.epsilon)} of the whole run at delta {whole_run.delta:g}"
        )
        if self._parts:
            less = rounded_up(facts["epsilon_if_ended_here"])
            said.append(f"at most {less} had it been declared to end here")
        return ", ".join(said)
