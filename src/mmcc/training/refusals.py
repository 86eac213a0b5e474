"""What is said of modules whose gradients by example are not those of their examples."""

from __future__ import annotations

MOST_SAID = 200
"""Characters of somebody else's error message."""

MEETS = (
    "examples meet in the module, as {} shows: what comes out for an example is something else "
    "when the others are left out, so that clipping does not bound what one of them does. Leave "
    "out layers that look at the whole batch."
)
AVERAGED = (
    "examples meet in the loss that the module computes itself: some of the batch's examples have "
    "another loss together than in parts (a mean over tokens with padding, say), so that one of "
    "them changes the gradients of the others and clipping does not bound it. Use "
    "mmcc.training.per_example_loss on the module's outputs."
)
UNCLEAR_OUTPUT = (
    "the loss uses something of the module that depends on the examples and has no row for each "
    "of them, such as a mean over the batch: examples meet in it, so that clipping does not bound "
    "what one of them does. Use outputs with one row for each example."
)
REDUCTION = (
    "the loss that the module computes itself is not reduced over the examples as loss_reduction "
    "says, so that every gradient would be clipped at another norm. Pass the other one of 'mean' "
    "and 'sum' to make_private."
)
REMEMBERS = (
    "the module gives an example another output after other examples came by: it keeps something "
    "of the data in an attribute, which carries no noise. Leave out running means, queues and "
    "states that go from batch to batch."
)
WRONG = (
    "the per-example gradients of parameter {!r} are not those of the examples: they are {:.3g} "
    "away from what plain autograd finds, whose length is {:.3g}, so that clipping would bound "
    "nothing. Usual causes: a layer that gets something else than one row for each example, in "
    "their order, and a module that holds parameters of its own beside other layers (put them into "
    "a small module with one input)."
)
MISSING = (
    "parameter {!r} has no per-example gradients, but a gradient of length {:.3g} by plain "
    "autograd: its layer is not called as a module is (its weight is used directly, as in LoRA on "
    "embeddings and IA3), or its pass is made twice (activation checkpointing). Freeze it, or "
    "call its layer."
)


def wrong_count(name: str, rows: object, examples: int) -> str:
    """The sentence for gradients that are not one for each example."""
    return (
        f"parameter {name!r} has gradients of {rows} rows for {examples} examples: its layer got "
        "something else than one row for each example, such as positions without the examples' "
        "dimension (use positions.expand(len(batch), -1)), tokens that are flattened or routed to "
        "experts, or a pass that is made twice (activation checkpointing)."
    )


def first_sentence(problem: BaseException) -> str:
    """What somebody else's error says, in short."""
    words = " ".join(str(problem).split()) or type(problem).__name__
    return words.partition(". ")[0][:MOST_SAID].rstrip(". ")
