"""Claim: modules in which examples meet, or leave traces, are refused; right ones are not.

What a module is may be hidden from a comparison by the shape of its outputs, by random numbers and
by what it keeps; and rounding, chance and a module's own counters must not be taken for meeting.
"""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from cases.private import (  # noqa: E402
    CLASSES,
    EXAMPLES,
    FEATURES,
    STEPS,
    backward,
    data,
    linear,
    parameters,
    private,
    train,
)
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from mmcc import MmccError, strategies  # noqa: E402
from mmcc.sampling import Poisson  # noqa: E402
from mmcc.training import RunError, make_private  # noqa: E402
from mmcc.training import _watch as watch  # noqa: E402
from mmcc.training._fixed_draws import FixedDraws  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook")


@pytest.fixture(autouse=True)
def _every_batch_is_looked_at(monkeypatch):
    monkeypatch.setattr(watch, "SELDOM", 2)


def refused(words: str):
    return pytest.raises(RunError, match=words)


@dataclass
class Scores:
    logits: Tensor


class Body(nn.Module):
    """A network whose output a test changes."""

    def __init__(self, change, wrap=lambda logits: logits) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.first = nn.Linear(FEATURES, 6).double()
        self.head = nn.Linear(6, CLASSES).double()
        self.change, self.wrap = change, wrap
        self.own = np.random.default_rng(3)

    def forward(self, x):
        hidden = torch.tanh(self.first(x))
        return self.wrap(self.change(self, self.head(hidden)))


def run_with(module, read=lambda outputs: outputs, steps=STEPS):
    """Train; the loss is outside."""
    module, optimizer, loader = private(module, strategy=strategies.identity(steps))
    for inputs, labels in loader:
        optimizer.zero_grad()
        logits = read(module(inputs))
        functional.cross_entropy(logits.reshape(len(labels), -1), labels).backward()
        optimizer.step()
    assert optimizer.finished


def same(_, logits):
    return logits


def centred(_, logits):
    return logits - logits.mean(dim=0)


# ---------------------------------------------------------------- examples that meet

WRAPPED = {
    "plain": (lambda t: t, lambda t: t),
    "dataclass": (Scores, lambda s: s.logits),
    "namespace": (lambda t: SimpleNamespace(logits=t), lambda s: s.logits),
    "nested": (lambda t: {"out": [None, (t, 3)]}, lambda d: d["out"][1][0]),
    "flattened": (lambda t: t.reshape(-1, 1), lambda t: t),
    "class by class": (lambda t: t.T.reshape(-1, 1), lambda t: t.reshape(CLASSES, -1).T),
    "examples second": (lambda t: t.T, lambda t: t.T),
    "squeezed": (lambda t: t[:, :1].squeeze(), lambda t: torch.stack([t, -t, 0 * t], dim=1)),
}


@pytest.mark.parametrize("shape", WRAPPED)
def test_examples_that_meet_are_seen_in_any_shape(shape):
    wrap, read = WRAPPED[shape]
    with refused("examples interact in the module"):
        run_with(Body(centred, wrap), read)


@pytest.mark.parametrize("shape", WRAPPED)
def test_examples_that_do_not_meet_are_trained_in_any_shape(shape):
    wrap, read = WRAPPED[shape]
    run_with(Body(same, wrap), read)


def test_scores_of_examples_for_each_other():
    """As in contrastive learning: one output a pair of examples."""
    module, _, loader = private(Body(lambda _, logits: logits @ logits.T))
    for inputs, _ in loader:
        with refused("examples interact in the module"):
            functional.cross_entropy(module(inputs), torch.arange(len(inputs))).backward()
        break


def test_an_output_that_meets_and_is_not_used_does_not_matter():
    def both(_, logits):
        return {"pairs": logits @ logits.T, "logits": logits}

    run_with(Body(both), lambda outputs: outputs["logits"])


