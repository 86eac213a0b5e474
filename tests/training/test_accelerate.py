"""Claim: accelerate leaves a run as it is, or is refused; nothing trains without the noise."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")
accelerate = pytest.importorskip("accelerate")

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import with_accelerate as example  # noqa: E402
from accelerate.state import (  # noqa: E402
    AcceleratorState,
    DistributedType,
    GradientState,
    PartialState,
)
from cases.private import STEPS, data, linear, parameters, private, train  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from mmcc import MmccError, strategies  # noqa: E402
from mmcc.sampling import Poisson  # noqa: E402
from mmcc.training import RunError, make_private  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook")


@pytest.fixture(autouse=True)
def fresh_state():
    """What accelerate keeps for the whole process."""
    yield
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


def started(**options):
    return accelerate.Accelerator(cpu=True, **options)


def looped(accelerator, module, optimizer, loader, schedule=None):
    """As accelerate's own examples have it."""
    for inputs, labels in loader:
        with accelerator.accumulate(module):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(module(inputs), labels)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(module.parameters(), 1e-3)  # which has no effect
            optimizer.step()
            if schedule is not None:
                schedule.step()


def test_what_is_prepared_is_the_same_run():
    plain, run = private(), private()
    train(*plain)
    accelerator = started()
    prepared = accelerator.prepare(*run)
    assert all(one is other for one, other in zip(prepared, run, strict=True))
    looped(accelerator, *prepared)
    assert prepared[1].finished
    assert all(map(torch.equal, parameters(plain[0]), parameters(run[0])))
    assert accelerator.prepare(*run) == run  # a second time, too


@pytest.mark.parametrize("of_inner", [True, False])
def test_a_schedule_moves_once_for_each_release(of_inner):
    module, optimizer, loader = private(sampling=Poisson(1.0), physical_batch_size=10)
    inner = optimizer.original_optimizer if of_inner else optimizer
    schedule = torch.optim.lr_scheduler.LambdaLR(inner, lambda step: 0.5**step)
    accelerator = started()
    prepared = accelerator.prepare(module, optimizer, loader, schedule)
    looped(accelerator, *prepared)
    assert optimizer.finished
    assert optimizer.param_groups[0]["lr"] == 0.5 * 0.5**STEPS


def test_bfloat16_is_used():
    module = nn.Linear(4, 3)
    inputs, labels = data().tensors
    run = private(module, TensorDataset(inputs.float(), labels))
    accelerator = started(mixed_precision="bf16")
    prepared = accelerator.prepare(*run)
    assert prepared[0](inputs.float()[:2]).dtype == torch.bfloat16
    prepared[0].zero_grad()
    prepared[1].run.watch.forget()  # of the pass above
    looped(accelerator, *prepared)
    assert prepared[1].finished


@pytest.fixture
def elsewhere(monkeypatch):
    """Accelerate on a device that stands for any that is not the CPU."""
    accelerator = started()
    monkeypatch.setitem(PartialState._shared_state, "device", torch.device("meta"))
    return accelerator


def test_batches_go_where_accelerate_puts_them(elsewhere):
    _, _, loader = private()
    assert elsewhere.prepare(loader) is loader
    assert next(iter(loader))[0].device.type == "meta"


def test_parameters_elsewhere_are_refused(elsewhere):
    _, optimizer, _ = private()
    with pytest.raises(RunError, match=r"call module.to\(accelerator.device\) before"):
        elsewhere.prepare(optimizer)


def test_gradient_accumulation_is_refused():
    accelerator = started(gradient_accumulation_steps=4)
    for part in private():
        with pytest.raises(RunError, match=r"gradient_accumulation_steps=4 .* physical_batch_size"):
            accelerator.prepare(part)


def state(**changed):
    usual = {
        "mixed_precision": "no",
        "distributed_type": DistributedType.NO,
        "num_processes": 1,
        "device": torch.device("cpu"),
        "dynamo_plugin": SimpleNamespace(backend=SimpleNamespace(name="NO")),
    }
    return SimpleNamespace(**{**usual, **changed})


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"mixed_precision": "fp16"}, "scales the loss.* Use 'bf16'"),
        ({"mixed_precision": "fp8"}, "mixed_precision='fp8'"),
        ({"distributed_type": DistributedType.FSDP}, "started for FSDP.* distributed=True"),
        ({"distributed_type": DistributedType.DEEPSPEED}, "started for DEEPSPEED"),
        ({"distributed_type": DistributedType.MEGATRON_LM}, "started for MEGATRON_LM"),
        ({"distributed_type": DistributedType.XLA}, "started for XLA"),
        (
            {"distributed_type": DistributedType.MULTI_CPU, "num_processes": 2},
            "2 processes but the run has 1: each would make a release",
        ),
        (
            {"dynamo_plugin": SimpleNamespace(backend=SimpleNamespace(name="INDUCTOR"))},
            "torch.compile before make_private",
        ),
    ],
)
def test_other_settings_are_refused_for_each_part(changed, match):
    """They cannot be started on this machine: what accelerate would say is given."""
    started()
    for part in private():
        part._meet_accelerate(state())
        with pytest.raises(RunError, match=match):
            part._meet_accelerate(state(**changed))


def test_a_compiled_run_is_refused():
    accelerator = started(dynamo_backend="eager")
    with pytest.raises(RunError, match=r"torch\.compile before make_private"):
        accelerator.prepare(*private())


def test_a_loader_that_skips_is_not_ours():
    run = private()
    accelerator = started()
    module, optimizer, loader = accelerator.prepare(*run)
    with pytest.raises(RunError, match="step 0 has no batch"):
        looped(accelerator, module, optimizer, accelerator.skip_first_batches(loader, 1))
    assert optimizer.position == 0


def test_the_state_of_accelerate_is_no_checkpoint(tmp_path):
    accelerator = started()
    run = accelerator.prepare(*private())
    accelerator.save_state(tmp_path / "state")
    with pytest.raises(RunError, match=r"use mmcc\.training\.load_checkpoint"):
        accelerator.load_state(tmp_path / "state")
    key = run[1].run.noise.state()["key"]
    words = [file.read_bytes() for file in (tmp_path / "state").iterdir()]
    assert words
    assert not any(str(key).encode() in word for word in words)


def test_what_accelerate_has_wrapped_is_refused():
    """Prepared first: its optimizer steps when it likes."""
    accelerator = started(gradient_accumulation_steps=2)
    module = linear()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    module, optimizer, loader = accelerator.prepare(
        module, optimizer, DataLoader(data(), batch_size=9)
    )
    with pytest.raises(MmccError, match="AcceleratedOptimizer is not a complete torch optimizer"):
        make_private(
            module,
            optimizer,
            loader,
            strategy=strategies.identity(STEPS),
            sampling=Poisson(0.3),
            max_grad_norm=1.0,
            sigma=1.0,
            delta=1e-5,
        )


def test_the_example_learns_within_its_target():
    result = example.main(epochs=4)
    assert result.guarantee.epsilon <= example.EPSILON
    assert result.guarantee.delta == example.DELTA
    assert result.accuracy_before < 0.7
    assert result.accuracy > 0.8
