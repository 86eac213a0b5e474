"""make_private: a model, an optimizer and data become a run of an accounted mechanism.

In: what Opacus's make_private takes, a strategy, a sampling scheme, and sigma or epsilon.
Out: module, optimizer and loader, used as before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from opacus.grad_sample import AbstractGradSampleModule
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, Dataset

from mmcc import __version__
from mmcc.errors import ParameterError, real
from mmcc.sampling import Scheme
from mmcc.strategies._base import Strategy
from mmcc.training._canaries import absent_of
from mmcc.training._distributed import peers_of
from mmcc.training._loader import PrivateLoader, dataset_of, loading_options
from mmcc.training._mechanism import (
    Mechanism,
    certified,
    declared,
    training_method,
)
from mmcc.training._module_contents import forget_gradients
from mmcc.training._optimizer import PrivateOptimizer
from mmcc.training._participants import Participants, digest_of
from mmcc.training._per_example import wrap
from mmcc.training._randomness import check_seed
from mmcc.training._run import Record, TrainingRun, ledger_of
from mmcc.training._torch_noise import TorchNoiseStream
from mmcc.training._trainable import EXPANDED, check_module, layout_digest, trained_by
from mmcc.training._watch import Watch

if TYPE_CHECKING:
    from mmcc.ledger import Ledger


def make_private(
    module: nn.Module,
    optimizer: Optimizer,
    data: Dataset[Any] | DataLoader[Any],
    *,
    strategy: Strategy,
    sampling: Scheme,
    max_grad_norm: float,
    sigma: float | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    seed: int | None = None,
    decoder: str | None = None,
    method: str = "tight",
    verify: Mapping[str, Any] | None = None,
    loss_reduction: str = "mean",
    grad_sample_mode: str = "hooks",
    physical_batch_size: int | None = None,
    steps_per_epoch: int | None = None,
    stop_after: int | None = None,
    generator: str = "philox",
    distributed: bool = False,
    ledger: Ledger | str | Path | None = None,
    data_name: str | None = None,
) -> tuple[AbstractGradSampleModule, PrivateOptimizer, PrivateLoader]:
    """A module, an optimizer and a loader that together run the accounted mechanism, and no other.

    Either `sigma` is given, in units of the clip norm, or `epsilon`, and the least certified noise
    is used.  `optimizer.guarantee` is that of all the strategy's steps; `stop_after` declares in
    advance that the run ends earlier, and the guarantee is then that of these steps.  Under
    `Shuffle`, and under `MinSeparation` of a strategy that is not Toeplitz, it uses no
    amplification, for none is proven.

    With method "verify" the noise for `epsilon` is found by simulation, and the guarantee is one
    that was verified, not certified; `verify` has options of `mmcc.verify`, such as a `record`,
    from which a run that is taken up again reads the verdict.

    With `ledger`, a file, the run is accounted for now and written there before its first step, as
    one on the data set `data_name`; `mmcc ledger` adds up all of them.

    With `distributed` the processes of torch.distributed's default group work on one run: each
    calls this with the same arguments and the same data set, takes its part of every batch, and
    has the same parameters as all others.  Seed and initial parameters are those of process 0.
    """
    peers = peers_of(distributed)
    with peers.agreeing():
        delta = _check_target(sigma, epsilon, delta)
        _check_verify(method, verify, epsilon, distributed)
        strategy = declared(strategy, sampling, stop_after)
        training_method(strategy, sampling, method)
        check_module(module, optimizer, grad_sample_mode)
        check_seed(seed)
        book, name = ledger_of(ledger, data_name)
        dataset = dataset_of(data)
        mechanism = Mechanism(
            strategy,
            sampling,
            1.0 if sigma is None else sigma,  # for a target it is found when all else is right
            len(dataset),
            max_grad_norm,
            decoder,
            loss_reduction,
        )
        absent = absent_of(dataset)
        options = loading_options(data, mechanism.expected_batch_size)
        ask = partial(certified, strategy, sampling, delta=delta, method=method, verify=verify)
        account = cache(partial(ask, sigma=sigma, epsilon=epsilon))
        if sigma is None:
            mechanism = replace(mechanism, sigma=account().sigma)
        trained = trained_by(optimizer)
        layout = layout_digest(module, trained)
        facts = _facts(
            mechanism,
            trained,
            layout,
            delta=delta,
            method=method,
            physical_batch_size=physical_batch_size,
            steps_per_epoch=steps_per_epoch,
            grad_sample_mode=grad_sample_mode,
            generator=generator,
            data_name=name,
            canaries_left_out=digest_of(absent),
        )
    peers.same(facts, "Call make_private with the same arguments on every process.")
    seed = peers.seed(seed)
    with peers.agreeing():
        run = TrainingRun(
            mechanism,
            TorchNoiseStream(
                strategy, mechanism.sigma, trained, seed, decoder=decoder, generator=generator
            ),
            Participants(sampling, strategy.steps, mechanism.examples, seed, absent=absent),
            account,
            Record(book, name, mechanism, account, peers),
            Watch(module, trained, finds_ordinary=grad_sample_mode != EXPANDED),
            peers,
            steps_per_epoch=steps_per_epoch,
            physical=physical_batch_size,
            layout=layout,
        )
        if book is not None and peers.rank == 0:
            account()  # it may take minutes: now, and not at the first batch
    peers.level([*module.parameters(), *module.buffers()])
    forget_gradients(module.parameters())  # an old one would move a frozen parameter
    wrapped = wrap(module, grad_sample_mode, loss_reduction, run.watch)
    run.watch.follow(run)
    return wrapped, PrivateOptimizer(optimizer, run), PrivateLoader(dataset, run, **options)


def _check_target(sigma: float | None, epsilon: float | None, delta: float | None) -> float:
    if (sigma is None) == (epsilon is None):
        given = "neither" if sigma is None else "both"
        raise ParameterError(
            f"give sigma or epsilon, got {given}: sigma is the noise in units of the clip norm, "
            "epsilon a target for which the least noise is found."
        )
    if delta is None:
        raise ParameterError("delta is missing: a guarantee is an epsilon at a delta.")
    if sigma is not None:
        real("sigma", sigma, 0, 1e30)
    return real("delta", delta, 0, 1)


def _check_verify(
    method: str, verify: Mapping[str, Any] | None, epsilon: float | None, distributed: bool
) -> None:
    if method != "verify":
        if verify is not None:
            raise ParameterError(f"verify has options for method='verify', not for {method!r}.")
        return
    if epsilon is None:
        raise ParameterError(
            "method='verify' shows a target: give epsilon, for which the noise is found, not sigma."
        )
    if distributed:
        raise ParameterError(
            "method='verify' finds noise by simulation, which several processes would not find "
            "alike. Use another method, or one process."
        )


def _facts(
    mechanism: Mechanism, trained: Sequence[nn.Parameter], layout: str, **settings: object
) -> dict[str, str]:
    """What must be the same on all processes for their numbers to have the same meaning."""
    return {
        **mechanism.fingerprint(),
        "the count of trained numbers": str(sum(p.numel() for p in trained)),
        "the digest of the module's layout": layout,
        "the software": f"mmcc {__version__}, numpy {np.__version__}, torch {torch.__version__}",
        **{name: str(value) for name, value in settings.items()},
    }