def test_a_graph_whose_nodes_are_examples():
    class Graph(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = linear()

        def forward(self, x, edges):
            return edges @ self.head(x)

    module, _, loader = private(Graph())
    for inputs, labels in loader:
        edges = torch.rand(len(inputs), len(inputs), dtype=torch.float64)
        with refused("examples interact in the module"):
            functional.cross_entropy(module(inputs, edges), labels).backward()
        break


@pytest.mark.filterwarnings("ignore:the module's per-example gradients")
def test_a_square_that_is_about_no_example():
    """A mask of positions has as many rows as there are examples, by chance."""

    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = linear()

        def forward(self, x, mask):
            return self.head(x[:, None] * mask.mean()).squeeze(1)

    module, optimizer, loader = private(Masked(), sampling=Poisson(1.0))
    for inputs, labels in loader:
        mask = torch.ones(EXAMPLES, EXAMPLES, dtype=torch.float64).tril()
        functional.cross_entropy(module(inputs, mask), labels).backward()
        optimizer.step()
    assert optimizer.finished


def test_random_numbers_do_not_hide_that_examples_meet():
    def noisy(_, logits):
        return centred(_, logits + 0.1 * torch.randn_like(logits))

    with refused("examples interact in the module"):
        run_with(Body(noisy))


def test_examples_that_are_mixed_by_a_permutation():
    def mixed(_, logits):
        return 0.7 * logits + 0.3 * logits[torch.randperm(len(logits))]

    with refused("examples interact in the module"):
        run_with(Body(mixed))


LEFT = {
    "number": (lambda mean: mean.square().sum(), lambda kept: kept),
    "vector": (lambda mean: mean, lambda kept: kept.square().sum()),
    "list": (lambda mean: [mean.square().sum()], lambda kept: kept[0]),
    "dictionary": (lambda mean: {"balance": mean.square().sum()}, lambda kept: kept["balance"]),
    "object": (lambda mean: SimpleNamespace(l=mean.square().sum()), lambda kept: kept.l),
}


@pytest.mark.parametrize("way", LEFT)
def test_a_loss_that_is_left_at_a_layer(way):
    """As mixtures of experts leave theirs: it looks at how all examples are routed."""
    leave, read = LEFT[way]

    def balanced(module, logits):
        module.extra = leave(logits.softmax(dim=1).mean(dim=0))
        return logits

    module, _, loader = private(Body(balanced))
    for inputs, labels in loader:
        loss = functional.cross_entropy(module(inputs), labels)
        with refused("examples interact in"):
            (loss + read(module._module.extra)).backward()
        break


BESIDE = {
    "mean over the batch": lambda logits: logits.mean(dim=0),
    "covariance": lambda logits: logits.T @ logits,
    "object": lambda logits: SimpleNamespace(loss=logits.std(dim=0).sum()),
}


@pytest.mark.parametrize("way", BESIDE)
def test_statistics_of_the_batch_beside_scores(way):
    def both(_, logits):
        return logits, BESIDE[way](logits)

    def total(extra):
        return extra.loss if isinstance(extra, SimpleNamespace) else extra.square().sum()

    module, _, loader = private(Body(both))
    for inputs, labels in loader:
        logits, extra = module(inputs)
        with refused("examples interact in"):
            (functional.cross_entropy(logits, labels) + total(extra)).backward()
        break
    run_with(Body(both), lambda outputs: outputs[0])


def test_a_second_argument_through_which_examples_meet():
    """The argument has a row for each example; leaving it whole does not excuse the module."""

    class Keys(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = linear()

        def forward(self, x, keys):
            return self.head(x) - keys.double().mean()

    module, _, loader = private(Keys())
    for inputs, labels in loader:
        with refused("examples interact in the module"):
            functional.cross_entropy(module(inputs, labels), labels).backward()
        break


def test_a_few_examples_that_meet_the_others():
    def trimmed(_, logits):
        centre = logits.mean(dim=0)
        far = (logits - centre).norm(dim=1, keepdim=True)
        return torch.where(far >= far.max(), centre, logits)

    with refused("examples interact in the module"):
        run_with(Body(trimmed))


def test_examples_that_are_mixed_by_sorted_random_numbers():
    def mixed(_, logits):
        return 0.7 * logits + 0.3 * logits[torch.rand(len(logits)).argsort()]

    with refused("examples interact in the module"):
        run_with(Body(mixed))


def test_examples_that_meet_by_the_fall_of_a_coin():
    def now_and_then(_, logits):
        return centred(_, logits) if torch.rand(()) < 0.5 else logits

    with refused("examples interact in the module"):
        run_with(Body(now_and_then), steps=100)


# ---------------------------------------------------------------- traces of the data


def running_mean(module, logits):
    kept = getattr(module, "kept", None)
    fresh = logits.mean(dim=0).detach()
    module.kept = fresh if kept is None else 0.9 * kept + 0.1 * fresh
    return logits - (0.0 if kept is None else kept)


def queue(module, logits):
    kept = getattr(module, "kept", torch.zeros(2, CLASSES, dtype=torch.float64))
    module.kept = torch.cat([kept, logits.detach()])[-2:]
    return logits + kept.mean()


def queue_in_a_list(module, logits):
    module.__dict__.setdefault("entries", []).append(logits.detach().mean())
    return logits + sum(module.entries[:-1][-3:])


@pytest.mark.parametrize("change", [running_mean, queue, queue_in_a_list])
def test_what_a_module_remembers_is_refused(change):
    with refused("after other examples have passed"):
        run_with(Body(change))


COUNTERS = {
    "number": (lambda: 0, lambda c: c + 1, lambda c: c),
    "tensor": (lambda: torch.tensor(0), lambda c: c + 1, int),
    "list": (lambda: [0], lambda c: c.__setitem__(0, c[0] + 1) or c, lambda c: c[0]),
    "dictionary": (lambda: {"n": 0}, lambda c: c.update(n=c["n"] + 1) or c, lambda c: c["n"]),
    "object": (
        lambda: SimpleNamespace(n=0),
        lambda c: setattr(c, "n", c.n + 1) or c,
        lambda c: c.n,
    ),
}


@pytest.mark.parametrize("way", COUNTERS)
def test_a_module_may_count_its_passes(way):
    """And looking closely does not count."""
    start, count, read = COUNTERS[way]

    def annealed(module, logits):
        module.passes = count(module.passes)
        return logits / read(module.passes)

    body = Body(annealed)
    body.passes = start()
    run_with(body)
    assert read(body.passes) == STEPS


def test_containers_that_layers_share_stay_shared():
    def skipping(module, logits):
        module.stack.append(logits)
        return logits + module.head.stack.pop()

    body = Body(skipping)
    body.stack = body.head.stack = []
    run_with(body)
    assert body.stack is body.head.stack
    assert body.stack == []


def test_an_attribute_with_a_name_that_opacus_uses():
    def activated(module, logits):
        return module.activations[0](logits)

    body = Body(activated)
    body.activations = [torch.tanh]
    run_with(body)


@pytest.mark.parametrize(
    "extra",
    [
        lambda logits: logits.argmax(dim=1),
        lambda logits: logits > 0,
        lambda logits: torch.tensor(3),
        lambda logits: None,
    ],
)
def test_outputs_that_are_no_real_numbers(extra):
    run_with(Body(lambda _, logits: (logits, extra(logits))), lambda outputs: outputs[0])


def test_outputs_that_are_parameters():
    body = Body(lambda module, logits: (logits, module.head.weight))
    module, optimizer, loader = private(
        body, strategy=strategies.identity(30), sampling=Poisson(0.1)
    )
    for inputs, labels in loader:
        if len(labels):
            functional.cross_entropy(module(inputs)[0], labels).backward()
        optimizer.step()
    assert optimizer.finished


def test_scores_that_are_masked():
    def masked(_, logits):
        return logits.masked_fill(torch.tensor([False, False, True]), -torch.inf)

    inputs, labels = data().tensors
    module, optimizer, loader = private(Body(masked), TensorDataset(inputs, labels % 2))
    train(module, optimizer, loader)
    met = Body(lambda _, logits: masked(_, centred(_, logits)))
    with refused("examples interact in the module"):
        train(*private(met, TensorDataset(inputs, labels % 2)))


def test_looking_closely_leaves_no_entries_behind():
    """Lists at layers and hooks of the user: the loop would go through freed graphs."""

    def listed(module, logits):
        module.features.append(logits)
        return logits

    body, seen = Body(listed), []
    body.features = []
    body.head.register_forward_hook(lambda *_: seen.append(1))
    module, optimizer, loader = private(body)
    for batch in loader:
        backward(module, batch)
        optimizer.step()
        assert len(body.features) == 1
        body.features.clear()
    assert len(seen) == STEPS


def test_generators_of_a_module_are_left_alone():
    def noisy(module, logits):
        shape = logits.shape
        return logits + torch.randn(shape, generator=module.own, dtype=torch.float64)

    results = []
    for seldom in (1, 10**9):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(watch, "SELDOM", seldom)
            body = Body(noisy)
            body.own = torch.Generator().manual_seed(3)
            module, optimizer, loader = private(body)
            train(module, optimizer, loader)
            results.append(parameters(module))
    assert all(map(torch.equal, *results))


# ---------------------------------------------------------------- no false alarms


def drop_path(_, logits):
    kept = logits.new_empty(len(logits), 1).bernoulli_(0.8)
    return logits * kept / 0.8


def drop_words(_, logits):
    return torch.where(torch.rand_like(logits) < 0.2, 0.0, logits)


def chosen(_, logits):
    return logits * functional.gumbel_softmax(logits, hard=True)


def jittered(_, logits):
    return logits * torch.empty_like(logits).uniform_(0.9, 1.1)


def time_first(_, logits):
    return (logits.T + 0.1 * torch.randn(CLASSES, len(logits), dtype=torch.float64)).T


def sampled_often(_, logits):
    often = logits.repeat(4, 1)
    return (often + torch.randn_like(often)).view(4, -1, CLASSES).mean(dim=0)


def timesteps(_, logits):
    return logits * torch.randint(1, 100, (len(logits), 1)) / 100


def own_numbers(module, logits):
    return logits * torch.from_numpy(module.own.random((len(logits), 1)) < 0.6)


def global_numbers(_, logits):
    return logits * torch.from_numpy(np.random.rand(len(logits), 1) < 0.6)  # noqa: NPY002


@pytest.mark.filterwarnings("ignore:the module's per-example gradients")
@pytest.mark.parametrize(
    "change",
    [
        drop_path,
        drop_words,
        chosen,
        jittered,
        time_first,
        sampled_often,
        timesteps,
        own_numbers,
        global_numbers,
    ],
)
def test_random_modules_are_trained(change):
    run_with(Body(change), steps=15)


@pytest.mark.parametrize("place", ["outside", "inside"])
def test_bfloat16_with_single_precision_outputs(place):
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(4)
            layers = [nn.Linear(FEATURES, 32), nn.LayerNorm(32), nn.ReLU()]
            self.body = nn.Sequential(*layers, nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, CLASSES))

        def forward(self, x):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=place == "inside"):
                inside = self.body(x) if place == "inside" else None
            return (self.body(x) if inside is None else inside).float()

    inputs, labels = data().tensors
    dataset = TensorDataset(inputs.float(), labels)
    module, optimizer, loader = private(Mixed(), dataset, strategy=strategies.identity(30))
    for batch in loader:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=place == "outside"):
            logits = module(batch[0])
        functional.cross_entropy(logits, batch[1]).backward()
        optimizer.step()
    assert optimizer.finished


