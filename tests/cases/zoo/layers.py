"""Small modules of plain torch that people train: layers, and ways to put them together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from opacus.layers import DPLSTM, DPMultiheadAttention
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.utils.checkpoint import checkpoint

from cases.zoo.case import CLASSES, FEATURES, LENGTH, VOCABULARY

WIDTH = 6


def mlp(*extra: nn.Module) -> nn.Module:
    head = nn.Linear(WIDTH, CLASSES)
    return nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.Tanh(), *extra, head)


class Pooled(nn.Module):
    """Tokens, a layer on their embeddings, the mean over the tokens, classes."""

    def __init__(self, layer: nn.Module | None = None, **options: Any) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH, **options)
        self.layer = nn.Tanh() if layer is None else layer
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.layer(self.embedding(tokens)).mean(dim=1))


# ---------------------------------------------------------------- convolutions and recurrence


def group_norm_cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.GroupNorm(2, 4),
        nn.ReLU(),
        nn.Conv2d(4, 4, 2, stride=2, groups=2),
        nn.Flatten(),
        nn.Linear(16, CLASSES),
    )


def convolutions(first: nn.Module) -> nn.Module:
    return nn.Sequential(first, nn.Tanh(), nn.Flatten(), nn.LazyLinear(CLASSES))


def sized(build: Callable[[], nn.Module], *shape: int) -> nn.Module:
    """A module whose lazy layers have seen one input."""
    module = build()
    module(torch.zeros(1, *shape))
    return module


class Recurrent(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.lstm = DPLSTM(FEATURES, WIDTH, batch_first=True, **options)
        self.head = nn.LazyLinear(CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.lstm(inputs)[0][:, -1])


# ---------------------------------------------------------------- transformers by hand


class EncoderLayer(nn.Module):
    def __init__(self, *, batch_first: bool = True) -> None:
        super().__init__()
        self.attention = DPMultiheadAttention(WIDTH, 2, batch_first=batch_first)
        self.norm = nn.LayerNorm(WIDTH)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 8), nn.GELU(), nn.Linear(8, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(x, x, x)[0]
        return x + self.feed(self.norm(x))


class Causal(nn.Module):
    """One head of attention that sees what came before."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.parts(x).chunk(3, dim=-1)
        return nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)


class NanoGpt(nn.Module):
    """A transformer in small: tokens, positions, a block and a head, tied or not."""

    def __init__(self, positions: str, *, tied: bool = True) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        if positions == "parameter":
            self.places = nn.Parameter(0.1 * torch.randn(LENGTH, WIDTH))
        else:
            self.places = nn.Embedding(LENGTH, WIDTH)
        self.positions = positions
        self.block = nn.Sequential(nn.LayerNorm(WIDTH), Causal(), nn.LayerNorm(WIDTH))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self._place(tokens)
        return self.head(x + self.block(x))

    def _place(self, tokens: Tensor) -> Tensor:
        if self.positions == "parameter":
            return self.places[: tokens.shape[1]]
        places = torch.arange(tokens.shape[1])
        if self.positions == "row":
            places = places[None]
        if self.positions == "expanded":
            places = places.expand_as(tokens)
        return self.places(places)


class TiedByHand(nn.Module):
    """The head is a product with the embedding's weight, and no layer."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.hidden = nn.Linear(WIDTH, WIDTH)

    def forward(self, tokens: Tensor) -> Tensor:
        return linear(self.hidden(self.tokens(tokens)), self.tokens.weight)


class TokenClassifier(nn.Module):
    """An encoder by torch, whose attention has no per-example gradients in Opacus."""

    def __init__(self) -> None:
        super().__init__()
        self.body = Pooled(
            nn.TransformerEncoderLayer(WIDTH, 2, 8, dropout=0.0, batch_first=True),
        )

    def forward(self, tokens: Tensor) -> Tensor:
        return self.body(tokens)


class KeyBias(nn.Module):
    """Attention with a bias at the end of keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = DPMultiheadAttention(WIDTH, 2, add_bias_kv=True, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x)[0]


class Flattened(nn.Module):
    """The tokens of all examples as the rows of one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.layer(x.reshape(-1, WIDTH))).view_as(x)


class FirstOutput(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[0]


class SequenceFirst(nn.Module):
    """Layers that see positions first and examples second."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.head = nn.Linear(WIDTH, CLASSES)
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.layer(self.embedding(tokens).transpose(0, 1)).mean(dim=0))


# ---------------------------------------------------------------- embeddings


class Bag(nn.Module):
    """EmbeddingBag on rows of tokens, or on all tokens with the places where examples begin."""

    def __init__(self, *, offsets: bool = False, **options: Any) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(VOCABULARY, WIDTH, **options)
        self.head = nn.Linear(WIDTH, CLASSES)
        self.offsets = offsets

    def forward(self, tokens: Tensor) -> Tensor:
        if not self.offsets:
            return self.head(self.bag(tokens))
        begins = torch.arange(len(tokens)) * tokens.shape[1]
        return self.head(self.bag(tokens.flatten(), begins))


# ---------------------------------------------------------------- raw parameters


class Gated(nn.Module):
    """A raw parameter beside layers, and a mask as an optional second input."""

    def __init__(self, give: str) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.pool = MaskedPool()
        self.head = nn.Linear(WIDTH, CLASSES)
        self.give = give

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.embedding(tokens)
        pooled = self.pool(x, mask) if self.give == "positional" else self.pool(x, mask=mask)
        return self.head(pooled)


