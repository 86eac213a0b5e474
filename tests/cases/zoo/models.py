"""The model zoo: what people train, and what has gone wrong with per-example gradients."""

from __future__ import annotations

from typing import Any

import torch
from opacus.layers import DPLSTM
from torch import Tensor, nn

from cases.zoo import layers
from cases.zoo.case import (
    CLASSES,
    FEATURES,
    LENGTH,
    Batch,
    Case,
    class_losses,
    classes,
    next_tokens,
    sequences,
    token_classes,
    vectors,
)
from cases.zoo.hugging_face import CASES as HUGGING_FACE
from cases.zoo.layers import WIDTH


def images() -> list[Batch]:
    return vectors(shape=(1, 4, 4))


def series() -> list[Batch]:
    return vectors(shape=(LENGTH, FEATURES))


def channels() -> list[Batch]:
    return vectors(shape=(2, 8))


def volumes() -> list[Batch]:
    return vectors(shape=(2, 3, 3, 3))


def two_tokens() -> list[Batch]:
    """Both tokens of an example go to the same expert, and half of the examples to each."""
    examples = sequences(8, LENGTH)
    for place, example in enumerate(examples):
        tokens = example["input_ids"][:2].clamp(min=2)
        example["input_ids"] = tokens - tokens % 2 + place % 2
    return examples


def masked(module: nn.Module, batch: Batch) -> Tensor:
    return class_losses(module(batch["input_ids"], batch["attention_mask"]), batch)


def masked_by_name(module: nn.Module, batch: Batch) -> Tensor:
    return class_losses(module(batch["input_ids"], mask=batch["attention_mask"]), batch)


def by_name(module: nn.Module, batch: Batch) -> Tensor:
    return class_losses(module(tokens=batch["input_ids"], scale=0.7), batch)


def as_dictionary(module: nn.Module, batch: Batch) -> Tensor:
    return class_losses(module(batch), batch)


def penalised(module: nn.Module, batch: Batch) -> Tensor:
    """The penalty is in every example's loss: their mean is the mean loss and the penalty."""
    return classes(module, batch) + 0.1 * sum(p.square().sum() for p in module.parameters())


def steep(module: nn.Module, batch: Batch) -> Tensor:
    """With a penalty on the gradient at the inputs, for which autograd goes through twice."""
    inputs = batch["inputs"].clone().requires_grad_()
    losses = class_losses(module(inputs), batch)
    (slopes,) = torch.autograd.grad(losses.sum(), inputs, create_graph=True)
    return losses + slopes.square().sum(dim=1)


def cancelling() -> list[Batch]:
    """The same inputs four times, with weights that add up to nothing before clipping."""
    weights = torch.tensor([3.0, -1.0, -1.0, -1.0])
    return [{**example, "weight": w} for example in vectors(3) for w in weights]


def weighted(module: nn.Module, batch: Batch) -> Tensor:
    return classes(module, batch) * batch["weight"]


def conv(layer: str, *shape: int, **options: Any) -> nn.Module:
    build = getattr(nn, layer)(shape[0], 4, **{"kernel_size": 3, **options})
    return layers.sized(lambda: layers.convolutions(build), *shape)


TOKENS = {"data": sequences, "losses": token_classes}
LANGUAGE = {"data": sequences, "losses": next_tokens}
AS_MANY = {"data": lambda: sequences(LENGTH), "rate": 1.0}


def nano(positions: str, *, tied: bool = True) -> Any:
    return lambda: layers.NanoGpt(positions, tied=tied)


