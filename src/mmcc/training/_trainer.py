"""Hugging Face's Trainer, whose training is one run of an accounted mechanism.

In: what a Trainer takes, and what `make_private` takes.  Out: a Trainer; its loader and its
optimizer are those of the run, and its checkpoints hold the run.
Losses: each example has the mean over its own labels.  Trainer itself divides by the number of
labels in the whole batch, through which one example changes the gradients of the others.
What Trainer reports about the training data (losses, batch sizes) carries no noise: it is left out
unless it is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler
from transformers import Trainer, TrainingArguments
from transformers.models.auto import modeling_auto

from mmcc.accounting._guarantee import Guarantee
from mmcc.errors import ParameterError
from mmcc.training._checkpoint import load_checkpoint, save_checkpoint
from mmcc.training._loader import PrivateLoader
from mmcc.training._losses import per_example_loss
from mmcc.training._private import make_private
from mmcc.training._run import RunError

FILE = "run.mmcc"
"""The run's file in the folder of a checkpoint."""
ABOUT_DATA = ("loss", "train_loss", "grad_norm", "total_flos", "num_input_tokens_seen")
"""Numbers in logs that depend on the training data and have no noise."""
SHIFTS = (
    (modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, 1),
    (modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES, 0),
    (modeling_auto.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES, 0),
)
"""Models with a label for each token, and by how many positions labels are ahead of scores."""
OURS = ("distributed", "epochs", "batch_size", "steps_per_epoch", "loss_reduction")
"""Arguments of make_private that the Trainer determines."""

_REFUSED: tuple[tuple[Callable[[Any], bool], str], ...] = (
    (
        lambda args: args.gradient_accumulation_steps != 1,
        "gradient_accumulation_steps would hide batches from the run, each of which is a step. "
        "Leave it at 1, make per_device_train_batch_size the whole batch, and pass "
        "physical_batch_size in `privacy`, which splits it.",
    ),
    (
        lambda args: (args.max_grad_norm or 0) > 0,
        "max_grad_norm in TrainingArguments clips the gradient of a whole batch, which protects "
        "nobody. Set it to 0 there; the clip norm of each example is max_grad_norm in `privacy`.",
    ),
    (
        lambda args: args.fp16,
        "fp16 scales the loss, so every gradient would be clipped as if it were thousands of times "
        "as long. Use bf16, or full precision.",
    ),
    (
        lambda args: args.label_smoothing_factor != 0,
        "label_smoothing_factor makes Trainer average over the labels of all examples, through "
        "which they interact. Leave it out, and smooth in compute_loss_func, example by example.",
    ),
    (
        lambda args: args.neftune_noise_alpha is not None,
        "neftune_noise_alpha scales noise by the length of the longest example in a batch, through "
        "which examples interact. Leave it out.",
    ),
    (
        lambda args: args.dataloader_drop_last,
        "dataloader_drop_last drops examples. Leave it out: the run draws its own batches.",
    ),
    (
        lambda args: args.auto_find_batch_size,
        "auto_find_batch_size restarts with other batches when memory runs out, after steps whose "
        "noise was released. Leave it out, and pass physical_batch_size in `privacy`.",
    ),
    (
        lambda args: args.n_gpu > 1,
        "several GPUs in one process (DataParallel) separate examples from their gradients. Start "
        "one process for each with torchrun, or make only one GPU visible.",
    ),
    (
        lambda args: args.torch_compile,
        "torch_compile compiles what the run has already wrapped. Compile the model beforehand.",
    ),
    (
        lambda args: getattr(args, "parallelism_config", None) is not None,
        "parallelism_config gives a process a part of the model. Give each the whole model.",
    ),
    (
        lambda args: any(word in str(args.optim).lower() for word in ("lomo", "layerwise")),
        "this optim steps during the backward pass, before there is noise. Use another.",
    ),
    (
        lambda args: args.include_num_input_tokens_seen not in (False, None, "no"),
        "include_num_input_tokens_seen reveals how large the batches were, which is secret. Leave "
        "it out.",
    ),
    (
        lambda args: args.push_to_hub and "checkpoint" in str(args.hub_strategy.value),
        "hub_strategy would upload checkpoints, which hold the keys of the noise. Use 'end' or "
        "'every_save', and publish the model alone.",
    ),
)


