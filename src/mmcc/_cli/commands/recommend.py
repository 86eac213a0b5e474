"""The command `mmcc recommend`: finds a mechanism for a target, better ones as time goes by.

Rounding: that of the library; sigmas and errors are rounded up in print, savings down.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from mmcc._calls import looks_like_call, split_outside_brackets
from mmcc._cli import output
from mmcc._cli.command import (
    NUMBER,
    QUESTION,
    SCHEME,
    STRATEGY,
    WHOLE,
    Command,
    Option,
    several_of,
)
from mmcc._cli.mechanism_options import DELTA, EPSILON
from mmcc._cli.question_options import JSON
from mmcc._cli.workload_options import WORKLOAD, workload_asked
from mmcc.sampling._registry import COMPARED, from_call

if TYPE_CHECKING:
    from mmcc import Recommendation
    from mmcc.sampling import Scheme


def run(
    examples: int,
    batch_size: int,
    epochs: float,
    epsilon: float,
    delta: float,
    schedule: str | None,
    warmup: int | None,
    momentum: float | None,
    weight_decay: float | None,
    memory: int | None,
    schemes: str | None,
    seconds: float | None,
    as_json: bool,
) -> None:
    import mmcc
    from mmcc.design._recommend import SECONDS
    from mmcc.sampling._families_at_rate import run_length

    steps, _ = run_length(examples, batch_size, epochs)
    workload = workload_asked(steps, schedule, warmup, momentum, weight_decay)
    named: list[str | Scheme] | None = None
    if schemes is not None:
        words = split_outside_brackets(schemes)
        named = [from_call(word) if looks_like_call(word) else word for word in words]
    with output.progress_bar() as progress:
        found = mmcc.recommend(
            examples=examples,
            batch_size=batch_size,
            epochs=epochs,
            epsilon=epsilon,
            delta=delta,
            workload=workload,
            schemes=named,
            memory=memory,
            seconds=SECONDS if seconds is None else seconds,
            progress=progress,
            better=_tell,
        )
    if as_json:
        print(json.dumps(found.to_dict(), indent=2, allow_nan=False, default=float))
    else:
        print(found)
        print(f"seconds      {found.seconds:.2f}")


def _tell(found: Recommendation) -> None:
    """Print the best so far on stderr; the final answer goes to stdout."""
    best = found.best
    print(
        f"mmcc: so far {best}, error {100 * found.saving(best):.1f} % below DP-SGD's.",
        file=sys.stderr,
    )


COMMAND = Command(
    "recommend",
    run,
    Option("--examples", WHOLE, SCHEME, "Examples in the data set.", required=True),
    Option("--batch-size", WHOLE, SCHEME, "Examples in a batch, on average.", required=True),
    Option("--epochs", NUMBER, SCHEME, "Passes over the data.", required=True),
    EPSILON,
    DELTA,
    *WORKLOAD,
    Option("--memory", WHOLE, STRATEGY, "Most noise vectors held in training."),
    Option(
        "--schemes",
        several_of([word.removesuffix("N") for word in COMPARED]),
        SCHEME,
        "Schemes to choose from, as for mmcc compare; default: poisson and random-allocation.",
    ),
    Option(
        "--seconds",
        NUMBER,
        QUESTION,
        "Start nothing new after about this many seconds; default 55.",
    ),
    JSON,
    help="Print the mechanism with the least error found for a run and a target, beside DP-SGD.",
    example="mmcc recommend --examples 60000 --batch-size 600 --epochs 20 --epsilon 2 --delta 1e-6",
)
