"""Claim: without gradients of examples nothing is unprotected, and nothing is left behind.

Gradients that would be wrong are refused by name, on the first batches and at random later; what
reaches a parameter from outside the layers is refused on every batch.
"""

from __future__ import annotations

import copy
import gc
import os
import warnings
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from cases.private import CLASSES, FEATURES, STEPS, backward, data, private, train  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402

from mmcc import strategies  # noqa: E402
from mmcc.sampling import Poisson  # noqa: E402
from mmcc.training import RunError  # noqa: E402
from mmcc.training import _ghost as ghost  # noqa: E402
from mmcc.training import _ghost_rules as rules  # noqa: E402
from mmcc.training import _ghost_terms as terms  # noqa: E402
from mmcc.training import _watch as watch  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook")
EVERYBODY = {"sampling": Poisson(1.0)}


def network(*between: nn.Module) -> nn.Module:
    torch.manual_seed(8)
    layers = nn.Linear(FEATURES, 6), nn.Tanh(), *between, nn.Linear(6, CLASSES)
    return nn.Sequential(*layers).double()


def ghostly(module=None, **options):
    module = network() if module is None else module
    return private(module, **{"clipping": "ghost", **EVERYBODY, **options})


def refused(words: str):
    return pytest.raises(RunError, match=words)


def as_kept_rows(module_of, **options) -> None:
    """A run without gradients of examples ends as one with them."""
    found = ghostly(module_of(), sigma=0.5, max_grad_norm=0.3, **options)
    truth = private(
        module_of(), clipping="flat", sigma=0.5, max_grad_norm=0.3, **EVERYBODY, **options
    )
    train(*found)
    train(*truth)
    for p, q in zip(found[0].parameters(), truth[0].parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-9, atol=1e-12)


# ---------------------------------------------------------------- wrong gradients are refused


def wrong_rule(change):
    """A rule for linear layers whose weight's term is changed."""

    def rule(layer, given, gradients):
        found = rules._linear(layer, given, gradients)
        return {**found, layer.weight: change(found[layer.weight])}

    return rule


class SmallNorms(terms.Outer):
    """A term that says half of its norm."""

    def squares(self, *, alone=True):
        return super().squares(alone=alone) / 4


class LargeSums(terms.Outer):
    """A term that adds more than it says."""

    def add(self, total, factors):
        super().add(total, 1.5 * factors)


WRONG = {
    "neighbours": lambda term: replace(term, left=term.left.roll(1, dims=0)),
    "small norms": lambda term: SmallNorms(term.left, term.right, term.shape),
    "large sums": lambda term: LargeSums(term.left, term.right, term.shape),
    "half": lambda term: replace(term, left=term.left / 2),
    "nothing": lambda term: replace(term, left=term.left * 0),
}


@pytest.mark.parametrize("when", ["at first", "later"])
@pytest.mark.parametrize("change", WRONG.values(), ids=list(WRONG))
def test_a_rule_that_is_wrong(monkeypatch, change, when):
    monkeypatch.setattr(watch, "SELDOM", 2)
    monkeypatch.setattr(terms, "BLOCK", 2**24)
    module, optimizer, loader = ghostly(strategy=strategies.identity(60))
    with refused(r"gradients of parameter '(0|2)\.weight' are"):
        for batch in loader:
            if when == "at first" or optimizer.position > 5:
                monkeypatch.setitem(rules._RULES, nn.Linear, wrong_rule(change))
            backward(module, batch)
            optimizer.step()
    assert (optimizer.position == 0) is (when == "at first")


def test_a_parameter_without_a_term(monkeypatch):
    def rule(layer, given, gradients):
        return rules._bias(layer, gradients[:, None])

    monkeypatch.setitem(rules._RULES, nn.Linear, rule)
    run = ghostly()
    with refused("parameter '[02].weight' has no per-example gradients"):
        train(*run)


