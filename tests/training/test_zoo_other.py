"""Claim: what users do around a step changes nothing, or is refused in a sentence.

Evaluation in the loop, second backward passes, sharded modules; and good models under bfloat16, or
near an optimum, are not refused.
"""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from cases.private import CLASSES, FEATURES, STEPS, data, parameters, private, train  # noqa: E402
from cases.samples import first, sampled  # noqa: E402
from cases.zoo.models import CASES  # noqa: E402
from cases.zoo.runs import private_steps  # noqa: E402
from torch import distributed, nn  # noqa: E402

from mmcc import MmccError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
MODES = ["hooks", "functorch", "ew", "ghost"]
NAMED = {case.name: case for case in CASES}


def network() -> nn.Module:
    torch.manual_seed(8)
    return nn.Sequential(nn.Linear(FEATURES, 6), nn.Tanh(), nn.Linear(6, CLASSES)).double()


def loss_of(module, batch):
    return nn.functional.cross_entropy(module(batch[0]), batch[1])


def plain(mode: str) -> list[torch.Tensor]:
    """Parameters after a run as in the manual."""
    module, optimizer, loader = private(network(), grad_sample_mode=mode)
    train(module, optimizer, loader)
    return parameters(module)


def same_or_refused(mode: str, step) -> None:
    """The whole run with another loop: the same parameters, or one sentence."""
    module, optimizer, loader = private(network(), grad_sample_mode=mode)
    try:
        for batch in loader:
            step(module, optimizer, batch)
    except MmccError as refusal:
        sentence(refusal)
    else:
        assert optimizer.position == STEPS
        torch.testing.assert_close(parameters(module), plain(mode), rtol=1e-9, atol=1e-12)


def sentence(refusal: MmccError) -> None:
    assert "\n" not in str(refusal)
    assert str(refusal).count(". ") <= 2


def predict(module, *, gradients: bool) -> None:
    module.eval()
    with torch.set_grad_enabled(gradients):
        assert module(data().tensors[0]).shape[1] == CLASSES
    module.train()


# ---------------------------------------------------------------- evaluation in the loop


@pytest.mark.parametrize(
    ("mode", "place", "gradients"), sampled(MODES, ["before", "between", "after"], [False, True])
)
def test_evaluation(mode, place, gradients):
    def step(module, optimizer, batch):
        optimizer.zero_grad()
        if place == "before":
            predict(module, gradients=gradients)
        loss = loss_of(module, batch)
        if place == "between":
            predict(module, gradients=gradients)
        loss.backward()
        optimizer.step()
        if place == "after":
            predict(module, gradients=gradients)

    same_or_refused(mode, step)


@pytest.mark.parametrize("part", ["all", "a layer"])
@pytest.mark.parametrize("mode", MODES)
def test_module_left_in_evaluation_mode(mode, part):
    def step(module, optimizer, batch):
        (module if part == "all" else module._module[0]).eval()
        optimizer.zero_grad()
        loss_of(module, batch).backward()
        optimizer.step()

    same_or_refused(mode, step)


@pytest.mark.parametrize("mode", MODES)
def test_gradients_that_are_not_zeroed(mode):
    """A released gradient that still stands in `p.grad` is no part of the next batch's."""

    def step(module, optimizer, batch):
        loss_of(module, batch).backward()
        optimizer.step()

    same_or_refused(mode, step)


# ---------------------------------------------------------------- second backward passes


@pytest.mark.parametrize("mode", MODES)
def test_backward_with_a_graph(mode):
    def step(module, optimizer, batch):
        optimizer.zero_grad()
        loss_of(module, batch).backward(create_graph=True)
        optimizer.step()

    same_or_refused(mode, step)


@pytest.mark.parametrize("mode", MODES)
def test_gradients_looked_at_before_the_backward_pass(mode):
    def step(module, optimizer, batch):
        optimizer.zero_grad()
        loss = loss_of(module, batch)
        looked_at = list(module.parameters())
        torch.autograd.grad(loss, looked_at, retain_graph=True, allow_unused=True)
        loss.backward()
        optimizer.step()

    same_or_refused(mode, step)


