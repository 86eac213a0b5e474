"""Options that describe an optimizer, and the workload that it turns the gradients into."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mmcc._cli.command import NUMBER, STRATEGY, WHOLE, Option, one_of
from mmcc._cli.parsing import UsageError
from mmcc.errors import suggestion

if TYPE_CHECKING:
    from mmcc.strategies._workloads import Workload

RATES = ("constant", "linear", "cosine")
"""Names of learning rate schedules."""
WORKLOAD = (
    Option("--schedule", one_of(RATES), STRATEGY, f"Learning rate schedule: {', '.join(RATES)}."),
    Option("--warmup", WHOLE, STRATEGY, "Steps over which the learning rate rises first."),
    Option("--momentum", NUMBER, STRATEGY, "Momentum of the optimizer, such as .9."),
    Option("--weight-decay", NUMBER, STRATEGY, "Weight decay, times the learning rate."),
)


def workload_asked(
    steps: int,
    schedule: str | None,
    warmup: int | None,
    momentum: float | None,
    weight_decay: float | None,
) -> Workload | None:
    """The workload of SGD with these options; None for plain SGD."""
    if schedule is not None and schedule not in RATES:
        raise UsageError(f"unknown schedule {schedule!r}; {suggestion(schedule, RATES)}")
    if all(one is None for one in (schedule, warmup, momentum, weight_decay)):
        return None
    from mmcc import utility

    makers = (utility.constant_rates, utility.linear_rates, utility.cosine_rates)
    rates = dict(zip(RATES, makers, strict=True))[schedule or RATES[0]](steps, warmup or 0)
    return utility.schedule(rates, momentum=momentum or 0.0, weight_decay=weight_decay or 0.0)
