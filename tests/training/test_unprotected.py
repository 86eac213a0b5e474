"""Claim: no loop trains without the promised protection and hears nothing.

Each of these went through without a word: the old optimizer, batches without a step, scaled losses,
losses in which examples meet, gradients that are not those of the loss.
"""

from __future__ import annotations

import os
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

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
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402

from mmcc import MmccError, strategies  # noqa: E402
from mmcc.sampling import Poisson  # noqa: E402
from mmcc.training import (  # noqa: E402
    RunError,
    load_checkpoint,
    make_private,
    per_example_loss,
    save_checkpoint,
)
from mmcc.training import _watch as watch  # noqa: E402
from mmcc.training._module_contents import check_sums  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook")
EVERYBODY = Poisson(1.0)


def refused(words: str):
    return pytest.raises(RunError, match=words)


def with_old_optimizer(**options):
    module = linear()
    old = torch.optim.SGD(module.parameters(), lr=0.5)
    given = {"strategy": strategies.identity(STEPS), "sampling": Poisson(0.3), **options}
    made = make_private(module, old, data(), max_grad_norm=1.0, sigma=1.0, delta=1e-5, **given)
    return old, *made


# ---------------------------------------------------------------- the old optimizer


def test_the_old_optimizer_does_not_step():
    old, module, optimizer, loader = with_old_optimizer()
    before = parameters(module)
    for batch in loader:
        backward(module, batch)
        with refused("would train without clipping and noise"):
            old.step()
        break
    assert all(map(torch.equal, before, parameters(module)))
    assert optimizer.position == 0


def test_a_schedule_of_the_old_optimizer_is_a_schedule_of_the_new_one():
    old, module, optimizer, loader = with_old_optimizer(seed=4)
    schedule = torch.optim.lr_scheduler.ExponentialLR(old, 0.5)
    for batch in loader:
        backward(module, batch)
        optimizer.step()
        schedule.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.5 * 0.5**STEPS)


# ---------------------------------------------------------------- batches without a step


def test_a_pass_over_the_next_batch_needs_a_step():
    module, optimizer, loader = private()
    batches = iter(loader)
    backward(module, next(batches))
    with refused("called for gradients again"):
        backward(module, next(batches))
    assert optimizer.position == 0


@pytest.mark.parametrize("epoch", [2, 5, None])
def test_an_epoch_does_not_end_without_steps(epoch):
    _, _, loader = private(steps_per_epoch=epoch)
    with refused("a batch was skipped"):
        for _ in loader:
            pass


@pytest.mark.parametrize("epoch", [1, 2, 5])
def test_an_epoch_does_not_end_without_its_last_step(epoch):
    module, optimizer, loader = private(steps_per_epoch=epoch)
    with refused("a batch was skipped"):
        for batch in loader:
            backward(module, batch)
            if optimizer.position < epoch - 1:
                optimizer.step()
    assert optimizer.position == epoch - 1


def test_an_epoch_of_one_batch_that_was_fetched_and_not_used_is_noticed():
    _, _, loader = private(steps_per_epoch=1)
    for _ in loader:
        pass
    with refused("never worked on its last 1 batch"):
        iter(loader).__next__()


def test_every_second_batch_is_not_enough():
    module, optimizer, loader = private()
    with refused("a batch was skipped"):
        for place, batch in enumerate(loader):
            if place % 2 == 0:
                backward(module, batch)
                optimizer.step()


def ahead(loader, depth: int):
    """As accelerate does: fetches batches before the one in use was stepped on."""
    batches, waiting = iter(loader), []
    for batch in batches:
        waiting.append(batch)
        if len(waiting) > depth:
            yield waiting.pop(0)
    yield from waiting