class Teacher(nn.Module):
    """A student and a frozen copy of it, which follows between steps."""

    def __init__(self) -> None:
        super().__init__()
        self.student = linear()
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)

    def forward(self, x):
        return self.student(x) + self.teacher(x)


@pytest.mark.parametrize("way", ["in place", "behind autograd"])
def test_a_frozen_copy_that_follows_between_steps(way):
    body = Teacher()
    module, optimizer, loader = private(body, strategy=strategies.identity(30))
    for batch in loader:
        backward(module, batch)
        optimizer.step()
        pairs = zip(body.student.parameters(), body.teacher.parameters(), strict=True)
        for new, old in pairs:
            if way == "in place":
                old.mul_(0.9).add_(new.detach(), alpha=0.1)
            else:
                old.data = 0.9 * old.data + 0.1 * new.data
    assert optimizer.finished


def test_weights_that_are_swapped_for_evaluation_and_put_back():
    body = Teacher()
    body.register_buffer("constant", torch.ones(3))
    module, optimizer, loader = private(body)
    for batch in loader:
        kept = {name: value.clone() for name, value in body.state_dict().items()}
        body.load_state_dict({name: 0.5 * value for name, value in kept.items()})
        body.load_state_dict(kept)
        backward(module, batch)
        optimizer.step()
    assert optimizer.finished


