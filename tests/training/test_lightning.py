"""Claim: Lightning's automatic optimisation makes the accounted run, or is refused."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")
lightning = pytest.importorskip("lightning")

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import with_lightning as example  # noqa: E402
from cases.private import data, linear, parameters, private, train  # noqa: E402
from lightning.pytorch.callbacks import (  # noqa: E402
    EarlyStopping,
    GradientAccumulationScheduler,
    LearningRateFinder,
    ModelCheckpoint,
)
from lightning.pytorch.plugins.precision import Precision  # noqa: E402
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy  # noqa: E402
from lightning.pytorch.tuner import Tuner  # noqa: E402
from lightning.pytorch.utilities.data import _update_dataloader  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, DistributedSampler, Subset  # noqa: E402

from mmcc import strategies  # noqa: E402
from mmcc.sampling import Poisson  # noqa: E402
from mmcc.training import PrivacyCallback, ProgressLine, RunError  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:Full backward hook"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec"),  # lightning 2.6 with torch 2.13
    pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`"),
    pytest.mark.filterwarnings(  # advice about speed, and about what is left out here
        "ignore::lightning.fabric.utilities.warnings.PossibleUserWarning"
    ),
]

QUIET = {
    "accelerator": "cpu",
    "logger": False,
    "enable_model_summary": False,
    "enable_progress_bar": False,
}
STEPS = 6


class Model(lightning.LightningModule):
    """Any module, an optimizer, and what is logged of the training data."""

    def __init__(self, module, optimizers, logged=(), schedule=None):
        super().__init__()
        self.module, self.made, self.logged, self.schedule = module, optimizers, logged, schedule
        self.lr = 0.5

    def training_step(self, batch, _):
        inputs, labels = batch
        loss = nn.functional.cross_entropy(self.module(inputs), labels)
        for name in self.logged:
            self.log(name, loss, on_step=True, on_epoch=True, batch_size=1)
        return loss

    def validation_step(self, batch, _):
        inputs, labels = batch
        self.log("other", nn.functional.cross_entropy(self.module(inputs), labels))

    def predict_step(self, batch, _):
        return self.module(batch[0])

    def configure_optimizers(self):
        if self.schedule is None:
            return self.made
        return {"optimizer": self.made, "lr_scheduler": self.schedule(self.made)}


class ByHand(Model):
    """Lightning's manual optimisation, in which nothing is called that is not written here."""

    steps = True

    def __init__(self, *args):
        super().__init__(*args)
        self.automatic_optimization = False

    def training_step(self, batch, _):
        inputs, labels = batch
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(nn.functional.cross_entropy(self.module(inputs), labels))
        if self.steps:
            optimizer.step()


def run(**options):
    given = {"strategy": strategies.toeplitz([1.0, 0.5], STEPS), "steps_per_epoch": 3, **options}
    return private(momentum=0.5, **given)


def fitted(made, folder=None, *, callbacks=(), model=None, val=None, path=None, keep=3, **options):
    module, optimizer, loader = made
    privacy = PrivacyCallback(optimizer, loader, folder, keep=keep)
    checkpoints = any(isinstance(one, ModelCheckpoint) for one in callbacks)
    trainer = lightning.Trainer(
        max_epochs=options.pop("max_epochs", 2),
        callbacks=[privacy, *callbacks],
        enable_checkpointing=checkpoints,
        **{**QUIET, **options},
    )
    model = Model(module, optimizer) if model is None else model
    trainer.fit(model, privacy.batches, val, ckpt_path=path, weights_only=False)
    return trainer


def same(one, other):
    return all(map(torch.equal, parameters(one), parameters(other)))


@pytest.mark.parametrize("physical", [None, 4])
def test_it_is_the_run_of_a_loop_by_hand(physical):
    plain, made = run(physical_batch_size=physical), run(physical_batch_size=physical)
    while not plain[1].finished:
        train(*plain)
    fitted(made)
    assert made[1].finished
    assert same(plain[0], made[0])


