"""Scores of canaries in a training run: what its steps release along their gradients.

In: the run's optimizer, its canaries, a copy of the module, the loss.  Out: one score a canary.
Rounding: plain floating point; any score gives a valid audit, a better one a larger bound.

With the parameters that a step's gradients are taken at, everybody can take those of the canaries.
The released sum times a canary's unit gradient is 1 where it took part and was clipped, plus noise
of variance sigma^2, plus what other examples have in this direction.  This module imports torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.utils.data import default_collate

from mmcc._arrays import FloatArray
from mmcc.audit._audit import check_played
from mmcc.audit._release_scores import ReleaseScores
from mmcc.errors import ParameterError, whole
from mmcc.training._canaries import Canaries
from mmcc.training._optimizer import PrivateOptimizer

Loss = Callable[[Tensor, Tensor], Tensor]


class GradientScores:
    """Watches the steps of a run, and scores its canaries when they are done.

    `module` is a copy, `copy.deepcopy(module)`, that was made before `make_private`: after it the
    module itself has hooks of the run.  Canaries are pairs of an input and a target, and
    `loss(outputs, targets)` is that of a batch of one.  `chunk` canaries are worked on at once.
    """

    def __init__(
        self,
        module: nn.Module,
        optimizer: PrivateOptimizer,
        canaries: Canaries,
        loss: Loss,
        *,
        chunk: int = 64,
    ) -> None:
        if not isinstance(optimizer, PrivateOptimizer):
            raise ParameterError(
                "the steps of a private run are watched: give the optimizer that make_private "
                f"returned, not {type(optimizer).__name__}."
            )
        if any(layer._forward_hooks or layer._forward_pre_hooks for layer in module.modules()):
            raise ParameterError(
                "the module has hooks, which would see the canaries: give a copy.deepcopy(module) "
                "that was made before make_private."
            )
        mechanism = optimizer.mechanism
        check_played(mechanism.strategy, mechanism.sampling)
        if not np.array_equal(optimizer.run.participants.absent, canaries.absent):
            raise ParameterError(
                "the run has other canaries, or none: give make_private these Canaries themselves, "
                "as the data or as the data set of a loader, and nothing that was made of them."
            )
        self._chunk = whole("chunk", chunk, 1, 2**20)
        self._module = module.eval()
        self._optimizer = optimizer
        self._inputs, self._targets = default_collate(list(canaries.canaries))
        self._gradient = vmap(grad(self._loss_of_one), in_dims=(None, 0, 0))
        self._loss = loss
        self._released: list[FloatArray] = []
        self._watched = optimizer.register_step_pre_hook(self._look)

    @property
    def released(self) -> FloatArray:
        """In units of the clip norm: for each canary what every step released in its direction."""
        return np.array(self._released).T

    def scores(self, seed: int = 0) -> FloatArray:
        """One for each canary; the larger, the more it looks as if it had been in the data.

        What all canaries have in common in a step is taken away first.  The groups of a scheme
        with groups are taken as unknown.  `seed` draws the participations that ratios are averaged
        over, where they are too many.
        """
        mechanism, steps = self._optimizer.mechanism, len(self._released)
        if steps != mechanism.steps:
            raise ParameterError(
                f"{steps} of {mechanism.steps} steps were watched: make the scores when all are "
                "done, of a run that was watched from its first step on."
            )
        scorer = ReleaseScores(
            mechanism.strategy,
            mechanism.sampling,
            mechanism.sigma,
            mechanism.decoder,
            np.random.Generator(np.random.PCG64(whole("seed", seed, 0, 2**128))),
        )
        released = self.released
        return scorer.of(released - released.mean(axis=0), None)

    def _look(self, *_: Any) -> None:
        """Before a step: `p.grad` is what is released, and parameters are still the old ones."""
        mechanism = self._optimizer.mechanism
        names = self._optimizer.run.watch.names
        trained = {names[p]: p.detach() for p in self._optimizer.params}
        units = 1 / mechanism.max_grad_norm
        if mechanism.loss_reduction == "mean":
            units *= mechanism.expected_batch_size
        sums = [p.grad.detach() * units for p in self._optimizer.params]
        self._released.append(
            np.concatenate(
                [
                    self._along(trained, sums, inputs, targets)
                    for inputs, targets in zip(
                        self._inputs.split(self._chunk),
                        self._targets.split(self._chunk),
                        strict=True,
                    )
                ]
            )
        )

    def _along(
        self, trained: dict[str, Tensor], sums: list[Tensor], inputs: Tensor, targets: Tensor
    ) -> FloatArray:
        """The released sums along the gradients of a few canaries."""
        device = sums[0].device
        found = self._gradient(trained, inputs.to(device), targets.to(device))
        rows = [found[name].flatten(1).double() for name in trained]
        squares = sum(row.square().sum(dim=1) for row in rows)
        products = sum(row @ part.flatten().double() for row, part in zip(rows, sums, strict=True))
        lengths = torch.as_tensor(squares).sqrt().clamp(min=1e-30)
        return np.asarray((products / lengths).cpu().numpy(), np.float64)

    def _loss_of_one(self, trained: dict[str, Tensor], one: Tensor, target: Tensor) -> Tensor:
        outputs = functional_call(self._module, trained, (one.unsqueeze(0),))
        return self._loss(outputs, target.unsqueeze(0))
