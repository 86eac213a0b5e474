"""What is said of modules whose gradients by example are not those of their examples."""

from __future__ import annotations

MOST_SAID = 200
"""Characters of somebody else's error message."""

MEETS = (
    "examples meet in the module (first seen in {}): an example's output changes when the others "
    "are left out, so clipping does not bound what one example can do. Remove layers that look at "
    "the whole batch."
)
AVERAGED = (
    "examples meet in the loss that the module computes itself: the loss of a batch is not made up "
    "of its examples' own losses (a mean over all tokens with padding, for instance), so one "
    "example changes the gradients of the others and clipping does not bound it. Use "
    "mmcc.training.per_example_loss on the module's outputs."
)
UNCLEAR_OUTPUT = (
    "the loss uses an output that depends on the examples but has no row for each of them, such as "
    "a mean over the batch: examples meet in it, so clipping does not bound what one example can "
    "do. Use outputs with one row per example."
)
REDUCTION = (
    "the loss that the module computes itself is not reduced over the examples as loss_reduction "
    "says, so every gradient would be clipped at the wrong norm. Pass the other one of 'mean' and "
    "'sum' to make_private."
)
REMEMBERS = (
    "the module gives an example a different output after other examples have passed through it: "
    "it keeps something of the data in an attribute, where it carries no noise. Remove running "
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


def wrong_count(name: str, rows: object, examples: int) -> str:
    """The sentence for gradients that are not one for each example."""
    return (
        f"parameter {name!r} has gradients of {rows} rows for {examples} examples: its layer "
        "received something other than one row per example, such as positions without a batch "
        "dimension (use positions.expand(len(batch), -1)), tokens that are flattened or routed to "
        "experts, or a pass that runs twice (activation checkpointing)."
    )


def first_sentence(problem: BaseException) -> str:
    """What somebody else's error says, in short."""
    words = " ".join(str(problem).split()) or type(problem).__name__
    return words.partition(". ")[0][:MOST_SAID].rstrip(". ")