def test_optimisation_by_hand_is_the_same_run_or_stops():
    plain, made = run(), run()
    while not plain[1].finished:
        train(*plain)
    fitted(made, model=ByHand(*made[:2]))
    assert made[1].finished
    assert same(plain[0], made[0])
    forgotten = run()
    model = ByHand(*forgotten[:2])
    model.steps = False
    before = parameters(forgotten[0])
    with pytest.raises(RunError, match="called for gradients again"):
        fitted(forgotten, model=model)
    assert all(map(torch.equal, before, parameters(forgotten[0])))


def test_a_line_about_the_run():
    made, facts = run(method="unamplified", progress=False, physical_batch_size=8), []
    line = ProgressLine(made[1], report=facts.append, parts=0)
    model = Model(*made[:2])
    model.on_train_batch_end = lambda outputs, *_: line(outputs["loss"])
    fitted(made, model=model)
    assert [told["step"] for told in facts] == list(range(1, STEPS + 1))
    assert {told["epsilon"] for told in facts} == {made[1].guarantee.epsilon}


def test_it_stops_where_the_run_ends_and_does_not_begin_again():
    made = run()
    trainer = fitted(made, max_epochs=50)
    assert made[1].finished
    assert trainer.current_epoch <= 3
    after = parameters(made[0])
    with pytest.raises(RunError, match="all 6 steps that were accounted for are done"):
        fitted(made)
    assert all(map(torch.equal, after, parameters(made[0])))


def test_fewer_batches_and_another_fit_go_on_where_the_run_is():
    """Epochs cut short by `limit_train_batches` or `max_steps`: no batch is left out or repeated.

    The guarantee stays that of all steps.
    """
    plain, made = run(), run(method="unamplified")
    while not plain[1].finished:
        train(*plain)
    whole = made[1].guarantee
    fitted(made, max_epochs=1, limit_train_batches=2)
    assert made[1].position == 2
    fitted(made, max_epochs=9, max_steps=1)
    assert made[1].position == 3
    assert made[1].guarantee == whole
    fitted(made, max_epochs=9, limit_train_batches=2)
    assert made[1].finished
    assert same(plain[0], made[0])


def test_empty_batches_and_a_schedule():
    made = run(sampling=Poisson(0.02))
    fitted(
        made,
        model=Model(
            made[0],
            made[1],
            schedule=lambda optimizer: torch.optim.lr_scheduler.LambdaLR(
                optimizer, lambda epoch: 0.5**epoch
            ),
        ),
    )
    assert made[1].finished
    assert made[1].param_groups[0]["lr"] == 0.5 * 0.5**2


def test_bfloat16():
    module = nn.Linear(4, 3)
    inputs, labels = data().tensors
    made = run(module=module, dataset=torch.utils.data.TensorDataset(inputs.float(), labels))
    fitted(made, precision="bf16-mixed")
    assert made[1].finished


# ---------------------------------------------------------------- checkpoints


def saved(tmp_path, folder, **options):
    keeper = ModelCheckpoint(tmp_path / "light", "{step}", every_n_train_steps=1, save_top_k=-1)
    made = run()
    fitted(made, folder, callbacks=[keeper], **options)
    return made


@pytest.mark.parametrize("at", [3, 4])
def test_a_run_is_taken_up_bit_by_bit(tmp_path, at):
    """At the end of an epoch (3) and in the middle of one."""
    whole = saved(tmp_path, tmp_path / "run", keep=10)
    again = run(seed=99)
    fitted(again, tmp_path / "run", path=str(tmp_path / "light" / f"step={at}.ckpt"))
    assert again[1].finished
    assert same(whole[0], again[0])


def test_parts_of_batches_are_saved_at_ends_of_epochs_and_nowhere_else(tmp_path):
    def keeper(folder, **when):
        return ModelCheckpoint(tmp_path / folder, "{epoch}", **when)

    cut = {"physical_batch_size": 4}
    whole, again, broken = run(**cut), run(seed=99, **cut), run(**cut)
    fitted(whole, tmp_path / "run", callbacks=[keeper("light", save_top_k=-1)])
    fitted(again, tmp_path / "run", path=str(tmp_path / "light" / "epoch=0.ckpt"))
    assert again[1].finished
    assert same(whole[0], again[0])
    with pytest.raises(RunError, match="a checkpoint belongs between two steps"):
        fitted(broken, tmp_path / "broken", callbacks=[keeper("between", every_n_train_steps=1)])


