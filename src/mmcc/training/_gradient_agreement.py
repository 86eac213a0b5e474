"""Whether two ways of computing the same gradients agree, and the errors raised if they do not.

In: gradients as this run computes them, and as plain autograd does.  Out: a refusal that names the
parameter that disagrees most, or nothing; the messages for everything that can be wrong with them.
Rounding: the tolerances allow for floating-point error only.  Models whose per-example gradients
are right agree to about 1e-7 in single precision and 3e-3 under bfloat16; wrong ones have been off
by 2 % and more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mmcc.training._lengths import squared_lengths
from mmcc.training._run import RunError

MAX_QUOTED = 200
"""Characters quoted from another package's error message."""

MEETS = (
    "examples interact in the module (first seen in {}): an example's output changes when the "
    "others are left out, so clipping does not bound what one example can do. Remove layers that "
    "look at the whole batch."
)
AVERAGED = (
    "examples interact in the loss that the module computes itself: the loss of a batch is not "
    "made up of its examples' own losses (a mean over all tokens with padding, for instance), so "
    "one example changes the gradients of the others and clipping does not bound it. Use "
    "mmcc.training.per_example_loss on the module's outputs."
)
UNCLEAR_OUTPUT = (
    "the loss uses an output that depends on the examples but has no row for each of them, such as "
    "a mean over the batch: examples interact in it, so clipping does not bound what one example "
    "can do. Use outputs with one row per example."
)
REDUCTION = (
    "the loss that the module computes itself is not reduced over the examples the way "
    "loss_reduction says, so every gradient would be clipped at the wrong norm. Pass the other of "
    "'mean' and 'sum' to make_private."
)
REMEMBERS = (
    "the module gives an example a different output after other examples have passed through it: "
    "it stores information about the data in an attribute, where no noise is added. Remove running "
    "means, queues and any state carried from batch to batch."
)
WRONG = (
    "the per-example gradients of parameter {!r} are wrong: they are {:.3g} away from what plain "
    "autograd finds, whose length is {:.3g}, so clipping would bound nothing. Usual causes: a "
    "layer that receives something other than one row per example, in their order, or a module "
    "that holds parameters of its own alongside other layers (move them into a small module with "
    "one input)."
)
MISSING = (
    "parameter {!r} has no per-example gradients, yet plain autograd finds a gradient of length "
    "{:.3g}: its layer is bypassed (its weight is used directly, as LoRA on embeddings and IA3 "
    "do), or its forward pass runs twice (activation checkpointing). Freeze the parameter, or call "
    "its layer."
)


@dataclass(frozen=True)
class Tolerance:
    """How far apart two gradients of a parameter may be: the sum of two relative tolerances."""

    own: float
    """Relative to the parameter's own gradient."""
    all: float
    """Relative to the gradient of all parameters: some gradients are zero in exact arithmetic, such
    as that of the bias of attention keys, and consist of the rounding errors of others."""


FINE = Tolerance(1e-3, 1e-5)
COARSE = Tolerance(2e-2, 1e-2)
"""For bfloat16, and for matrix products in TensorFloat-32."""


def tolerance(device: torch.device, dtypes: Sequence[torch.dtype]) -> Tolerance:
    """How much floating-point error a gradient may have on this device and in these types."""
    low = any(dtype in (torch.bfloat16, torch.float16) for dtype in dtypes)
    shortened = device.type == "cuda" and (
        torch.backends.cuda.matmul.allow_tf32 or torch.backends.cudnn.allow_tf32
    )
    return COARSE if low or shortened else FINE


def worst(rows: Sequence[Sequence[float]], allowed: Tolerance) -> int | None:
    """The index of the largest difference beyond what is allowed; None if there is none.

    A row holds the norm of a difference, the norm of the true vector, and what that norm would be
    if none of its terms cancelled.
    """
    usual = [max(true, uncancelled) for _, true, uncancelled in rows]
    total = math.hypot(*usual)
    beyond = [
        apart - allowed.own * length - allowed.all * total
        for (apart, _, _), length in zip(rows, usual, strict=True)
    ]
    largest = max(range(len(rows)), key=lambda place: beyond[place])
    return largest if beyond[largest] > 0 else None