class PrivateTrainer(Trainer):
    """Hugging Face's `Trainer` for one run of an accounted mechanism.

    `privacy` has arguments of `make_private`: strategy and sampling (or their names), the clip norm
    `max_grad_norm`, sigma or epsilon, delta, `physical_batch_size` and others.  The expected batch
    has `per_device_train_batch_size` examples on each device, and `num_train_epochs`, or
    `max_steps`, says how long the run is.  `max_grad_norm` in `args` must be 0.

    Anything that would not be the accounted run is refused.  Without `compute_loss_func` a model
    that scores tokens is trained with `per_example_loss`.  Losses and other numbers about the
    training data are kept out of logs and results, and it is not evaluated; with
    `unprotected_logs=True` they are included, for those who may see the data.

    Checkpoints hold the run's keys in a file `run.mmcc`: they are as secret as the data.
    """

    def __init__(
        self,
        model: nn.Module,
        args: TrainingArguments,
        *,
        privacy: Mapping[str, Any],
        unprotected_logs: bool = False,
        **options: Any,
    ) -> None:
        if not isinstance(model, nn.Module) or options.get("model_init") is not None:
            raise ParameterError(
                "PrivateTrainer trains one model once: pass the model itself, not model_init. "
                "Every trial of a hyperparameter search is a separate release."
            )
        _check(args, privacy)
        self.unprotected_logs = unprotected_logs
        shift = _shift_of(model)
        if options.get("compute_loss_func") is None and shift is not None:
            options["compute_loss_func"] = _TokenLoss(shift)
        args.ignore_data_skip = True  # a resumed run continues where it was
        super().__init__(model=model, args=args, **options)
        self._private: PrivateLoader | None = None
        self._steps: Steps | None = None
        if self.train_dataset is not None:
            self._check_evaluated(self.eval_dataset)
            self._begin(dict(privacy))

    def _begin(self, privacy: dict[str, Any]) -> None:
        """Start the run, with the optimizer that Trainer makes or was given."""
        args = self.args
        size = args.train_batch_size * args.world_size
        data = self._plain_loader(size)
        length = len(data)
        epochs = args.max_steps / length if args.max_steps > 0 else args.num_train_epochs
        self.model.train()
        self.create_optimizer()
        module, optimizer, loader = make_private(
            self.model,
            self.optimizer,
            data,
            epochs=epochs,
            distributed=args.world_size > 1,
            **privacy,
        )
        self.accelerator.prepare(module, optimizer, loader)  # each of them recognises it now
        self.model_wrapped: nn.Module = module
        self.optimizer: Any = optimizer
        self._private = loader

    def _plain_loader(self, size: int) -> DataLoader[Any]:
        """The loader that Trainer would use, as a plain torch DataLoader."""
        sampler = self._get_train_sampler()
        if not isinstance(sampler, (RandomSampler, SequentialSampler)):
            raise ParameterError(
                f"{type(sampler).__name__} is a special sampler, such as one by length, but the "
                "run draws who takes part. Use the default one (random)."
            )
        usual = super().get_train_dataloader()
        workers = usual.num_workers
        return DataLoader(
            usual.dataset,
            batch_size=min(size, len(usual.dataset)),
            collate_fn=usual.collate_fn,
            num_workers=workers,
            worker_init_fn=usual.worker_init_fn,
            persistent_workers=usual.persistent_workers,
            prefetch_factor=usual.prefetch_factor if workers else None,
            pin_memory=usual.pin_memory and torch.accelerator.is_available(),
        )

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of the whole run."""
        found: Guarantee = self._run_optimizer().guarantee
        return found

    def _run_optimizer(self) -> Any:
        if self._private is None:
            raise RunError("there is no run: this trainer was made without a train_dataset.")
        return self.optimizer

    # ------------------------------------------------------------------ what Trainer asks

    def train(self, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Like Trainer's; the loss that it returns is nan, unless unprotected logs are on."""
        position = self._run_optimizer().position
        if position and not resume_from_checkpoint:
            raise RunError(
                f"this trainer has already made {position} steps of its run. Pass "
                "resume_from_checkpoint to continue, or make another trainer: that is another run, "
                "and both count."
            )
        found = super().train(resume_from_checkpoint, *args, **kwargs)
        return found if self.unprotected_logs else found._replace(training_loss=math.nan)

    def get_train_dataloader(self) -> Any:
        self._run_optimizer()
        assert self._private is not None
        self._steps = Steps(self._private)
        return self._steps

    def training_step(
        self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None
    ) -> Tensor:
        """Process all parts of a batch; Trainer itself takes the last step, which releases."""
        assert self._steps is not None
        run, total = self.optimizer.run, torch.zeros((), device=self.args.device)
        while True:
            batch = run.handed[0]
            if batch.size:  # models need not support empty batches
                total = total + super().training_step(model, inputs)
            if batch.last:
                return total
            self.optimizer.step()
            self.optimizer.zero_grad()
            inputs = next(self._steps.parts)

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Like Trainer's, without the number of labels in the whole batch."""
        return super().compute_loss(model, inputs, return_outputs)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        self._check_evaluated(self.eval_dataset if eval_dataset is None else eval_dataset)
        return super().get_eval_dataloader(eval_dataset)

    def get_test_dataloader(self, test_dataset: Any) -> Any:
        self._check_evaluated(test_dataset)
        return super().get_test_dataloader(test_dataset)

    def _check_evaluated(self, given: Any) -> None:
        """Refuse the training data: every number about it is a release without noise."""
        known = self.eval_dataset if isinstance(given, str) else given
        for data in known.values() if isinstance(known, dict) else (known,):
            trained = self.train_dataset
            inside = data is trained or getattr(data, "dataset", None) is trained
            if trained is not None and inside and not self.unprotected_logs:
                raise RunError(
                    "an evaluation on the training data is a release without noise, which the "
                    "guarantee does not cover. Evaluate other data, or pass unprotected_logs=True "
                    "if those who see the numbers may see the data."
                )

    def floating_point_ops(self, inputs: dict[str, Any]) -> int:
        """Zero: the true number would reveal how large the batches were."""
        return 0

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Like Trainer's, without numbers about the training data, and with epsilon."""
        if not self.unprotected_logs:
            for name in ABOUT_DATA:
                logs.pop(name, None)
        if self._private is not None:
            logs["epsilon"] = self.guarantee.epsilon
        super().log(logs, *args, **kwargs)

    # ------------------------------------------------------------------ checkpoints

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        schedule = self.lr_scheduler.state_dict()
        save_checkpoint(Path(output_dir) / FILE, self.optimizer, extra={"schedule": schedule})

    def _load_from_checkpoint(self, *_: Any, **__: Any) -> None:
        """Nothing to do: the run's file has the parameters, too."""

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is None:
            return
        extra = load_checkpoint(Path(checkpoint) / FILE, self.optimizer)
        self.lr_scheduler.load_state_dict(extra["schedule"])


