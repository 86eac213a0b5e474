"""Lightning: a callback that keeps a Trainer to one run of an accounted mechanism.

In: the optimizer and the loader that `make_private` returned, and a Trainer.  Out: refusals of
settings of the Trainer that a run cannot follow; the batches, and checkpoints of the run.
Lightning's automatic optimisation is an ordinary loop: it calls `step` of the optimizer once for
each batch, with a closure that makes the pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import (
    BatchSizeFinder,
    GradientAccumulationScheduler,
    LearningRateFinder,
)
from lightning.pytorch.plugins.precision import MixedPrecision, Precision
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch.utils._pytree import tree_leaves

from mmcc.errors import whole
from mmcc.training._accelerate import check_device
from mmcc.training._checkpoint import load_checkpoint, save_checkpoint
from mmcc.training._loader import PrivateLoader
from mmcc.training._optimizer import PrivateOptimizer
from mmcc.training._run import RunError

PRECISIONS = ("32-true", "bf16-mixed")
"""Lightning's precisions that change neither the loss nor the parameters' type."""
PLUGINS = (Precision, MixedPrecision)
"""Lightning's own plugins for these; a user's plugin might do anything to a loss."""
TRIALS = (BatchSizeFinder, LearningRateFinder)
"""Callbacks that train for a while, look at the losses, and start over."""
ENTRY = "mmcc_position"
"""The key in Lightning's checkpoint that says which checkpoint of the run belongs to it."""
KEPT = 3
ACCUMULATED = (
    "accumulate_grad_batches={} would hide batches from the run, each of which is a step. Leave it "
    "at 1, and pass physical_batch_size to make_private, which splits the accounted batches."
)