def check_gradients(
    names: Sequence[str],
    truths: Sequence[Tensor | None],
    sums: Iterable[Tensor | None],
    squares: Tensor,
    dtypes: Iterable[torch.dtype],
    reduction: str,
) -> bool:
    """Refuse per-example gradients whose sum or mean is not the gradient that autograd found.

    `sums` are the sums of the per-example gradients, which were computed in `dtypes`; they may be
    large, so they are looked at one by one.  `squares` has the squared norm of each example's
    gradient, a column a parameter.  Returns False where no conclusion is possible: an example's
    gradient is not finite, and as is to be expected, neither is the ordinary one.
    """
    count = len(squares)
    divisor = count if reduction == "mean" else 1
    usual = squares.double().sum(dim=0).sqrt() / divisor
    lengths = [
        _lengths(None if found is None else found / divisor, truth)
        for found, truth in zip(sums, truths, strict=True)
    ]
    kinds = [*dtypes, *(truth.dtype for truth in truths if truth is not None)]
    rows = torch.stack([torch.stack(row).to(squares.device) for row in lengths]).double()
    rows = torch.cat([rows, usual[:, None]], dim=1)
    if not squares.isfinite().all() and not rows[:, 1].isfinite().all():
        return False
    table = torch.nan_to_num(rows, nan=math.inf, posinf=math.inf).tolist()
    place = worst(table, tolerance(squares.device, kinds))
    if place is None:
        return True
    if all(truth is None for truth in truths):
        raise RunError(
            f"parameter {names[place]!r} has per-example gradients but no ordinary one to compare "
            "them with: call loss.backward(), not torch.autograd.grad."
        )
    apart, true, _ = table[place]
    raise RunError(
        f"the per-example gradients of parameter {names[place]!r} are not those of the loss: their "
        f"{reduction} is {apart:.3g} away from the gradient of backward(), whose length is "
        f"{true:.3g}, so clipping would bound nothing. Usual causes: a penalty on weights in the "
        "loss (use the optimizer's weight_decay), a layer used outside the module's forward, or a "
        "module that holds parameters of its own alongside other layers (move them into a small "
        "module with one input)."
    )


def wrong_count(name: str, rows: object, examples: int) -> str:
    """The message for gradients that are not one for each example."""
    return (
        f"parameter {name!r} has gradients of {rows} rows for {examples} examples: its layer "
        "received something other than one row per example, such as positions without a batch "
        "dimension (use positions.expand(len(batch), -1)), tokens that are flattened or routed to "
        "experts, or a pass that runs twice (activation checkpointing)."
    )


def first_sentence(problem: BaseException) -> str:
    """The first sentence of another package's error message, shortened."""
    words = " ".join(str(problem).split()) or type(problem).__name__
    return words.partition(". ")[0][:MAX_QUOTED].rstrip(". ")


def difference(found: Tensor | None, truth: Tensor | None, norm: Tensor | None = None) -> Tensor:
    """Norms of the difference, of the true vector, and the latter again: nothing cancels in it.

    With a `norm`, claimed to be the true vector's: the difference of the two norms, if larger.
    """
    apart, true = _lengths(found, truth)
    if norm is not None:
        apart = torch.maximum(apart, (norm.to(true) - true).abs())
    return torch.stack([apart, true, true])


def _lengths(found: Tensor | None, truth: Tensor | None) -> tuple[Tensor, Tensor]:
    truth = truth.to_dense() if truth is not None and truth.is_sparse else truth
    if found is None and truth is None:
        return torch.zeros(()), torch.zeros(())
    if truth is None or found is None:
        present = truth if found is None else found
        assert present is not None
        length = _norm(present)
        return length, length if found is None else torch.zeros_like(length)
    return _norm(found.to(truth.dtype) - truth), _norm(truth)


def _norm(tensor: Tensor) -> Tensor:
    kind = torch.promote_types(tensor.dtype, torch.float32)
    return squared_lengths(tensor.reshape(1, -1), kind)[0].sqrt()
