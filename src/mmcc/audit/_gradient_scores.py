"""Scores of canaries in a training run: what its steps release along their gradients.

In: the run's optimizer, its canaries, a copy of the module, the loss.  Out: one score a canary.
Rounding: plain floating point; any score gives a valid audit, a better one a larger bound.

With the parameters that a step's gradients are taken at, everybody can take those of the canaries.
The released sum times a canary's unit gradient is 1 where it took part and was clipped, plus noise
of variance sigma^2, plus what other examples have in this direction.  What other canaries have in
it is known but for who took part, and least squares tell them apart.  This module imports torch.
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
"""Of least squares: two canaries may be alike."""


class GradientScores:
    """Watches the steps of a run, and scores its canaries when they are done.

    `module` is a copy, `copy.deepcopy(module)`, that was made before `make_private`: after it the
    module itself has hooks of the run.  Canaries are pairs of an input and a target, and
    `loss(outputs, targets)` is that of a batch of one.  `chunk` canaries are worked on at once.

    `apart` tells canaries apart whose gradients overlap, as those of most networks do.  It holds
    all their gradients at once, and takes time that grows with the square of their number.
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
                "the run has other canaries, or none: give make_private these Canaries themselves, "
                "as the data or as the data set of a loader, and nothing that was made of them."
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
        """The gradients of a few canaries, each of length 1."""
        device = next(iter(trained.values())).device
        found = self._gradient(trained, inputs.to(device), targets.to(device))
        rows = torch.cat([found[name].flatten(1).float() for name in trained], dim=1)
        directions: Tensor = rows / rows.norm(dim=1, keepdim=True).clamp(min=SHORTEST)
        return directions

    def _loss_of_one(self, trained: dict[str, Tensor], one: Tensor, target: Tensor) -> Tensor:
        outputs = functional_call(self._module, trained, (one.unsqueeze(0),))
        return self._loss(outputs, target.unsqueeze(0))


def _told_apart(products: Tensor, overlaps: Tensor, sigma: float) -> Tensor:
    """The part of each canary in what was released, by least squares with a penalty.

    Products are overlaps times the parts, plus noise of covariance sigma^2 times the overlaps.  A
    canary's part counts as 1 as before.
    """
    penalty = max(sigma**2, LEAST_PENALTY)
    overlaps = overlaps.double()
    inverse = torch.linalg.inv(overlaps + penalty * torch.eye(len(overlaps)).to(overlaps))
    own = 1 - penalty * inverse.diagonal()
    parts: Tensor = (inverse @ products.double()) / own.clamp(min=SHORTEST)
    return parts