@pytest.mark.parametrize("mode", MODES)
def test_two_backward_passes_of_half_the_loss(mode):
    """Autograd adds them up: each example's gradient is that of the whole loss."""

    def step(module, optimizer, batch):
        optimizer.zero_grad()
        half = loss_of(module, batch) / 2
        half.backward(retain_graph=True)
        half.backward()
        optimizer.step()

    same_or_refused(mode, step)


@pytest.mark.parametrize("mode", MODES)
def test_two_losses_of_one_pass(mode):
    def step(module, optimizer, batch):
        optimizer.zero_grad()
        loss = loss_of(module, batch)
        (0.25 * loss).backward(retain_graph=True)
        (0.75 * loss).backward()
        optimizer.step()

    same_or_refused(mode, step)


def test_hooks_after_a_step():
    module, optimizer, loader = private(network())
    seen = []
    optimizer.register_step_post_hook(lambda *_: seen.append(optimizer.position))
    train(module, optimizer, loader)
    assert seen == list(range(1, STEPS + 1))


# ---------------------------------------------------------------- sharded modules


@pytest.fixture
def group():
    """A process group of one process, without a network."""
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def flat_shards(module: nn.Module, *, original: bool) -> nn.Module:
    from torch.distributed.fsdp import FullyShardedDataParallel

    cpu = torch.device("cpu")
    return FullyShardedDataParallel(module, device_id=cpu, use_orig_params=original)


def tensor_shards(module: nn.Module) -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    fully_shard(module, mesh=distributed.device_mesh.init_device_mesh("cpu", (1,)))
    return module


SHARDS = {
    "flat": lambda module: flat_shards(module, original=False),
    "flat, original parameters": lambda module: flat_shards(module, original=True),
    "tensors": tensor_shards,
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("way", SHARDS)
@pytest.mark.usefixtures("group")
def test_sharded_module(way, mode):
    try:
        module, optimizer, loader = private(SHARDS[way](network()), grad_sample_mode=mode)
        train(module, optimizer, loader)
    except MmccError as refusal:
        sentence(refusal)
    else:
        assert optimizer.position == STEPS


# ---------------------------------------------------------------- no false alarms

GOOD = ["mlp", "group norm cnn", "dplstm", "transformer encoder", "tied embeddings"]
BUILT = ["llama", "roberta", "lora on llama", "lora on bert"]


def found(name: str):
    case = NAMED[name]
    for package in case.needs:
        pytest.importorskip(package)
    return case


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
@pytest.mark.parametrize("name", first(GOOD + BUILT, 5))
def test_good_models_are_trained_in_bfloat16(name, mode):
    case = found(name)

    def losses(module, batch):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return case.losses(module, batch)

    for step in private_steps(replace(case, losses=losses), mode):
        assert step.error < 0.1


TOKENS = ["tied embeddings", "transformer encoder", "gpt2", "llama", "bert", "lora on llama"]


@pytest.mark.parametrize("mode", ["ghost", "hooks"])
@pytest.mark.parametrize("name", first(TOKENS, 2))
def test_good_models_whose_parameters_are_in_bfloat16(name, mode):
    case = found(name)

    def losses(module, batch):
        return case.losses(module, batch).float()

    short = replace(case, build=lambda: case.build().bfloat16(), losses=losses)
    for step in private_steps(short, mode):
        assert step.error < 0.1


@pytest.mark.parametrize(
    "name", first(["gradients that cancel", "layer without gradient", *GOOD], 4)
)
def test_good_models_are_trained_to_the_end(name):
    """Steps at which it is looked more closely come at random: one of many would be a wrong one."""
    count = sum(step.error <= 1e-5 for step in private_steps(found(name), "hooks", steps=60))
    assert count == 60