class PrivacyCallback(Callback):
    """A run in a Lightning Trainer: `callbacks=[privacy]`, `trainer.fit(model, privacy.batches)`.

    The model calls the module that `make_private` returned in its `training_step`, and returns the
    optimizer from `configure_optimizers`.  Anything that the Trainer would do differently from the
    accounted run is refused before the first step, and the Trainer stops when the run has ended.

    With a `folder`, every checkpoint of Lightning gets a checkpoint of the run beside it there, of
    which the last few are kept; `trainer.fit(..., ckpt_path=...)` resumes both.  The run's
    checkpoints hold the keys of the noise and are as secret as the data; Lightning's own do not.

    What is logged about the training data carries no noise.  Using it to stop, to choose a
    checkpoint or to set the learning rate is refused, as is validation on the training data.
    """

    def __init__(
        self,
        optimizer: PrivateOptimizer,
        loader: PrivateLoader,
        folder: str | Path | None = None,
        *,
        keep: int = KEPT,
    ) -> None:
        if getattr(loader, "run", None) is not optimizer.run:
            raise RunError(
                "optimizer and loader come from different runs: pass those that one make_private "
                "returned."
            )
        self.optimizer = optimizer
        self.batches = Batches(loader)
        self.folder = None if folder is None else Path(folder)
        self.keep = whole("keep", keep, 1, 10**6)

    # ------------------------------------------------------------------ before the first step

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage == "fit":
            self._check_trainer(trainer)
            self._check_place(trainer)
            self._check_callbacks(trainer)
            if getattr(pl_module, "_compiler_ctx", None) is not None:
                raise RunError(
                    "the LightningModule is compiled, and with it a module that the run has "
                    "wrapped. Compile the module with torch.compile before make_private instead."
                )

    def _check_trainer(self, trainer: Trainer) -> None:
        if trainer.accumulate_grad_batches != 1:
            raise RunError(ACCUMULATED.format(trainer.accumulate_grad_batches))
        if trainer.gradient_clip_val:
            raise RunError(
                "gradient_clip_val clips the gradient of a whole batch, which protects nobody. "
                "Leave it out; the clip norm of each example is max_grad_norm of make_private."
            )
        if trainer.precision not in PRECISIONS or type(trainer.precision_plugin) not in PLUGINS:
            raise RunError(
                f"precision={trainer.precision!r} of {type(trainer.precision_plugin).__name__} "
                "scales the loss, or changes the type of parameters after their noise was set up. "
                f"Use {' or '.join(PRECISIONS)}."
            )
        if type(trainer.strategy) is not SingleDeviceStrategy:
            raise RunError(
                f"{type(trainer.strategy).__name__} distributes the module over processes, and "
                "averages gradients before they are clipped. Use one device here; to train on "
                "several, use torchrun or accelerate (docs/distributed.md)."
            )
        if trainer.overfit_batches:
            raise RunError(
                "overfit_batches trains on the same batches again and again, which are not those "
                "that the run draws. Leave it out."
            )

    def _check_place(self, trainer: Trainer) -> None:
        """Refuse a Trainer that would move parameters to another device than their noise."""
        place = trainer.strategy.root_device
        check_device(
            self.optimizer.params, place, "the Trainer trains on", f"module.to({str(place)!r})"
        )

    def _check_callbacks(self, trainer: Trainer) -> None:
        for callback in trainer.callbacks:
            if isinstance(callback, TRIALS):
                raise RunError(
                    f"{type(callback).__name__} (Tuner) trains on the data, decides by losses that "
                    "carry no noise, and starts over: these releases are not accounted for. Leave "
                    "it out; to bound memory, pass physical_batch_size to make_private."
                )
            if isinstance(callback, GradientAccumulationScheduler):
                raise RunError(ACCUMULATED.format(callback.scheduling))

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._check_batches(trainer)
        if [getattr(one, "run", None) for one in trainer.optimizers] != [self.optimizer.run]:
            raise RunError(
                "configure_optimizers must return the optimizer that make_private returned and no "
                "other: the steps of any other have neither clipping nor noise."
            )

    def _check_batches(self, trainer: Trainer) -> None:
        if trainer.train_dataloader is not self.batches:
            raise RunError(
                "the Trainer's batches are not those of the run: call "
                "trainer.fit(model, privacy.batches) with this callback's batches."
            )

    # ------------------------------------------------------------------ while it trains

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        self._check_monitors(trainer)
        if self.optimizer.finished:
            trainer.should_stop = True

    def _check_monitors(self, trainer: Trainer) -> None:
        """Refuse decisions based on what `training_step` has logged."""
        about_data = {
            f"{result.meta.name}{suffix}"
            for result in (trainer._results or {}).values()
            if result.meta.fx == "training_step"
            for suffix in ("", "_step", "_epoch")
        }
        deciding = [getattr(callback, "monitor", None) for callback in trainer.callbacks]
        deciding += [one.monitor for one in trainer.lr_scheduler_configs if one.reduce_on_plateau]
        for name in deciding:
            if name in about_data:
                raise RunError(
                    f"a callback or a schedule decides by {name!r}, a number about the training "
                    "data without noise: its decisions are releases that are not accounted for. "
                    "Use a number about other data."
                )

    def on_sanity_check_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._check_evaluated(trainer.val_dataloaders)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._check_evaluated(trainer.val_dataloaders)

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._check_evaluated(trainer.test_dataloaders)

    def on_predict_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._check_evaluated(trainer.predict_dataloaders)

    def _check_evaluated(self, loaders: Any) -> None:
        trained = self.batches.dataset
        for loader in tree_leaves(loaders):
            data = getattr(loader, "dataset", loader)
            if data is trained or getattr(data, "dataset", None) is trained:
                raise RunError(
                    "validation on the training data is a release without noise, which the "
                    "guarantee does not cover. Use other data."
                )

    # ------------------------------------------------------------------ checkpoints

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        checkpoint["optimizer_states"] = []  # the run's file has them, and the noise
        if self.folder is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        position = self.optimizer.position
        save_checkpoint(self._file(position), self.optimizer)
        checkpoint[ENTRY] = position
        for old in sorted(self.folder.glob("run-*.mmcc"))[: -self.keep]:
            old.unlink(missing_ok=True)

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        if trainer.state.fn != "fit":
            return
        position = checkpoint.get(ENTRY)
        if position is None or self.folder is None:
            raise RunError(
                "Lightning's checkpoint holds nothing about the noise, so it cannot be resumed on "
                "its own. Give PrivacyCallback the folder of the run's own checkpoints, both when "
                "saving and when resuming."
            )
        load_checkpoint(self._file(whole("the position", position, 0, 10**12)), self.optimizer)

    def _file(self, position: int) -> Path:
        assert self.folder is not None
        return self.folder / f"run-{position:012d}.mmcc"


class Batches:
    """A run's loader as Lightning iterates over it: to the end of the epoch, wherever that is.

    It has no length: an epoch that was resumed in the middle is shorter, and the number of parts
    of batches is not known in advance.
    """

    def __init__(self, loader: PrivateLoader) -> None:
        self.loader = loader
        self.dataset: Any = loader.dataset

    def __iter__(self) -> Iterator[Any]:
        return iter(self.loader)