PLAIN = [
    Case("mlp", layers.mlp),
    Case("mlp with dropout", lambda: layers.mlp(nn.Dropout(0.4)), random=True),
    Case(
        "mlp with relu in place",
        lambda: nn.Sequential(
            nn.Linear(FEATURES, WIDTH), nn.ReLU(inplace=True), nn.Linear(WIDTH, CLASSES)
        ),
    ),
    Case("layer norm", lambda: layers.mlp(nn.LayerNorm(WIDTH))),
    Case("layer norm of sequences", lambda: layers.Pooled(nn.LayerNorm(WIDTH)), **TOKENS),
    Case("layer norm without bias", lambda: layers.mlp(nn.LayerNorm(WIDTH, bias=False))),
    Case("rms norm", lambda: layers.mlp(nn.RMSNorm(WIDTH))),
    Case("prelu", lambda: layers.mlp(nn.PReLU())),
    Case("group norm cnn", layers.group_norm_cnn, images),
    Case(
        "instance norm",
        lambda: layers.sized(
            lambda: layers.convolutions(
                nn.Sequential(nn.Conv1d(2, 4, 3), nn.InstanceNorm1d(4, affine=True))
            ),
            2,
            8,
        ),
        channels,
    ),
    Case("conv1d", lambda: conv("Conv1d", 2, 8), channels),
    Case(
        "conv1d, same padding", lambda: conv("Conv1d", 2, 8, padding="same", dilation=2), channels
    ),
    Case(
        "conv1d, circular padding",
        lambda: conv("Conv1d", 2, 8, padding=1, padding_mode="circular"),
        channels,
    ),
    Case(
        "conv2d, reflected padding",
        lambda: conv("Conv2d", 1, 4, 4, padding=1, padding_mode="reflect"),
        images,
    ),
    Case("conv transpose 1d", lambda: conv("ConvTranspose1d", 2, 8, stride=2), channels),
    Case("conv transpose 2d", lambda: conv("ConvTranspose2d", 1, 4, 4), images),
    Case(
        "conv2d, same padding",
        lambda: conv("Conv2d", 1, 4, 4, padding="same", kernel_size=2),
        images,
    ),
    Case("conv3d", lambda: conv("Conv3d", 2, 3, 3, 3, kernel_size=2, padding=1, groups=2), volumes),
    Case("dplstm", lambda: layers.sized(layers.Recurrent, LENGTH, FEATURES), series),
    Case(
        "dplstm, two ways, two layers",
        lambda: layers.sized(
            lambda: layers.Recurrent(num_layers=2, bidirectional=True), LENGTH, FEATURES
        ),
        series,
    ),
    Case("frozen layer", lambda: layers.frozen(layers.mlp(), "0.")),
    Case("frozen bias", lambda: layers.frozen(layers.mlp(), "0.bias")),
    Case(
        "frozen layer in the middle",
        lambda: layers.frozen(layers.mlp(nn.Linear(WIDTH, WIDTH)), "2."),
    ),
    Case(
        "frozen weight beside a raw parameter",
        lambda: layers.frozen(layers.mlp(layers.Scaled(nn.Linear(WIDTH, WIDTH))), "2.after"),
    ),
    Case(
        "weight norm",
        lambda: nn.Sequential(
            nn.utils.parametrizations.weight_norm(nn.Linear(FEATURES, WIDTH)),
            nn.Tanh(),
            nn.Linear(WIDTH, CLASSES),
        ),
    ),
    Case(
        "weight norm without bias",
        lambda: layers.mlp(
            nn.utils.parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH, bias=False))
        ),
    ),
    Case("bilinear", layers.Bilinear),
    Case("gradients that cancel", layers.mlp, cancelling, weighted, rate=1.0),
    Case("layer without gradient", lambda: layers.mlp(layers.Dead())),
    Case("gradient penalty", layers.mlp, losses=steep),
    Case("weight penalty", layers.mlp, losses=penalised),
    Case("unused head", layers.UnusedHead),
    # attention
    Case("transformer encoder", lambda: layers.Pooled(layers.EncoderLayer()), **TOKENS),
    Case("attention with a bias of keys", lambda: layers.Pooled(layers.KeyBias()), **TOKENS),
    Case("tokens of all examples as rows", lambda: layers.Pooled(layers.Flattened()), **TOKENS),
    Case(
        "dplstm, sequence first",
        lambda: layers.SequenceFirst(layers.FirstOutput(DPLSTM(WIDTH, WIDTH))),
        **TOKENS,
    ),
    Case("transformer encoder of torch", layers.TokenClassifier, **TOKENS),
    Case("sequence first", lambda: layers.SequenceFirst(nn.Linear(WIDTH, WIDTH)), **TOKENS),
    Case(
        "sequence first, as many examples as positions",
        lambda: layers.SequenceFirst(nn.Linear(WIDTH, WIDTH)),
        **{**TOKENS, **AS_MANY},
    ),
    Case(
        "attention, sequence first, as many examples as positions",
        lambda: layers.SequenceFirst(layers.EncoderLayer(batch_first=False)),
        **{**TOKENS, **AS_MANY},
    ),
    Case("tied embeddings", nano("expanded"), **LANGUAGE),
    Case("tied by hand", layers.TiedByHand, **LANGUAGE),
    Case("nanogpt, positions for each example", nano("expanded", tied=False), **LANGUAGE),
    Case("nanogpt, arange positions", nano("arange"), **LANGUAGE),
    Case(
        "nanogpt, arange positions, as many examples as positions",
        nano("arange"),
        **{**LANGUAGE, **AS_MANY},
    ),
    Case("nanogpt, a row of positions", nano("row"), **LANGUAGE),
    Case("nanogpt, parameter positions, tied", nano("parameter"), **LANGUAGE),
    Case("nanogpt, parameter positions", nano("parameter", tied=False), **LANGUAGE),
    # embeddings
    Case("embedding", layers.Pooled, **TOKENS),
    Case("embedding with padding index", lambda: layers.Pooled(padding_idx=0), **TOKENS),
    Case(
        "embedding scaled by frequency",
        lambda: layers.Pooled(scale_grad_by_freq=True),
        **TOKENS,
        meet=True,
    ),
    Case("embedding with a largest norm", lambda: layers.Pooled(max_norm=0.5), **TOKENS),
    Case("sparse embedding", lambda: layers.Pooled(sparse=True), **TOKENS),
    Case("embedding bag of rows", layers.Bag, **TOKENS),
    Case("embedding bag with offsets", lambda: layers.Bag(offsets=True), **TOKENS),
    Case("embedding bag with offsets, sum", lambda: layers.Bag(offsets=True, mode="sum"), **TOKENS),
    Case("embedding bag with offsets, max", lambda: layers.Bag(offsets=True, mode="max"), **TOKENS),
    # raw parameters
    Case("raw parameter", lambda: layers.mlp(layers.Scaled())),
    Case(
        "raw parameter and dropout", lambda: layers.mlp(layers.Scaled(nn.Dropout(0.4))), random=True
    ),
    Case(
        "raw parameter and a second input",
        lambda: layers.Gated("positional"),
        data=sequences,
        losses=masked,
    ),
    Case(
        "raw parameter and a second input by name",
        lambda: layers.Gated("name"),
        data=sequences,
        losses=masked_by_name,
    ),
    Case("raw parameter and a tuple, first used", lambda: layers.TwoOutputs(both=False)),
    Case("raw parameter and a tuple, both used", lambda: layers.TwoOutputs(both=True)),
    Case("raw parameter and a list", lambda: layers.TwoOutputs(both=True, container=list)),
    # not every row, not in order
    Case("experts by gathering", lambda: layers.Experts(gather=True), **TOKENS),
    Case(
        "experts by gathering, as many tokens as examples",
        lambda: layers.Experts(gather=True),
        two_tokens,
        token_classes,
        rate=1.0,
    ),
    Case("experts by weights", lambda: layers.Experts(gather=False), **TOKENS),
    Case("stochastic depth of the batch", lambda: layers.StochasticDepth("batch"), random=True),
    Case("stochastic depth by weights", lambda: layers.StochasticDepth("weights"), random=True),
    Case("stochastic depth by gathering", lambda: layers.StochasticDepth("gather"), random=True),
    Case("some rows twice", layers.SomeRowsTwice),
    Case("reordered rows", layers.Reordered),
    Case("rows that meet", lambda: layers.mlp(layers.Centred()), meet=True),
    # ways to call
    Case("layer called twice", layers.CalledTwice),
    Case("layer in two places", layers.InTwoPlaces),
    Case("weight used by hand too", layers.ByHandToo),
    Case("checkpointing", lambda: layers.Checkpointed(reentrant=False)),
    Case("reentrant checkpointing", lambda: layers.Checkpointed(reentrant=True)),
    Case("inputs by name", layers.Named, data=sequences, losses=by_name),
    Case("inputs as a dictionary", layers.FromDictionary, data=sequences, losses=as_dictionary),
]
CASES = PLAIN + HUGGING_FACE
assert len({case.name for case in CASES}) == len(CASES)