def test_the_last_few_are_kept_and_lightning_s_hold_no_keys(tmp_path):
    made = saved(tmp_path, tmp_path / "run")
    names = sorted(file.name for file in (tmp_path / "run").iterdir())
    assert names == [f"run-{step:012d}.mmcc" for step in (4, 5, 6)]
    key = str(made[1].run.noise.state()["key"]).encode()
    files = list((tmp_path / "light").iterdir())
    assert len(files) == STEPS
    assert not any(key in file.read_bytes() for file in files)
    found = torch.load(files[0], weights_only=False)
    assert found["optimizer_states"] == []


def test_lightning_s_checkpoint_alone_is_not_taken_up(tmp_path):
    saved(tmp_path, None)
    with pytest.raises(RunError, match="holds nothing about the noise"):
        fitted(run(), tmp_path, path=str(tmp_path / "light" / "step=3.ckpt"))


# ---------------------------------------------------------------- refusals


class Louder(Precision):
    """Full precision by its name."""

    def pre_backward(self, tensor, module):
        return 1000 * super().pre_backward(tensor, module)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"accumulate_grad_batches": 2}, "physical_batch_size to make_private"),
        ({"gradient_clip_val": 1.0}, "the clip norm of each example is max_grad_norm"),
        ({"precision": "64-true"}, "changes the type of parameters"),
        ({"plugins": [Louder()]}, "precision='32-true' of Louder scales the loss"),
        ({"overfit_batches": 1.0}, "overfit_batches"),
        ({"callbacks": [GradientAccumulationScheduler({1: 2})]}, "would hide batches"),
        ({"callbacks": [LearningRateFinder()]}, "decides by losses that carry no noise"),
    ],
)
@pytest.mark.filterwarnings("ignore:You requested to overfit")
def test_unsafe_settings_are_refused(options, match):
    made = run()
    with pytest.raises(RunError, match=match):
        fitted(made, **options)
    assert made[1].position == 0


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"precision": "16-mixed"}, "scales the loss"),
        ({"strategy": DDPStrategy()}, "DDPStrategy distributes"),
        ({"strategy": SimpleNamespace(root_device="cpu")}, "SimpleNamespace distributes"),
        ({"strategy": SingleDeviceStrategy("meta")}, r"is on cpu but the Trainer trains on meta"),
    ],
)
def test_what_this_machine_cannot_start_is_refused(changed, match):
    made = run()
    usual = {
        "accumulate_grad_batches": 1,
        "gradient_clip_val": None,
        "precision": "32-true",
        "precision_plugin": Precision(),
        "strategy": SingleDeviceStrategy(),
        "overfit_batches": 0,
        "callbacks": [],
    }
    privacy = PrivacyCallback(made[1], made[2])
    privacy.setup(SimpleNamespace(**usual), None, "fit")
    with pytest.raises(RunError, match=match):
        privacy.setup(SimpleNamespace(**{**usual, **changed}), None, "fit")


def test_a_search_for_a_learning_rate_is_refused_before_its_first_step():
    module, optimizer, loader = run()
    privacy = PrivacyCallback(optimizer, loader)
    trainer = lightning.Trainer(
        max_epochs=2, callbacks=[privacy], enable_checkpointing=False, **QUIET
    )
    with pytest.raises(RunError, match=r"LearningRateFinder \(Tuner\) trains on the data"):
        Tuner(trainer).lr_find(Model(module, optimizer), privacy.batches)
    assert optimizer.position == 0


def test_a_compiled_model_is_refused():
    made = run()
    with pytest.raises(RunError, match="the LightningModule is compiled"):
        fitted(made, model=torch.compile(Model(*made[:2]), backend="eager"))


