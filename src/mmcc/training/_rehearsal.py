"""Before a pass: per-example gradients of some of the batch's examples, against plain autograd.

In: a wrapped module and the arguments of a pass.  Out: a refusal, or the module's outputs that no
loss may use, and why.

Clipping bounds an example if its row of gradients is its own: what plain autograd would give if the
example were alone.  This definition is tested, with random numbers v in place of the loss's
gradients.  The rows that the wrapped module gives for the outputs' products with v are compared
twice: three of them with the gradients of their examples alone, and all of them, in a sum with
random weights r, with the one gradient for r v.  This detects rows that are not examples, layers in
which examples interact and layers whose rows are wrong.  It cannot detect losses that are computed
outside the module.

"Alone" is a batch of an example and itself: some modules treat a single one differently.  Random
numbers are replaced by constants (`mmcc.training._fixed_draws`), and the module is restored
(`mmcc.training._module_contents`).  A difference counts if it recurs: rounding may flip one
rectifier, but not three times.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mmcc.training._examples import (
    Arguments,
    Take,
    take_first,
    take_rows,
    take_squares,
    tensors_of,
)
from mmcc.training._trial import LEAST, TRIED_ALONE, Findings, Trial, UnclearError

if TYPE_CHECKING:
    from mmcc.training._per_example import Watched

MOST = 32
"""Examples that are tried together on the first batches; later ones use a quarter as many."""
REPEATS, ENOUGH = 3, 3
"""A difference is looked for so many more times, with other examples; it counts if it is found so
many times in all, or in all conclusive trials."""


def rehearse(
    wrapped: Watched, args: tuple[Any, ...], kwargs: dict[str, Any], count: int
) -> dict[str, str]:
    """Refuse a module whose rows of gradients are not examples.

    Returns why no loss may use some of the module's outputs, by their names.
    """
    members = range(wrapped.watch.members(count))
    if len(members) < LEAST or not all(p.requires_grad for p in wrapped.watch.trained):
        return {}
    draw = random.SystemRandom()
    most = MOST if wrapped.watch.thorough else max(TRIED_ALONE, min(MOST, len(members)) // 4)
    few = sorted(draw.sample(members, min(len(members), most)))
    seed = draw.randrange(2**31)
    found = _tried(wrapped, (args, kwargs), count, few, seed)
    if found is None or found.none:
        return {}
    all_found = [found]
    for _ in range(REPEATS):
        others = draw.sample(members, len(few))
        again = _tried(wrapped, (args, kwargs), count, others, seed)
        all_found += [] if again is None else [again]
    enough = min(ENOUGH, len(all_found))
    refusals = [findings.refusal for findings in all_found if findings.refusal is not None]
    if len(refusals) >= enough:
        raise refusals[0]
    meeting = Counter(name for findings in all_found for name in findings.meeting)
    unusable = {
        name: why
        for findings in all_found
        for name, why in findings.meeting.items()
        if meeting[name] >= enough
    }
    for findings in all_found:
        unusable |= findings.losses
    return unusable


def _tried(
    wrapped: Watched, arguments: Arguments, count: int, few: Sequence[int], seed: int
) -> Findings | None:
    """The findings of a trial; None if it is inconclusive."""
    try:
        found = _try(wrapped, arguments, count, few, seed)
    except UnclearError as problem:
        wrapped.watch.note_unclear(str(problem))
        return None
    wrapped.watch.note_clear()
    return found


def _try(
    wrapped: Watched, arguments: Arguments, count: int, few: Sequence[int], seed: int
) -> Findings:
    def tried(take: Take) -> Findings:
        return Trial(wrapped, arguments, count, few, take, seed).run()

    try:
        found = tried(take_rows)
    except UnclearError:
        return tried(take_squares)  # such as the edges of a graph whose nodes are examples
    others = list(tensors_of(arguments))[1:]
    if found.none or not any(tensor.dim() and len(tensor) == count for tensor in others):
        return found
    # A tensor may have as many rows as there are examples without being about them.
    try:
        other = tried(take_first)
    except UnclearError:
        return found
    if not other.none or wrapped.watch.is_about_examples(others, count):
        return found
    raise UnclearError("an argument has as many rows as there are examples")
