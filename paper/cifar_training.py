"""One private training run on CIFAR-10: a small network, correlated noise, momentum, cooldown.

In: images, a strategy, sigma, a seed.  Out: accuracy on the test images.
The run releases the mechanism that the study accounts for, whatever the analysis.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from mmcc.sampling import Poisson
from mmcc.strategies import Strategy
from mmcc.training import make_private
from paper.cifar_data import Images

MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
"""Published statistics of the channels over the training images: public, not part of epsilon."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """The learning rate and its schedule."""

    rate: float
    momentum: float = 0.9
    clip: float = 1.0
    cooldown: float = 0.25
    """Fraction of the steps, at the end, in which the learning rate falls linearly."""
    last: float = 0.05
    """Fraction of the learning rate that is left at the end."""

    def factor(self, step: int, steps: int) -> float:
        """The factor of the learning rate at a step."""
        left = (steps - step) / (self.cooldown * steps)
        return self.last + (1 - self.last) * min(left, 1.0)


def network() -> nn.Module:
    """Three convolutions with stride 2 and group norms, and a linear layer: 58,506 parameters."""

    def layer(inputs: int, outputs: int, size: int) -> list[nn.Module]:
        convolution = nn.Conv2d(inputs, outputs, size, stride=2, padding=size // 2)
        return [convolution, nn.GroupNorm(8, outputs, affine=False), nn.ReLU()]

    return nn.Sequential(
        *layer(3, 32, 5),
        *layer(32, 64, 3),
        *layer(64, 64, 3),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


def accuracy(
    train: Images,
    test: Images,
    *,
    strategy: Strategy,
    sampling: Poisson,
    sigma: float,
    delta: float,
    seed: int,
    trained: int,
    recipe: Recipe,
    progress: Callable[[int], None] | None = None,
) -> float:
    """Train for some of the strategy's steps, and measure the accuracy on the test images."""
    torch.manual_seed(seed)
    plain = network()
    module, optimizer, loader = make_private(
        plain,
        torch.optim.SGD(plain.parameters(), lr=recipe.rate, momentum=recipe.momentum),
        TensorDataset(scaled(train), torch.from_numpy(train.labels.copy()).long()),
        strategy=strategy,
        sampling=sampling,
        max_grad_norm=recipe.clip,
        sigma=sigma,
        delta=delta,
        seed=seed,
    )
    loss = nn.CrossEntropyLoss()
    with warnings.catch_warnings():
        # Opacus hooks the first layer, whose inputs need no gradient; torch warns about it.
        warnings.filterwarnings("ignore", message="Full backward hook")
        for pictures, labels in loader:
            for group in optimizer.param_groups:
                group["lr"] = recipe.rate * recipe.factor(optimizer.position, strategy.steps)
            optimizer.zero_grad()
            loss(module(pictures), labels).backward()
            optimizer.step()
            if progress is not None:
                progress(optimizer.position)
            if optimizer.position == trained:
                break
    return recognised(plain, test)


def scaled(images: Images) -> Tensor:
    """Channels with mean 0 and deviation 1, by the published statistics."""
    mean, deviation = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, DEVIATION))
    return (torch.from_numpy(images.pixels.copy()).float() / 255 - mean) / deviation


def recognised(model: nn.Module, test: Images) -> float:
    """Fraction of the test images that are classified correctly."""
    labels = torch.from_numpy(test.labels.copy()).long()
    with torch.no_grad():
        answers = torch.cat([model(part).argmax(1) for part in torch.split(scaled(test), 1000)])
    return float((answers == labels).float().mean())
