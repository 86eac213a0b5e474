"""Scores of canaries in a training run: what its steps release along their gradients.

In: the run's optimizer, its canaries, a copy of the module, the loss.  Out: one score per canary.
Rounding: plain floating point; any score gives a valid audit, a better one a larger bound.

Anyone who knows the parameters at which a step's gradients are taken can compute those of the
canaries.  The released sum times a canary's unit gradient is 1 if it took part and was clipped,
plus noise of variance sigma^2, plus the parts of other examples in this direction.  Those of other
canaries are known except for who took part, and least squares separate them.  This module imports
torch.
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
SHORTEST = 1e-30
"""A gradient of length 0 is divided by this."""
LEAST_PENALTY = 1e-3
"""The regularisation of least squares: two canaries may be alike."""


class GradientScores:
    """Watches the steps of a run, and scores its canaries afterwards.

    `module` is a copy, `copy.deepcopy(module)`, made before `make_private`: afterwards the module
    itself has hooks of the run.  Canaries are pairs of an input and a target, and
    `loss(outputs, targets)` is the loss of a batch of one.  `chunk` canaries are processed at once.

    `apart` separates canaries whose gradients overlap, as those of most networks do.  It holds all
    their gradients at once, and takes time that grows with the square of their number.
    """

    def __init__(
        self,
        module: nn.Module,
        optimizer: PrivateOptimizer,
        canaries: Canaries,
        loss: Loss,
        *,
        chunk: int = 64,
        apart: bool = False,
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
                "the run has other canaries, or none: give make_private this same Canaries object, "
                "as the data or as the data set of a loader, not something made from it."
            )
        self._chunk = whole("chunk", chunk, 1, 2**20)
        self._apart = apart
        self._module = module.eval()
        self._optimizer = optimizer
        self._inputs, self._targets = default_collate(list(canaries.canaries))
        self._gradient = vmap(grad(self._loss_of_one), in_dims=(None, 0, 0))
        self._loss = loss
        self._released: list[FloatArray] = []
        self._watched = optimizer.register_step_pre_hook(self._look)

    @property
    def released(self) -> FloatArray:
        """What every step released in each canary's direction, in units of the clip norm."""
        return np.array(self._released).T

    def scores(self, seed: int = 0) -> FloatArray:
        """One score per canary; the larger, the more it looks as if it had been in the data.

        What all canaries have in common in a step is subtracted first.  If the scheme has groups,
        they are treated as unknown.  `seed` draws the participations that likelihood ratios are
        averaged over, if there are too many.
        """
        mechanism, steps = self._optimizer.mechanism, len(self._released)
        if steps != mechanism.steps:
            raise ParameterError(
                f"{steps} of {mechanism.steps} steps were watched: watch the run from its first "
                "step, and compute the scores after the last one."
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
        chunks = zip(self._inputs.split(self._chunk), self._targets.split(self._chunk), strict=True)
        along = (self._directions(trained, *chunk) for chunk in chunks)
        joined = torch.cat([part.flatten() for part in sums]).float()
        if self._apart:
            directions = torch.cat(list(along))
            found = _told_apart(directions @ joined, directions @ directions.T, mechanism.sigma)
        else:
            found = torch.cat([directions @ joined for directions in along])
        self._released.append(np.asarray(found.cpu().numpy(), np.float64))

    def _directions(self, trained: dict[str, Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
        """The gradients of a few canaries, each scaled to length 1."""
        device = next(iter(trained.values())).device
        found = self._gradient(trained, inputs.to(device), targets.to(device))
        rows = torch.cat([found[name].flatten(1).float() for name in trained], dim=1)
        directions: Tensor = rows / rows.norm(dim=1, keepdim=True).clamp(min=SHORTEST)
        return directions

    def _loss_of_one(self, trained: dict[str, Tensor], one: Tensor, target: Tensor) -> Tensor:
        outputs = functional_call(self._module, trained, (one.unsqueeze(0),))
        return self._loss(outputs, target.unsqueeze(0))


def _told_apart(products: Tensor, overlaps: Tensor, sigma: float) -> Tensor:
    """Each canary's part in what was released, by regularised least squares.

    Products are overlaps times the parts, plus noise of covariance sigma^2 times the overlaps.  A
    canary's own part still counts as 1.
    """
    penalty = max(sigma**2, LEAST_PENALTY)
    overlaps = overlaps.double()
    inverse = torch.linalg.inv(overlaps + penalty * torch.eye(len(overlaps)).to(overlaps))
    own = 1 - penalty * inverse.diagonal()
    parts: Tensor = (inverse @ products.double()) / own.clamp(min=SHORTEST)
    return parts