class WithLoss(nn.Module):
    """Weighs the examples' losses, with both signs, so that the mean is near zero."""

    def __init__(self, reduction="mean") -> None:
        super().__init__()
        self.inner, self.reduction = linear(), reduction

    def forward(self, x, labels):
        losses = functional.cross_entropy(self.inner(x), labels, reduction="none")
        signed = losses * torch.where(labels == 0, -1.0, 1.0)
        return signed.mean() if self.reduction == "mean" else signed.sum()


def test_a_signed_loss_inside_is_trained():
    module, optimizer, loader = private(WithLoss(), strategy=strategies.identity(30))
    for inputs, labels in loader:
        module(inputs, labels).backward()
        optimizer.step()
    assert optimizer.finished


def test_a_loss_inside_that_is_summed_is_refused_for_what_it_is():
    module, _, loader = private(WithLoss("sum"))
    for batch in loader:
        with refused("is not reduced over the examples the way loss_reduction"):
            module(*batch).backward()
        break


def test_an_example_without_a_finite_loss_inside():
    inputs, labels = data().tensors
    broken = inputs.clone()
    broken[4] = float("nan")
    module, optimizer, loader = private(WithLoss(), TensorDataset(broken, labels))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that nothing could be compared is right
        for batch in loader:
            module(*batch).backward()
            optimizer.step()
    assert optimizer.finished