@pytest.mark.parametrize("physical", [None, 3])
@pytest.mark.parametrize("depth", [0, 1, 2, 3])
def test_fetching_ahead_is_allowed(depth, physical):
    plain = private(steps_per_epoch=4, physical_batch_size=physical)
    module, optimizer, loader = private(steps_per_epoch=4, physical_batch_size=physical)
    while not optimizer.finished:
        train(*plain)
        for batch in ahead(loader, depth):
            optimizer.zero_grad()
            backward(module, batch)
            optimizer.step()
    assert all(map(torch.equal, parameters(plain[0]), parameters(module)))


def test_a_checkpoint_while_batches_are_fetched_ahead(tmp_path):
    module, optimizer, loader = private()
    for batch in ahead(loader, 1):
        backward(module, batch)
        optimizer.step()
        if optimizer.position == 3:
            save_checkpoint(tmp_path / "run", module, optimizer, loader)
    resumed = private()
    load_checkpoint(tmp_path / "run", *resumed)
    train(*resumed)
    assert all(map(torch.equal, parameters(module), parameters(resumed[0])))


def test_one_batch_is_not_taken_for_another_that_was_fetched_ahead():
    module, optimizer, loader = private()
    batches = iter(loader)
    first, second = next(batches), next(batches)
    with refused("a batch was skipped: this one is of step 1"):
        backward(module, [part.clone() for part in second])
    backward(module, first)
    optimizer.step()
    assert optimizer.position == 1


# ---------------------------------------------------------------- a target without noise


def test_a_target_that_needs_no_noise_is_refused():
    """With so large a delta the promise is true, and nobody who takes part is protected."""
    with pytest.raises(MmccError, match=r"participants would not be protected\. Use a smaller"):
        private(sampling=Poisson(1e-4), epsilon=1.0, delta=1e-2)


# ---------------------------------------------------------------- scaled losses


def test_a_gradient_scaler_is_refused():
    module, optimizer, loader = private()
    scaler = torch.amp.GradScaler("cpu")
    for inputs, labels in loader:
        loss = functional.cross_entropy(module(inputs), labels)
        scaler.scale(loss).backward()
        with refused("GradScaler scales the loss.*bfloat16"):
            scaler.step(optimizer)
        break
    assert optimizer.position == 0