class MaskedPool(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is None:
            mask = torch.ones(x.shape[:2])
        weights = (x * self.scale).sum(dim=2).masked_fill(mask == 0, -1e9).softmax(dim=1)
        return (x * weights[..., None]).sum(dim=1)


class Scaled(nn.Module):
    """A raw parameter; what comes after it is up to the argument."""

    def __init__(self, after: nn.Module | None = None) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(WIDTH))
        self.after = nn.Identity() if after is None else after

    def forward(self, x: Tensor) -> Tensor:
        return self.after(x * self.scale)


class TwoOutputs(nn.Module):
    """A raw parameter and a tuple, of which the loss uses one entry or both."""

    def __init__(self, *, both: bool, container: type = tuple) -> None:
        super().__init__()
        self.before = nn.Linear(FEATURES, WIDTH)
        self.pair = Pair(container)
        self.head = nn.Linear(WIDTH, CLASSES)
        self.both = both

    def forward(self, x: Tensor) -> Tensor:
        first, second = self.pair(self.before(x))
        return self.head(first + second if self.both else first)


class Pair(nn.Module):
    def __init__(self, container: type) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(WIDTH))
        self.container = container

    def forward(self, x: Tensor) -> Any:
        return self.container([x * self.scale, torch.tanh(self.scale - x)])


# ---------------------------------------------------------------- not every row, not in order


class Experts(nn.Module):
    """Each token goes to one expert: by gathering its rows, or by a weight of 0 or 1."""

    def __init__(self, *, gather: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.experts = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(2)])
        self.head = nn.Linear(WIDTH, CLASSES)
        self.gather = gather

    def forward(self, tokens: Tensor) -> Tensor:
        x, out = self.embedding(tokens), 0.0
        for place, expert in enumerate(self.experts):
            chosen = tokens % 2 == place
            if self.gather:
                part = torch.zeros_like(x)
                part[chosen] = expert(x[chosen])
            else:
                part = expert(x) * chosen[..., None]
            out = out + part
        return self.head(torch.tanh(out).mean(dim=1))


class StochasticDepth(nn.Module):
    """A layer that is left out at random: for the batch, or for some of the examples."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, WIDTH)
        self.skipped = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)
        self.way = way

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self._residual(self.first(x))))

    def _residual(self, x: Tensor) -> Tensor:
        if self.way == "batch":
            return x + self.skipped(x) if torch.rand(()) < 0.5 else x
        kept = torch.rand(len(x)) < 0.5
        if self.way == "weights":
            return x + self.skipped(x) * kept[:, None]
        out = x.clone()
        out[kept] = x[kept] + self.skipped(x[kept])
        return out


class SomeRowsTwice(nn.Module):
    """A layer sees all examples, and then the last of them once more."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, WIDTH)
        self.shared = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        again = x[:, 0] > 0
        y = torch.tanh(self.shared(self.first(x)))
        out = y.clone()
        out[again] = out[again] + self.shared(y[again])
        return self.head(out)


class Reordered(nn.Module):
    """The second half of the module sees the examples in another order."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, WIDTH)
        self.second = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        order = x[:, 0].argsort()
        sorted_rows = torch.tanh(self.second(torch.tanh(self.first(x))[order]))
        return self.head(sorted_rows[order.argsort()])


class Centred(nn.Module):
    """Subtracts the mean over the batch: examples meet."""

    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(dim=0)


class Dead(nn.Module):
    """A layer whose gradients are zero, for every example."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.relu(self.layer(x) - 1e3)


# ---------------------------------------------------------------- ways to call


class CalledTwice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, WIDTH)
        self.shared = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.shared(torch.tanh(self.first(x))))
        return self.head(self.shared(y))


class InTwoPlaces(nn.Module):
    """Two parts have one layer in common, each by a name of its own."""

    def __init__(self) -> None:
        super().__init__()
        shared = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH))
        self.lower = nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.Tanh(), shared)
        self.upper = nn.Sequential(nn.Tanh(), shared, nn.Linear(WIDTH, CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        return self.upper(self.lower(x))


class ByHandToo(nn.Module):
    """A layer, and its weight a second time without the layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.first(x) + linear(x**2, self.first.weight)))


class Checkpointed(nn.Module):
    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, WIDTH)
        self.block = nn.Sequential(nn.Linear(WIDTH, 8), nn.Tanh(), nn.Linear(8, WIDTH))
        self.head = nn.Linear(WIDTH, CLASSES)
        self.reentrant = reentrant

    def forward(self, x: Tensor) -> Tensor:
        y = checkpoint(self.block, self.first(x), use_reentrant=self.reentrant)
        return self.head(y)


class Bilinear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before = nn.Linear(FEATURES, WIDTH)
        self.pairs = nn.Bilinear(FEATURES, WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.pairs(x, torch.tanh(self.before(x)))


class Named(nn.Module):
    """Takes its inputs by name, or all of them as one dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.body = Pooled()

    def forward(self, *, tokens: Tensor, scale: float = 1.0) -> Tensor:
        return scale * self.body(tokens)


class FromDictionary(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = Pooled()

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        return self.body(batch["input_ids"])


class UnusedHead(nn.Module):
    """A layer whose output the loss never sees."""

    def __init__(self) -> None:
        super().__init__()
        self.body = mlp()
        self.other = nn.Linear(FEATURES, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        self.other(x)
        return self.body(x)


def frozen(module: nn.Module, *names: str) -> nn.Module:
    for name, p in module.named_parameters():
        if name.startswith(names):
            p.requires_grad_(False)
    return module