class ByHand(nn.Module):
    """From some pass on, a weight is used without its layer."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.layer = nn.Linear(FEATURES, CLASSES).double()
        self.left = after

    def forward(self, x):
        out = self.layer(x)
        return out if self.left > 0 else out + (x**2) @ self.layer.weight.T


@pytest.mark.parametrize("seldom", [1, 10**9])
def test_a_weight_that_is_used_by_hand_later(monkeypatch, seldom):
    monkeypatch.setattr(watch, "SELDOM", seldom)
    module, optimizer, loader = ghostly(ByHand(1))
    with refused("'layer.weight' (is used outside|are wrong)"):
        for batch in loader:
            module._module.left = 5 - optimizer.position
            backward(module, batch)
            optimizer.step()
    assert optimizer.position == 5


@pytest.mark.parametrize("seldom", [1, 10**9])
def test_a_penalty_on_weights_that_comes_later(monkeypatch, seldom):
    monkeypatch.setattr(watch, "SELDOM", seldom)
    module, optimizer, loader = ghostly()
    with refused("'0.weight' (is used outside|are not those of the loss)"):
        for inputs, labels in loader:
            loss = nn.functional.cross_entropy(module(inputs), labels)
            if optimizer.position == 5:
                loss = loss + module._module[0].weight.square().sum()
            loss.backward()
            optimizer.step()
    assert optimizer.position == 5


def test_a_gradient_that_is_put_there_by_hand():
    module, optimizer, loader = ghostly()
    with refused("is used outside"):
        for batch in loader:
            backward(module, batch)
            if optimizer.position == 4:
                module._module[2].bias.grad = torch.ones(CLASSES).double()
            optimizer.step()
    assert optimizer.position == 4


def test_a_second_backward_pass():
    module, _, loader = ghostly()
    batches = iter(loader)
    inputs, labels = next(batches)
    loss = nn.functional.cross_entropy(module(inputs), labels)
    loss.backward(retain_graph=True)
    with refused("layer '2' .Linear. has gradients of a second backward pass"):
        loss.backward()


def test_a_backward_pass_of_an_earlier_batch():
    module, optimizer, loader = ghostly()
    batches = iter(loader)
    inputs, labels = next(batches)
    early = nn.functional.cross_entropy(module(inputs), labels)
    early.backward(retain_graph=True)
    optimizer.step()
    module(next(batches)[0])
    with refused("of a pass before the last one"):
        early.backward()


# ---------------------------------------------------------------- in place


class Residual(nn.Module):
    def __init__(self, change) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, 6).double()
        self.inner = nn.Linear(6, 6).double()
        self.head = nn.Linear(6, CLASSES).double()
        self.change = change

    def forward(self, x):
        return self.head(self.change(self, self.first(x)))


def added_to_output(self, x):
    y = self.inner(x)
    y += x
    return y


def rectified(self, x):
    return nn.functional.relu(self.inner(nn.functional.relu_(x)), inplace=True)


def added_to_input(self, x):
    y = self.inner(x)
    x += y
    return x


@pytest.mark.parametrize("change", [added_to_output, rectified])
def test_outputs_may_be_changed_in_place(change):
    def module_of():
        torch.manual_seed(4)
        return Residual(change)

    if change is rectified:
        as_kept_rows_of_plain_relu(module_of)
    else:
        train(*ghostly(module_of()))


def as_kept_rows_of_plain_relu(module_of) -> None:
    def plain():
        module = module_of()
        module.change = lambda self, x: torch.relu(self.inner(torch.relu(x)))
        return module

    found, truth = ghostly(module_of(), sigma=0.5), ghostly(plain(), sigma=0.5)
    train(*found)
    train(*truth)
    for p, q in zip(found[0].parameters(), truth[0].parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-9, atol=1e-12)


def test_inputs_that_are_changed_in_place_later(monkeypatch):
    """Plain autograd refuses it too, as far as it looks."""
    monkeypatch.setattr(watch, "SELDOM", 10**9)
    module, optimizer, loader = ghostly(Residual(lambda self, x: self.inner(x)))
    with refused("the input of layer 'inner' .Linear. was changed in place"):
        for batch in loader:
            if optimizer.position == 4:
                module._module.change = added_to_input
            backward(module, batch)
            optimizer.step()
    assert optimizer.position == 4


# ---------------------------------------------------------------- nothing is left behind


def flags(module) -> list[bool]:
    return [p.requires_grad for p in module.parameters()]


class Interrupted(nn.Module):
    def __init__(self, problem) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(6).double())
        self.problem = None
        self.raised = problem

    def forward(self, x):
        if self.problem is not None:
            raise self.problem
        return x * self.scale


@pytest.mark.parametrize("problem", [KeyboardInterrupt(), RuntimeError("mine")], ids=repr)
def test_a_pass_that_fails_leaves_the_parameters_as_they_were(problem):
    between = Interrupted(problem)
    module, optimizer, loader = ghostly(network(between))
    before = flags(module)
    batches = iter(loader)
    for _ in range(4):
        backward(module, next(batches))
        optimizer.step()
    between.problem = problem
    with pytest.raises(type(problem)):
        module(next(batches)[0])
    assert flags(module) == before
    between.problem = None
    train(module, optimizer, loader)
    assert optimizer.finished


def test_there_are_no_gradients_at_parameters_before_the_step(monkeypatch):
    """Neither on batches that are looked at closely nor on others."""
    monkeypatch.setattr(watch, "SELDOM", 2)
    module, optimizer, loader = ghostly(strategy=strategies.identity(20))
    for batch in loader:
        backward(module, batch)
        assert all(p.grad is None for p in module.parameters())
        assert all(p.grad_sample is None for p in module.parameters())
        optimizer.step()
        assert all(p.grad is not None for p in module.parameters())


def test_gradients_that_were_zeroed_before_the_step_are_gone():
    module, optimizer, loader = ghostly()
    batches = iter(loader)
    inputs, labels = next(batches)
    loss = nn.functional.cross_entropy(module(inputs), labels)
    optimizer.zero_grad()  # as many do it: between the two passes
    loss.backward()
    optimizer.step()
    backward(module, next(batches))
    optimizer.zero_grad()
    with refused("no parameter has per-example gradients"):
        optimizer.step()


def test_the_module_is_given_back_as_it_was():
    original = network()
    before = {name: dict(vars(layer)) for name, layer in original.named_modules()}
    module, optimizer, loader = ghostly(original)
    train(module, optimizer, loader)
    plain = module.to_standard_module()
    assert plain is original
    for name, layer in plain.named_modules():
        assert vars(layer).keys() == before[name].keys()
        assert not layer._forward_hooks
        assert not layer._forward_pre_hooks
    assert flags(plain) == [True] * 4
    copied = copy.deepcopy(plain)
    copied(data().tensors[0]).sum().backward()
    assert all(p.grad is not None for p in copied.parameters())


def alive() -> int:
    """Bytes of all tensors, each storage once."""
    gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        storages = {
            t.untyped_storage().data_ptr(): t.untyped_storage().nbytes()
            for t in gc.get_objects()
            if type(t) in (torch.Tensor, nn.Parameter)
        }
    return sum(storages.values())


def test_no_row_is_made():
    """64 rows of a quarter of a million numbers would be 64 MB."""
    torch.manual_seed(1)
    wide = nn.Sequential(nn.Linear(500, 500), nn.Tanh(), nn.Linear(500, 2))
    inputs = torch.randn(64, 500)
    examples = TensorDataset(inputs, (inputs[:, 0] > 0).long())
    most = {}
    for clipping in ("flat", "ghost"):
        module, optimizer, loader = private(
            copy.deepcopy(wide), examples, clipping=clipping, **EVERYBODY
        )
        for place, batch in enumerate(loader):
            backward(module, batch)
            if place == 4:
                most[clipping] = alive()
                break
            optimizer.step()
    assert most["flat"] - most["ghost"] > 0.9 * 64 * 4 * 500**2


# ---------------------------------------------------------------- what has no rule


def test_rows_that_are_made_all_the_same_are_told_once():
    def module_of():
        layers = (
            nn.Unflatten(1, (1, FEATURES)),
            nn.ConvTranspose1d(1, 4, 3),
            nn.Tanh(),
            nn.Flatten(),
        )
        torch.manual_seed(2)
        return nn.Sequential(*layers, nn.Linear(4 * (FEATURES + 2), CLASSES)).double()

    with pytest.warns(UserWarning, match="ConvTranspose1d.* are computed for '1'") as told:
        ghostly(module_of())
    assert len(told) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        as_kept_rows(module_of)


def test_there_is_nothing_to_tell_where_all_have_rules():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(*ghostly(network(nn.LayerNorm(6), nn.PReLU())))


def test_weights_in_two_ways_that_have_no_common_form():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(FEATURES, 6, bias=False)
            self.again = nn.utils.parametrizations.weight_norm(nn.Linear(6, 6, bias=False))
            self.kernel = nn.Conv1d(1, 6, 4, bias=False)
            self.head = nn.Linear(6, CLASSES)
            self.kernel.weight = nn.Parameter(self.first.weight.detach()[:, None])

        def forward(self, x):
            y = self.first(x) + self.kernel(x[:, None])[..., 0]
            return self.head(torch.tanh(y))

    def module_of():
        torch.manual_seed(3)
        module = Both().double()
        del module.again
        return module

    as_kept_rows(module_of)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("physical", [None, 7])
def test_parts_of_a_batch(physical, dtype):
    inputs, labels = data().tensors
    examples = TensorDataset(inputs.to(dtype), labels)
    settings = {"sigma": 1e-9, "max_grad_norm": 0.3, "sampling": Poisson(0.5)}
    found, truth = (
        private(
            network().to(dtype),
            examples,
            clipping=clipping,
            physical_batch_size=physical if clipping == "ghost" else None,
            **settings,
        )
        for clipping in ("ghost", "flat")
    )
    train(*found)
    train(*truth)
    assert found[1].position == truth[1].position == STEPS
    close = 1e-5 if dtype == torch.float32 else 1e-9
    for p, q in zip(found[0].parameters(), truth[0].parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=close, atol=close)


def test_autocast():
    """Norms and sums are in single precision, also where backward and step are inside."""
    torch.manual_seed(5)
    inputs = torch.randn(40, 30, 8)
    examples = TensorDataset(inputs, (inputs[:, 0, 0] > 0).long())

    def module_of():
        torch.manual_seed(6)
        return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Flatten(), nn.Linear(480, 2))

    ends = []
    for clipping in ("ghost", "flat"):
        module, optimizer, loader = private(
            module_of(), examples, clipping=clipping, sigma=1e-9, max_grad_norm=0.2, **EVERYBODY
        )
        with torch.autocast("cpu", dtype=torch.bfloat16):
            for batch in loader:
                optimizer.zero_grad()
                backward(module, batch)
                optimizer.step()
        ends.append(torch.cat([p.detach().flatten() for p in module.parameters()]))
    begin = torch.cat([p.detach().flatten() for p in module_of().parameters()])
    assert (ends[0] - ends[1]).norm() < 2e-2 * (ends[1] - begin).norm()


def test_the_module_is_not_made_private_twice():
    module, _, _ = ghostly()
    with pytest.raises(ValueError, match="private already"):
        ghostly(module._module)


def test_a_term_is_of_the_pass_that_made_it():
    """Whoever asks for gradients after they were used gets none."""
    module, optimizer, loader = ghostly()
    assert isinstance(module, ghost.Ghost)
    batches = iter(loader)
    backward(module, next(batches))
    assert all(module.terms.counts(p) == [30] for p in module.parameters())
    optimizer.step()
    assert not any(module.terms.counts(p) for p in module.parameters())