class Steps:
    """A run's loader as Trainer iterates over it: one item a step, the first part of its batch."""

    def __init__(self, loader: PrivateLoader) -> None:
        self.loader = loader
        self.dataset = loader.dataset
        self.parts: Iterator[Any] = iter(())

    def __len__(self) -> int:
        """Steps of an epoch, whether they are done or not."""
        return self.loader.run.steps_per_epoch

    def __iter__(self) -> Iterator[Any]:
        self.parts = iter(self.loader)
        return self.parts


class _TokenLoss:
    """The `compute_loss_func` of models that score tokens."""

    def __init__(self, shift: int) -> None:
        self.shift = shift

    def __call__(self, outputs: Any, labels: Tensor | None, **_: Any) -> Tensor:
        if labels is None:
            raise RunError("the batches have no labels to train on: the collator must make them.")
        logits = outputs["logits"]
        logits = logits[:, : logits.shape[1] - self.shift]
        return per_example_loss(logits, labels[:, self.shift :]).mean()


def _shift_of(model: Any) -> int | None:
    """By how many positions labels are ahead of scores; None for models without token labels."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model  # of peft
    if getattr(getattr(base, "config", None), "is_encoder_decoder", False):
        return None
    names = {kind.__name__ for kind in type(base).__mro__}
    return next((shift for known, shift in SHIFTS if not names.isdisjoint(known.values())), None)


def _check(args: TrainingArguments, privacy: Mapping[str, Any]) -> None:
    for applies, why in _REFUSED:
        if applies(args):
            raise ParameterError(why)
    told = [name for name in OURS if name in privacy]
    if told:
        raise ParameterError(
            f"`privacy` has {', '.join(told)}, which TrainingArguments determine: the batch size, "
            "the length of the run, and the number of processes. Leave it out."
        )