def test_a_gradient_scaler_that_is_off_changes_nothing():
    plain = private()
    train(*plain)
    module, optimizer, loader = private()
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    for inputs, labels in loader:
        loss = functional.cross_entropy(module(inputs), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    assert all(map(torch.equal, parameters(plain[0]), parameters(module)))


# ---------------------------------------------------------------- a rate that the loss drives


@pytest.mark.parametrize("which", [0, 2])
def test_a_rate_that_a_plateau_sets_is_warned_of_once(which):
    made = with_old_optimizer()
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(made[which], patience=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for loss in (3.0, 4.0, 5.0):
            schedule.step(loss)
    (warning,) = caught
    assert "a release without noise" in str(warning.message)
    assert warning.filename == __file__
    assert made[2].param_groups[0]["lr"] < 0.5


def test_plateaus_of_other_optimizers_are_not_warned_of():
    with_old_optimizer()
    other = torch.optim.SGD(linear().parameters(), lr=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.optim.lr_scheduler.ReduceLROnPlateau(other).step(1.0)


# ---------------------------------------------------------------- losses in which examples meet


class Tagger(nn.Module):
    """Scores of tokens, and the usual loss: a mean over all tokens that are not padding."""

    def __init__(self, *, only_loss: bool = False) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.only_loss = only_loss
        self.embedding = nn.Embedding(9, 6)
        self.head = nn.Linear(6, CLASSES)

    def forward(self, tokens, labels):
        logits = self.head(torch.tanh(self.embedding(tokens)))
        loss = functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return loss if self.only_loss else SimpleOutput(loss=loss, logits=logits)


class SimpleOutput(dict):
    def __getattr__(self, name):
        return self[name]


def tagged(*, padded: bool) -> TensorDataset:
    generator = torch.Generator().manual_seed(7)
    tokens = torch.randint(9, (EXAMPLES, 5), generator=generator)
    labels = torch.randint(CLASSES, (EXAMPLES, 5), generator=generator)
    if padded:
        lengths = 1 + torch.arange(EXAMPLES) % 5
        labels[torch.arange(5) >= lengths[:, None]] = -100
    return TensorDataset(tokens, labels)


def train_tagger(run, loss) -> None:
    module, optimizer, loader = run
    for tokens, labels in loader:
        optimizer.zero_grad()
        loss(module(tokens, labels), labels).backward()
        optimizer.step()


@pytest.mark.parametrize("mode", ["hooks", "functorch", "ew", "ghost"])
def test_a_mean_over_tokens_inside_the_module_is_refused(mode):
    run = private(Tagger(), tagged(padded=True), grad_sample_mode=mode)
    with refused("examples interact in the loss that the module computes"):
        train_tagger(run, lambda output, labels: output.loss)
    assert run[1].position == 0


def test_a_module_that_returns_nothing_but_such_a_loss_is_refused():
    run = private(Tagger(only_loss=True), tagged(padded=True))
    with refused("examples interact in the loss that the module computes"):
        train_tagger(run, lambda loss, labels: loss)


@pytest.mark.parametrize("only_loss", [True, False])
def test_the_same_loss_without_padding_is_fine(only_loss):
    """All examples have as many tokens, and so the mean over tokens is a mean over examples."""
    run = private(Tagger(only_loss=only_loss), tagged(padded=False))
    train_tagger(run, lambda output, labels: output if only_loss else output.loss)
    assert run[1].finished


@pytest.mark.parametrize("mode", ["hooks", "ew", "ghost"])
def test_a_loss_inside_that_is_not_used_does_not_matter(mode):
    """And the one that is used is the mean of each example's own: clipped one by one."""
    everybody = {"sampling": EVERYBODY, "strategy": strategies.identity(1), "sigma": 1e-9}
    run = private(Tagger(), tagged(padded=True), grad_sample_mode=mode, rate=1.0, **everybody)
    train_tagger(run, lambda output, labels: per_example_loss(output.logits, labels).mean())
    truth = clipped_one_by_one(Tagger(), tagged(padded=True))
    moved = [q - p for p, q in zip(parameters(run[0]), parameters(Tagger()), strict=True)]
    for found, expected in zip(moved, truth, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def clipped_one_by_one(module, dataset) -> list[torch.Tensor]:
    """By plain autograd, with the loss of an example written out."""
    total = [torch.zeros_like(p) for p in module.parameters()]
    for tokens, labels in dataset:
        logits = module(tokens[None], labels[None])["logits"][0]
        there = [i for i in range(len(labels)) if labels[i] != -100]
        losses = [-torch.log_softmax(logits[i], dim=0)[labels[i]] for i in there]
        gradients = torch.autograd.grad(sum(losses) / len(there), list(module.parameters()))
        norm = torch.stack([g.norm() for g in gradients]).norm()
        for added, g in zip(total, gradients, strict=True):
            added += g * min(1.0, float(1 / (norm + 1e-6))) / EXAMPLES
    return total


def test_hugging_face_losses_with_padding_are_refused():
    transformers = pytest.importorskip("transformers")
    sizes = {"n_layer": 1, "n_head": 2, "n_embd": 8, "vocab_size": 9, "n_positions": 5}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes)).train()
    tokens, labels = tagged(padded=True).tensors
    rows = [
        {"input_ids": x, "labels": torch.where(y == -100, -100, x)}
        for x, y in zip(tokens, labels, strict=True)
    ]
    module, _, loader = private(model, rows)
    for batch in loader:
        with refused("mmcc.training.per_example_loss"):
            module(**batch).loss.backward()
        break


def test_per_example_loss_counts_what_counts():
    logits = torch.randn(3, 4, 5, dtype=torch.float64)
    labels = torch.randint(5, (3, 4))
    labels[0, 2:] = -100
    labels[2] = -100
    found = per_example_loss(logits, labels)
    logs = torch.log_softmax(logits, dim=-1).numpy()
    first = -np.mean([logs[0, i, labels[0, i]] for i in range(2)])
    second = -np.mean([logs[1, i, labels[1, i]] for i in range(4)])
    np.testing.assert_allclose(found.numpy(), [first, second, 0.0], rtol=1e-12)
    flat = per_example_loss(logits[:, 0], torch.tensor([1, 2, -100]))
    np.testing.assert_allclose(flat.numpy(), [-logs[0, 0, 1], -logs[1, 0, 2], 0.0], rtol=1e-12)
    assert per_example_loss(logits[:0], labels[:0]).shape == (0,)


def test_per_example_loss_with_shapes_that_do_not_fit():
    with pytest.raises(MmccError, match="do not fit labels"):
        per_example_loss(torch.zeros(3, 5, 4), torch.zeros(3, 4, dtype=torch.long))


# ---------------------------------------------------------------- gradients that are not the loss's


class Late(nn.Module):
    """A model that is good at first: from some pass on its weight is used by hand as well."""

    def __init__(self, good: int) -> None:
        super().__init__()
        self.inner, self.good, self.passes = linear(), good, 0

    def forward(self, x):
        out = self.inner(x)
        self.passes += 1
        if self.passes > self.good:
            out = out + x @ self.inner.weight.T
        return out


def test_gradients_are_looked_at_all_the_way(monkeypatch):
    monkeypatch.setattr(watch, "SELDOM", 4)
    module, optimizer, loader = private(Late(60), strategy=strategies.identity(300))
    with refused("parameter 'inner.weight'"):
        train(module, optimizer, loader)
    assert 3 < optimizer.position < 200


def test_when_gradients_are_looked_at_is_drawn_anew(monkeypatch):
    monkeypatch.setattr(watch, "SELDOM", 4)
    drawn = set()
    for _ in range(2):
        module, optimizer, loader = private(linear(), strategy=strategies.identity(60))
        close = []
        for batch in loader:
            backward(module, batch)
            close.append(module.watch.close)
            optimizer.step()
        assert all(close[:3])
        assert 3 < sum(close) < 40
        drawn.add(tuple(close))
    assert len(drawn) == 2


def test_looking_closely_changes_nothing(monkeypatch):
    """Not a bit of the parameters, nor of what is drawn by dropout."""

    def result() -> list[torch.Tensor]:
        torch.manual_seed(1)
        body = nn.Sequential(nn.Linear(FEATURES, 8), nn.Dropout(0.5), nn.Linear(8, CLASSES))
        run = private(body.double())
        torch.manual_seed(2)
        train(*run)
        return parameters(run[0])

    monkeypatch.setattr(watch, "SELDOM", 1)
    always = result()
    monkeypatch.setattr(
        watch.Watch, "close", property(lambda _: False, lambda *_: None), raising=False
    )
    assert all(map(torch.equal, always, result()))


def test_clipping_the_gradient_in_the_loop_is_no_false_alarm():
    """It does nothing: what is released comes from the examples' gradients."""
    module, optimizer, loader = private()
    for batch in loader:
        backward(module, batch)
        nn.utils.clip_grad_norm_(module.parameters(), 1e-3)
        optimizer.step()
    assert optimizer.finished


def test_a_refusal_has_the_name_and_both_numbers():
    module, optimizer, loader = private(linear(), sampling=EVERYBODY)
    for batch in loader:
        penalty = 0.5 * module._module.weight.square().sum()
        (functional.cross_entropy(module(batch[0]), batch[1]) + penalty).backward()
        with refused(r"parameter 'weight'.* is \S+ away from .*, whose length is \S+,"):
            optimizer.step()
        break
    assert optimizer.position == 0


def test_a_frozen_weight_that_is_written_to_is_noticed():
    class Writes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = linear()
            self.kept = nn.Parameter(torch.zeros(3), requires_grad=False)

        def forward(self, x):
            with torch.no_grad():
                self.kept[0] += x[0, 0].item()
            return self.inner(x)

    with refused("'kept', a parameter of the module, changed"):
        train(*private(Writes()))


class Sums(nn.Module):
    """Adds what it sees to a buffer, or registers a new one that holds it."""

    def __init__(self, new: bool) -> None:
        super().__init__()
        self.inner, self.new = linear(), new
        self.register_buffer("total", torch.zeros(()))

    def forward(self, x):
        if self.new:
            self.register_buffer("seen", x.detach().sum())
        else:
            self.total += x.detach().sum()
        return self.inner(x)


@pytest.mark.parametrize("new", [False, True])
def test_a_buffer_that_is_written_to_is_named(new):
    name = "seen" if new else "total"
    with refused(rf"a buffer of the module changed during training \('{name}'\)"):
        train(*private(Sums(new)))


def test_buffers_are_accepted_between_steps_only():
    """Else what a pass has written there could be taken for something that was there before."""
    module, optimizer, loader = private(Sums(False), sampling=EVERYBODY)
    module._module.total += 1  # not by the data
    optimizer.accept_buffers()
    batches = iter(loader)
    backward(module, next(batches))
    with refused("belongs between two steps"):
        optimizer.accept_buffers()
    with refused("a buffer of the module changed"):
        optimizer.step()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int16])
