"""Claim: what one example adds to a released sum is at most the clip norm, whatever the model does.

The sums of two data sets that differ in one example are compared, noise left out; nothing else is
known of how gradients come about.
"""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from torch import Tensor, nn  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402

from mmcc import strategies  # noqa: E402
from mmcc.sampling import Poisson  # noqa: E402
from mmcc.training import make_private  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # what is said of layers without a rule
WORDS, WIDTH, LENGTH = 7, 6, 5
CLIP = 0.3
LAWS = {
    "flat": CLIP,
    "ghost": CLIP,
    "automatic": CLIP,
    "per-layer": {"words": 0.2, "idle": 0.1, "": (CLIP**2 - 0.2**2 - 0.1**2) ** 0.5},
}


class Tangle(nn.Module):
    """Tied weights, padding, a layer used twice, frozen and idle ones, groups, a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH, padding_idx=2)
        self.twice = nn.Linear(WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.still = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
        self.idle = nn.Linear(WIDTH, WIDTH)
        self.places = nn.Conv1d(WIDTH, WIDTH, 2, groups=3, padding="same")
        self.turned = nn.ConvTranspose1d(WIDTH, WIDTH, 1, groups=2)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens)
        x = self.norm(self.twice(torch.tanh(self.twice(x))) + self.still(x))
        self.idle(x)
        x = self.turned(torch.tanh(self.places(x.mT))).mT
        return self.head(x).mean(dim=1)


def tangle() -> nn.Module:
    torch.manual_seed(1)
    module = Tangle()
    with torch.no_grad():
        for p in module.parameters():
            p.mul_(2.0)
    return module


def released(module, examples, clipping: str, reduction: str) -> Tensor:
    """The sum that the first step releases; everybody takes part."""
    module = copy.deepcopy(module)
    private, optimizer, loader = make_private(
        module,
        torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=0.1),
        TensorDataset(*examples),
        strategy=strategies.identity(1),
        sampling=Poisson(1.0),
        max_grad_norm=LAWS[clipping],
        sigma=1e-12,
        delta=1e-5,
        clipping=clipping,
        loss_reduction=reduction,
        seed=3,
    )
    for inputs, labels in loader:
        loss = nn.functional.cross_entropy(private(inputs), labels, reduction=reduction)
        loss.backward()
        optimizer.step()
    expected = len(examples[0]) if reduction == "mean" else 1
    trained = [p for p in module.parameters() if p.requires_grad]
    return torch.cat([p.grad.flatten() for p in trained]) * expected


def example_gradient(module, inputs: Tensor, label: Tensor) -> list[Tensor]:
    loss = nn.functional.cross_entropy(module(inputs[None]), label[None])
    trained = [p for p in module.parameters() if p.requires_grad]
    found = torch.autograd.grad(loss, trained, allow_unused=True)
    return [torch.zeros_like(p) if g is None else g for p, g in zip(trained, found, strict=True)]


@pytest.mark.parametrize("others", [0, 3])
@pytest.mark.parametrize(("clipping", "reduction"), [*zip(LAWS, ["mean", "sum"] * 2, strict=True)])
def test_one_example_more(clipping, reduction, others):
    module = tangle()
    torch.manual_seed(2)
    inputs, labels = torch.randint(WORDS, (others + 1, LENGTH)), torch.arange(others + 1)
    all_of_them = released(module, (inputs, labels), clipping, reduction)
    without = torch.zeros_like(all_of_them)
    if others:
        without = released(module, (inputs[:-1], labels[:-1]), clipping, reduction)
    added = float((all_of_them - without).double().norm())
    row = example_gradient(module, inputs[-1], labels[-1])
    assert float(torch.cat([g.flatten() for g in row]).norm()) > 2 * CLIP
    assert added <= CLIP * (1 + 1e-5)
    assert added > 0.5 * CLIP


@pytest.mark.parametrize("clipping", LAWS)
def test_nobody_and_a_batch_without_anybody(clipping):
    """A step of nobody is a step: nothing but noise is released."""
    module = tangle()
    private, optimizer, loader = make_private(
        module,
        torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=0.1),
        TensorDataset(torch.randint(WORDS, (2, LENGTH)), torch.arange(2)),
        strategy=strategies.identity(3),
        sampling=Poisson(1e-9),
        max_grad_norm=LAWS[clipping],
        sigma=1e-6,
        delta=1e-5,
        clipping=clipping,
        loss_reduction="sum",
        seed=3,
    )
    for inputs, labels in loader:
        assert not len(inputs)
        nn.functional.cross_entropy(private(inputs), labels, reduction="sum").backward()
        optimizer.step()
        grads = torch.cat([p.grad.flatten() for p in module.parameters() if p.requires_grad])
        assert 0.8 < float(grads.std()) / (1e-6 * optimizer.mechanism.max_grad_norm) < 1.2