def test_what_cannot_be_compared_is_told_once():
    body = Body(same, lambda logits: lambda: logits)
    with pytest.warns(UserWarning, match="could not be compared.*is not checked") as caught:
        run_with(body, lambda outputs: outputs())
    assert len([w for w in caught if "compared" in str(w.message)]) == 1


# ---------------------------------------------------------------- around the module


@pytest.mark.parametrize("mode", ["hooks", "functorch", "ew", "ghost"])
def test_the_module_that_was_given_is_not_called_for_gradients(mode):
    body = linear()
    module, optimizer, loader = private(body, grad_sample_mode=mode)
    other = torch.optim.SGD(body.parameters(), lr=0.1)
    for batch in loader:
        backward(module, batch)
        optimizer.step()
        with refused("Call the module that make_private returned"):
            backward(body, batch)
        with torch.no_grad():
            body(batch[0])
        break
    assert optimizer.position == 1
    other.zero_grad()


def test_after_the_run_the_module_is_free():
    body = linear()
    train(*private(body))
    body(data().tensors[0])
    private_module, *_ = private(linear())
    free = private_module.to_standard_module()
    free(data().tensors[0]).sum().backward()


def test_layers_that_change_others_outputs_in_place():
    def added(module, logits):
        logits += 1.0
        return logits

    with refused(r"write out = out \+ x"):
        run_with(Body(added))


def test_modules_and_optimizers_of_other_kinds():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch would rather have it compiled
        scripted = torch.jit.script(linear())
    with pytest.raises(MmccError, match="scripted module"):
        private(scripted)

    class Around(torch.optim.Optimizer):
        def __init__(self, inner) -> None:
            self.inner = inner

        @property
        def param_groups(self):
            return self.inner.param_groups

    module = linear()
    with pytest.raises(MmccError, match="not a complete torch optimizer"):
        make_private(
            module,
            Around(torch.optim.SGD(module.parameters(), lr=0.1)),
            data(),
            strategy=strategies.identity(3),
            sampling=Poisson(0.5),
            max_grad_norm=1.0,
            sigma=1.0,
            delta=1e-5,
        )


class Encoding(dict):
    """As a tokenizer's: a mapping with methods of its own."""

    def to(self, _device):
        return self


@pytest.mark.parametrize(
    ("collate", "check"),
    [
        (
            lambda rows: Encoding(x=torch.stack([x for x, _ in rows])),
            lambda batch: batch.to("cpu")["x"].shape == (0, FEATURES),
        ),
        (lambda rows: [x for x, _ in rows], lambda batch: batch == []),
        (lambda rows: ([x for x, _ in rows], "fixed"), lambda batch: batch == ([], "fixed")),
    ],
)
def test_empty_batches_of_any_kind(collate, check):
    source = DataLoader(data(), batch_size=1, collate_fn=collate)
    _, _, loader = private(dataset=source, sampling=Poisson(1e-9 + 0.01))
    batches = iter(loader)
    found = [next(batches) for _ in range(STEPS)]
    sizes = [loader.run.handed[place].size for place in range(STEPS)]
    empty = [batch for batch, size in zip(found, sizes, strict=True) if size == 0]
    assert empty
    assert all(map(check, empty))


# ---------------------------------------------------------------- numbers that stand in for chance


@pytest.mark.parametrize("chance", [0.1, 0.7])
def test_what_is_drawn_is_one_number(chance):
    shape = (4, 5)
    with FixedDraws(chance):
        drawn = [
            torch.rand(shape),
            torch.randn(*shape),
            torch.randint(2, 40, shape),
            torch.normal(torch.zeros(shape), 1.0),
            torch.empty(shape).exponential_(),
            torch.empty(shape).normal_(),
            torch.bernoulli(torch.full(shape, 0.5)),
            torch.empty(shape).bernoulli_(0.5),
        ]
        order = torch.rand(6).argsort()
    assert all(numbers.unique().numel() == 1 for numbers in drawn)
    assert drawn[0][0, 0] == pytest.approx(chance)
    assert drawn[-1][0, 0] == (chance < 0.5)
    assert sorted(order.tolist()) == list(range(6)) != order.tolist()
