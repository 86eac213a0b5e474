"""One model of the zoo: how it is built, what it is fed, and what its examples lose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from cases.zoo.outcomes import REFUSED, TRAINED_BY_GHOST

Batch = dict[str, Tensor]
EXAMPLES, FEATURES, CLASSES = 14, 4, 3
LENGTH, VOCABULARY = 5, 20
"""Of the sequences: batches of 14 examples at rate 1/2 rarely have as many rows."""


def seeded(build: Callable[[], nn.Module], seed: int) -> nn.Module:
    """A new module, in training mode, with parameters that are none of them zero."""
    torch.manual_seed(seed)
    module = build().train()
    with torch.no_grad():
        for p in module.parameters():
            if p.requires_grad:
                p.add_(torch.randn_like(p), alpha=0.1)
    return module


def vectors(examples: int = EXAMPLES, shape: tuple[int, ...] = (FEATURES,)) -> list[Batch]:
    """Examples of Gaussian inputs and a class; sizes differ, so that some gradients are clipped."""
    generator = torch.Generator().manual_seed(1)
    sizes = torch.linspace(0.3, 2.5, examples).view(-1, *(1,) * len(shape))
    inputs = torch.randn(examples, *shape, generator=generator) * sizes
    labels = torch.randint(CLASSES, (examples,), generator=generator)
    return [{"inputs": x, "labels": y} for x, y in zip(inputs, labels, strict=True)]


def sequences(examples: int = EXAMPLES, length: int = LENGTH) -> list[Batch]:
    """Examples of tokens, the last of which are padding (token 0), and a class."""
    generator = torch.Generator().manual_seed(2)
    tokens = torch.randint(1, VOCABULARY, (examples, length), generator=generator)
    lengths = 3 + torch.randint(length - 2, (examples,), generator=generator)
    mask = (torch.arange(length) < lengths[:, None]).long()
    labels = torch.randint(CLASSES, (examples,), generator=generator)
    rows = zip(tokens * mask, mask, labels, strict=True)
    return [{"input_ids": x, "attention_mask": m, "labels": y} for x, m, y in rows]


def classes(module: nn.Module, batch: Batch) -> Tensor:
    """Cross-entropy of each example of `vectors`."""
    return class_losses(module(batch["inputs"]), batch)


def token_classes(module: nn.Module, batch: Batch) -> Tensor:
    """Cross-entropy of each example of `sequences`, from its tokens alone."""
    return class_losses(module(batch["input_ids"]), batch)


def class_losses(scores: Tensor, batch: Batch) -> Tensor:
    return nn.functional.cross_entropy(scores, batch["labels"], reduction="none")


def next_tokens(module: nn.Module, batch: Batch) -> Tensor:
    """Of each example the mean loss of its own tokens, from the tokens before."""
    return next_token_losses(module(batch["input_ids"]), batch)


def next_token_losses(scores: Tensor, batch: Batch) -> Tensor:
    """In every example the first and the second token are there: no mean is of nothing."""
    tokens, mask = batch["input_ids"][:, 1:], batch["attention_mask"][:, 1:]
    losses = nn.functional.cross_entropy(scores[:, :-1].transpose(1, 2), tokens, reduction="none")
    return (losses * mask).sum(dim=1) / mask.sum(dim=1)


@dataclass(frozen=True)
class Case:
    """A model, its data and the loss of each example, whose mean is what is trained."""

    name: str
    build: Callable[[], nn.Module]
    data: Callable[[], list[Batch]] = vectors
    losses: Callable[[nn.Module, Batch], Tensor] = classes
    modes: tuple[str, ...] = ("hooks", "functorch", "ew")
    rate: float = 0.5
    """Chance of each example to be in a batch; at 1 every batch has them all."""
    random: bool = False
    """Whether a forward pass draws from torch's generator: the batch is then seen as a whole."""
    meet: bool = False
    """Whether an example's loss depends on who else is in the batch: only a refusal is right."""
    needs: tuple[str, ...] = ()

    def is_refused(self, mode: str) -> bool:
        """Whether the model cannot be trained in a mode."""
        if mode == "ghost":
            return self.is_refused("hooks") and self.name not in TRAINED_BY_GHOST
        return mode in REFUSED.get(self.name, "").split()

    def __str__(self) -> str:
        return self.name.replace(",", "").replace(" ", "-")


def batch_of(examples: list[Batch]) -> Batch:
    """Examples as one batch."""
    batch: Any = torch.utils.data.default_collate(examples)
    return batch