@pytest.mark.parametrize("size", [1, 2, 3, 8, 1001])
def test_sums_of_bits_see_every_change(dtype, size):
    tensor = (torch.arange(size + 1) % 100).to(dtype)[1:]  # begins in the middle of a word
    before = check_sums([tensor])
    changed = tensor.clone()
    assert check_sums([changed]) == before
    for place in {0, size // 2, size - 1}:
        changed = tensor.clone()
        changed[place] += 1
        assert check_sums([changed]) != before


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64])
def test_sums_of_bits_see_values_that_change_places_or_cancel(dtype):
    tensor = torch.arange(8).to(dtype)
    before = check_sums([tensor])
    assert check_sums([tensor.roll(3)]) != before
    assert check_sums([tensor.flip(0)]) != before
    moved = tensor.clone()
    moved[1] += 1
    moved[3] -= 1
    assert check_sums([moved]) != before


def test_sums_of_bits_of_odd_tensors():
    grid = torch.arange(12.0).view(3, 4)
    empty, scalar = torch.zeros(0), torch.tensor(3.0)
    complex_numbers, flags = torch.ones(3, dtype=torch.complex64), torch.ones(3, dtype=torch.bool)
    sums = check_sums([grid.T, empty, scalar, complex_numbers, flags])
    assert len(sums) == 5
    assert sums[0] == check_sums([grid.T.contiguous()])[0]
    assert check_sums([]) == []


def test_hooks_of_an_optimizer_work_as_on_any_other():
    module, optimizer, loader = private()
    seen = []
    optimizer.register_step_pre_hook(lambda *_: seen.append("before"))
    handle = optimizer.register_step_post_hook(lambda who, *_: seen.append(who is optimizer))
    batches = iter(loader)
    for _ in range(2):
        backward(module, next(batches))
        optimizer.step()
        handle.remove()
    assert seen == ["before", True, "before"]


def test_empty_namespace_outputs_are_left_alone():
    """A module whose outputs hold no tensors that torch knows of cannot be tried, and trains."""

    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = linear()

        def forward(self, x):
            return SimpleNamespace(logits=self.inner(x))

    module, optimizer, loader = private(Wrapped())
    for inputs, labels in loader:
        functional.cross_entropy(module(inputs).logits, labels).backward()
        optimizer.step()
    assert optimizer.finished