def test_another_loader_is_refused():
    module, optimizer, loader = run()
    privacy = PrivacyCallback(optimizer, loader)
    for other in (loader, DataLoader(data(), batch_size=9)):
        trainer = lightning.Trainer(
            max_epochs=1, callbacks=[privacy], enable_checkpointing=False, **QUIET
        )
        with pytest.raises(RunError, match=r"call trainer\.fit\(model, privacy\.batches\)"):
            trainer.fit(Model(module, optimizer), other)
    assert optimizer.position == 0


def test_no_sampler_is_put_into_its_batches():
    """What Lightning does to loaders where several processes share one, for all it knows of."""
    _, optimizer, loader = run()
    assert not isinstance(PrivacyCallback(optimizer, loader).batches, DataLoader)
    with pytest.raises(TypeError, match=r"can't inject a \(distributed\) sampler"):
        _update_dataloader(loader, DistributedSampler(loader.dataset, 2, 0))


def test_parts_of_two_runs_are_refused():
    with pytest.raises(RunError, match="come from different runs"):
        PrivacyCallback(run()[1], run()[2])


def test_another_optimizer_is_refused():
    made = run()
    plain = linear()
    others = [
        made[1].original_optimizer,
        torch.optim.SGD(plain.parameters(), lr=1.0),
        run()[1],
    ]
    for other in others:
        with pytest.raises(RunError, match="must return the optimizer that make_private"):
            fitted(made, model=Model(made[0], other))
    assert made[1].position == 0


def test_without_the_callback_nothing_goes_unnoticed():
    """What it refuses early is refused late."""
    module, optimizer, loader = run()
    for options in ({"accumulate_grad_batches": 2}, {"gradient_clip_val": 1e-3}):
        trainer = lightning.Trainer(max_epochs=1, enable_checkpointing=False, **QUIET, **options)
        before = parameters(module)
        if "gradient_clip_val" in options:  # which has no effect
            trainer.fit(Model(module, optimizer), loader)
            plain = run()
            train(*plain)
            assert same(plain[0], module)
        else:
            with pytest.raises(RunError, match="called for gradients again"):
                trainer.fit(Model(module, optimizer), loader)
            assert all(map(torch.equal, before, parameters(module)))
            module, optimizer, loader = run()


@pytest.mark.parametrize(
    ("kind", "name"),
    [("stop", "loss"), ("keep", "loss_step"), ("schedule", "loss_epoch"), ("stop", "loss_epoch")],
)
def test_decisions_by_the_training_loss_are_refused(tmp_path, kind, name):
    made = run()
    schedule, callbacks = None, []
    if kind == "stop":
        callbacks = [EarlyStopping(name)]
    elif kind == "keep":
        callbacks = [ModelCheckpoint(tmp_path, monitor=name)]
    else:

        def schedule(optimizer):
            plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
            return {"scheduler": plateau, "monitor": name}

    model = Model(made[0], made[1], logged=["loss"], schedule=schedule)
    with pytest.raises(RunError, match="a number about the training data without noise"):
        fitted(made, callbacks=callbacks, model=model)


def test_decisions_by_other_data_are_allowed(tmp_path):
    made = run()
    others = DataLoader(data(12), batch_size=6)
    callbacks = [EarlyStopping("other"), ModelCheckpoint(tmp_path, monitor="other")]
    model = Model(made[0], made[1], logged=["loss"])
    trainer = fitted(made, callbacks=callbacks, model=model, val=others)
    assert made[1].finished
    assert "other" in trainer.callback_metrics


def test_validation_on_the_training_data_is_refused():
    inside = data()
    for known in (inside, Subset(inside, [1, 2, 3])):
        made = run(dataset=inside)
        with pytest.raises(RunError, match="validation on the training data is a release"):
            fitted(made, val=DataLoader(known, batch_size=3))
    privacy = PrivacyCallback(*made[1:])
    trainer = lightning.Trainer(callbacks=[privacy], **QUIET)
    for asked in (trainer.validate, trainer.predict):
        with pytest.raises(RunError, match="validation on the training data is a release"):
            asked(Model(*made[:2]), DataLoader(inside, batch_size=3))


def test_the_example_learns_within_its_target():
    result = example.main(epochs=4)
    assert result.guarantee.epsilon <= example.EPSILON
    assert result.accuracy > 0.75
