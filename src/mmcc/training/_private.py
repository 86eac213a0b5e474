"""make_private: a model, an optimizer and data become a run of an accounted mechanism.

In: what Opacus's make_private takes, a strategy, a sampling scheme, and sigma or epsilon.
Out: module, optimizer and loader, used as before.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from opacus.grad_sample import AbstractGradSampleModule
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, Dataset

from mmcc import __version__
from mmcc._methods import TIGHT, VERIFY
from mmcc._progress import shown
from mmcc.design._error_beside_dp_sgd import beside_dp_sgd
from mmcc.errors import ParameterError, real
from mmcc.sampling import Scheme
from mmcc.strategies._base import Strategy
from mmcc.training._calibration import calibrate
from mmcc.training._canaries import absent_of
from mmcc.training._clipping import clipping_of
from mmcc.training._correlation import KEEP
from mmcc.training._distributed import peers_of
from mmcc.training._loader import PrivateLoader, dataset_of, loading_options
from mmcc.training._masters import Masters
from mmcc.training._mechanism import Mechanism, declared_strategy, training_method
from mmcc.training._module_contents import forget_gradients
from mmcc.training._optimizer import PrivateOptimizer
from mmcc.training._participants import Participants, digest_of
from mmcc.training._plan import resolve
from mmcc.training._randomness import DEFAULT, check_seed
from mmcc.training._run import Record, TrainingRun, ledger_of
from mmcc.training._sharding import is_spread, is_unit, sharding_of
from mmcc.training._torch_noise import TorchNoiseStream
from mmcc.training._trainable import (
    EXPANDED,
    check_module,
    layout_digest,
    mode_of,
    names_of,
    trained_by,
)
from mmcc.training._watch import Watch
from mmcc.training._wrapping import wrap

if TYPE_CHECKING:
    from mmcc.accounting._guarantee import Guarantee
    from mmcc.accounting._parallel import Progress
    from mmcc.ledger import Ledger


def make_private(
    module: nn.Module,
    optimizer: Optimizer,
    data: Dataset[Any] | DataLoader[Any],
    *,
    strategy: Strategy | str | Callable[[int], Strategy],
    sampling: Scheme | str | Callable[[float], Scheme],
    max_grad_norm: float | Mapping[str, float] | Sequence[float],
    sigma: float | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    epochs: float | None = None,
    batch_size: int | None = None,
    seed: int | None = None,
    decoder: str | None = None,
    method: str = TIGHT,
    verify: Mapping[str, Any] | None = None,
    loss_reduction: str = "mean",
    clipping: str = "flat",
    gamma: float | None = None,
    grad_sample_mode: str | None = None,
    physical_batch_size: int | None = None,
    steps_per_epoch: int | None = None,
    stop_after: int | None = None,
    generator: str | None = None,
    memory: str = KEEP,
    distributed: bool = False,
    ledger: Ledger | str | Path | None = None,
    data_name: str | None = None,
    progress: Progress | bool | None = None,
    remembered: bool = True,
) -> tuple[AbstractGradSampleModule, PrivateOptimizer, PrivateLoader]:
    """A module, an optimizer and a loader that together run the accounted mechanism, and no other.

    Give either `sigma`, in units of the clip norm, or `epsilon`, for which the least certified
    noise is used.  `optimizer.guarantee` is that of all the strategy's steps; `stop_after` declares
    in advance that the run ends earlier, and the guarantee is then that of these steps.  Under
    `Shuffle`, and under `MinSeparation` of a strategy that is not Toeplitz, no amplification is
    used, since none is proven.

    With method "verify" the noise for `epsilon` is found by simulation, and the guarantee is
    verified, not certified; `verify` holds options of `mmcc.verify`, such as a `record`, from which
    a resumed run reads the verdict.

    With `epochs` the strategy and the sampling may be names, such as "blt:2" and "poisson", or
    functions of the number of steps and of the rate; `mmcc.training.plan` says how these follow
    from `epochs` and the batch size, which is the loader's, or `batch_size`.  The resulting plan is
    printed on stderr in one line.  `strategy="auto"` stands for what `mmcc.recommend` finds for
    `epsilon`; with `sampling="auto"` it chooses the scheme too.

    The search for the noise of a target shows its progress if stderr is a terminal; `progress` may
    be a function of (what, done), or False for silence, which also leaves out the line about
    epochs.  The noise found is remembered in a file of the user's cache, and certified again
    whenever it is read; `remembered=False` turns this off, and so does MMCC_CACHE=off in the
    environment.  MMCC_CACHE may also name the folder.

    With `ledger`, a file, the run is accounted for now and recorded there before its first step, as
    a run on the data set `data_name`; `mmcc ledger` adds up all of them.

    `clipping` says how an example's gradient is bounded (docs/training.md): "flat" as a whole, from
    per-example gradients; "ghost" the same without them; "per-layer" each layer by itself, with
    norms in `max_grad_norm` or equal shares of it; "automatic" by dividing by its norm plus
    `gamma`.  The last two work like "ghost", unless `grad_sample_mode` says otherwise.

    `generator` and `memory` are those of `TorchNoiseStream`: "device" noise, unless another is
    named or belongs to a checkpoint that is loaded; old noise is kept, not regenerated, by default.

    With `distributed`, the processes of torch.distributed's default group work on one run: each
    calls this with the same arguments and the same data set, takes its part of every batch, and
    has the same parameters as all others.  Seed and initial parameters are those of process 0.  A
    module for which `torch.distributed.fsdp.fully_shard` was called before its optimizer was made
    stays sharded, and each process makes the noise of its shards (docs/distributed.md).
    """
    peers = peers_of(distributed)
    told = progress if peers.rank == 0 else False
    with peers.agreeing():
        delta = _check_target(sigma, epsilon, delta)
        _check_verify(method, verify, epsilon, distributed)
        sharded = isinstance(module, nn.Module) and any(map(is_unit, module.modules()))
        mode = mode_of(grad_sample_mode, clipping, sharded=sharded)
        check_module(module, optimizer, mode)
        trained = trained_by(optimizer)
        law, clip_norm = clipping_of(clipping, max_grad_norm, gamma, names_of(module, trained))
        check_seed(seed)
        dataset = dataset_of(data)
        book, name = ledger_of(ledger, data_name)
        with shown(told) as bar:
            whole, scheme, planned = resolve(
                strategy, sampling, data, epochs, batch_size, target=(epsilon, delta), progress=bar
            )
        encoder = declared_strategy(whole, scheme, stop_after)
        if planned is not None and steps_per_epoch is None:
            steps_per_epoch = min(planned.steps_per_epoch, encoder.steps)
        training_method(encoder, scheme, method)
        mechanism = Mechanism(
            encoder,
            scheme,
            1.0 if sigma is None else sigma,  # the noise for a target is found last
            len(dataset),
            clip_norm,
            decoder,
            loss_reduction,
            law,
        )
        absent = absent_of(dataset)
        expected = mechanism.expected_batch_size
        if planned is not None and not isinstance(sampling, Scheme):
            expected = planned.batch_size  # the scheme follows from it
        options = loading_options(data, expected)

        @cache
        def account() -> Guarantee:
            with shown(told) as bar:
                return calibrate(
                    encoder,
                    scheme,
                    delta=delta,
                    method=method,
                    sigma=sigma,
                    epsilon=epsilon,
                    verify=verify,
                    progress=bar,
                    remembered=remembered and not distributed,  # all processes must find the same
                )

        if sigma is None:
            mechanism = replace(mechanism, sigma=account().sigma)
        layout = layout_digest(module, trained)
        facts = _facts(
            mechanism,
            trained,
            layout,
            delta=delta,
            method=method,
            physical_batch_size=physical_batch_size,
            steps_per_epoch=steps_per_epoch,
            grad_sample_mode=mode,
            generator=DEFAULT if generator is None else generator,
            memory=memory,
            data_name=name,
            canaries_left_out=digest_of(absent),
        )
    peers.same(facts, "Call make_private with the same arguments on every process.")
    seed = peers.seed(seed)
    sharding = sharding_of(module, trained, peers.count)  # this gathers parameters
    with peers.agreeing():
        masters = Masters(trained)
        run = TrainingRun(
            mechanism,
            TorchNoiseStream(
                encoder,
                mechanism.sigma,
                masters.stepped,
                seed,
                decoder=decoder,
                generator=generator,
                memory=memory,
            ),
            Participants(scheme, encoder.steps, mechanism.examples, seed, absent=absent),
            account,
            Record(book, name, mechanism, account, peers),
            Watch(module, trained, sharding, finds_ordinary=mode != EXPANDED),
            masters,
            sharding,
            peers,
            steps_per_epoch=steps_per_epoch,
            physical=physical_batch_size,
            layout=layout,
        )
        if book is not None and peers.rank == 0:
            account()  # it may take minutes: do it now, not at the first batch
    held = [*module.parameters(), *module.buffers()]
    peers.level([tensor for tensor in held if not is_spread(tensor)])
    forget_gradients(module.parameters())  # an old one would move a frozen parameter
    wrapped = wrap(module, mode, loss_reduction, run.watch)
    run.watch.follow(run)
    if told is not False and epsilon is not None:
        beside = beside_dp_sgd(encoder, scheme, account())
        told_of = [] if planned is None else [planned.sizes, account()]
        if beside is not None and (planned is not None or beside.worse):
            told_of.append(beside)
        if told_of:
            print(f"mmcc: {'; '.join(map(str, told_of))}", file=sys.stderr)
    elif told is not False and planned is not None:
        print(f"mmcc: {planned}, sigma {mechanism.sigma:g}", file=sys.stderr)
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
    if method != VERIFY:
        if verify is not None:
            raise ParameterError(f"verify has options for method={VERIFY!r}, not for {method!r}.")
        return
    if epsilon is None:
        raise ParameterError(
            f"method={VERIFY!r} needs a target: give epsilon, for which the noise is found, not "
            "sigma."
        )
    if distributed:
        raise ParameterError(
            f"method={VERIFY!r} finds noise by simulation, and several processes would find "
            "different noise. Use another method, or one process."
        )


def _facts(
    mechanism: Mechanism, trained: Sequence[nn.Parameter], layout: str, **settings: object
) -> dict[str, str]:
    """What must be equal on all processes for their numbers to have the same meaning."""
    return {
        **mechanism.fingerprint(),
        "the number of trained parameters": str(sum(p.numel() for p in trained)),
        "the digest of the module's layout": layout,
        "the software": f"mmcc {__version__}, numpy {np.__version__}, torch {torch.__version__}",
        **{name: str(value) for name, value in settings.items()},
    }
