"""make_private: a model, an optimizer and data become a run of an accounted mechanism.

In: what Opacus's make_private takes, a strategy, a sampling scheme, and sigma or epsilon.
Out: module, optimizer and loader, used as before.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from opacus.grad_sample import AbstractGradSampleModule
from opacus.optimizers import DPOptimizer
from opacus.validators import ModuleValidator
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer
from torch.utils.data import DataLoader, Dataset

from mmcc import __version__
from mmcc.errors import MethodError, ParameterError, real, suggestion
from mmcc.sampling import Scheme
from mmcc.strategies._base import Strategy
from mmcc.training._distributed import peers_of
from mmcc.training._loader import PrivateLoader, dataset_of, loading_options
from mmcc.training._mechanism import (
    Mechanism,
    certified,
    check_trainable,
    declared,
    training_method,
)
from mmcc.training._optimizer import PrivateOptimizer
from mmcc.training._participants import Participants
from mmcc.training._per_example import untrainable, wrap
from mmcc.training._plateaus import warn_of_plateaus
from mmcc.training._randomness import check_seed
from mmcc.training._record import Record, ledger_of
from mmcc.training._run import Run
from mmcc.training._torch_noise import TorchNoiseStream
from mmcc.training._watch import Watch

if TYPE_CHECKING:
    from mmcc.ledger import Ledger

LAYOUT = "the digest of the module's layout"
MODES = ("hooks", "functorch", "ew")


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
    `Shuffle` and `MinSeparation` it uses no amplification, for none is proven.

    With `ledger`, a file, the run is written there before its first step, as one on the data set
    `data_name`; `mmcc ledger` adds up all of them.

    With `distributed` the processes of torch.distributed's default group work on one run: each
    calls this with the same arguments and the same data set, takes its part of every batch, and
    has the same parameters as all others.  Seed and initial parameters are those of process 0.
    """
    peers = peers_of(distributed)
    with peers.agreeing():
        delta = _check_target(sigma, epsilon, delta)
        check_trainable(strategy, sampling)
        strategy = declared(strategy, sampling, stop_after)
        training_method(strategy, sampling, method)
        _check_module(module, optimizer, grad_sample_mode)
        dataset = dataset_of(data)
        mechanism = Mechanism(
            strategy,
            sampling,
            1.0 if sigma is None else sigma,
            len(dataset),
            max_grad_norm,
            decoder,
            loss_reduction,
        )
        options = loading_options(data, mechanism.expected_batch_size)
        account = partial(certified, strategy, sampling, delta=delta, method=method)
        if sigma is None:
            found = account(epsilon=epsilon)
            mechanism = replace(mechanism, sigma=found.sigma)
        check_seed(seed)
        book, name = ledger_of(ledger, data_name)
        facts = {
            **mechanism.fingerprint(),
            **_layout(module, optimizer),
            "delta": repr(delta),
            "method": method,
            "physical_batch_size": str(physical_batch_size),
            "steps_per_epoch": str(steps_per_epoch),
            "grad_sample_mode": grad_sample_mode,
            "generator": generator,
            "data_name": name,
        }
    peers.same(facts, "Call make_private with the same arguments on every process.")
    seed = peers.seed(seed)
    watch = Watch(module, _trained(optimizer), finds_ordinary=grad_sample_mode != "ew")
    with peers.agreeing():
        run = Run(
            mechanism,
            TorchNoiseStream(
                strategy,
                mechanism.sigma,
                _trained(optimizer),
                seed,
                decoder=decoder,
                generator=generator,
            ),
            Participants(sampling, strategy.steps, mechanism.examples, seed),
            partial(account, sigma=sigma) if sigma is not None else lambda: found,
            steps_per_epoch=steps_per_epoch,
            physical=physical_batch_size,
            record=Record(book, name, mechanism, peers),
            watch=watch,
            layout=facts[LAYOUT],
            peers=peers,
        )
    peers.level([*module.parameters(), *module.buffers()])
    watch.follow(run)
    wrapped = wrap(module, grad_sample_mode, loss_reduction, watch)
    for parameter in module.parameters():
        parameter.grad = None  # an old one would move a frozen parameter
    private = PrivateOptimizer(optimizer, run, watch, module.buffers)
    warn_of_plateaus(optimizer, private)
    return wrapped, private, PrivateLoader(dataset, run, **options)


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


def _check_module(module: nn.Module, optimizer: Optimizer, mode: str) -> None:
    """Refuse what Opacus cannot take apart by example, and what would leak past the noise."""
    if not isinstance(module, nn.Module) or not isinstance(optimizer, Optimizer):
        raise ParameterError(
            "make_private takes a torch.nn.Module and a torch.optim.Optimizer, got "
            f"{type(module).__name__} and {type(optimizer).__name__}."
        )
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ParameterError(
            "LBFGS looks at the data several times in one step, and only one look is accounted "
            "for. Use SGD, Adam or another optimizer with one gradient a step."
        )
    if not isinstance(mode, str):
        raise MethodError(f"unknown grad_sample_mode {mode!r}; {suggestion('', MODES)}")
    if mode.startswith("ghost"):
        raise MethodError(
            f"grad_sample_mode={mode!r} clips in a second backward pass that belongs to Opacus's "
            f"own optimizer and loss; {suggestion('', MODES)}"
        )
    if mode not in MODES:
        raise MethodError(f"unknown grad_sample_mode {mode!r}; {suggestion(mode, MODES)}")
    hooked = hasattr(module, "autograd_grad_sample_hooks")
    if hooked or isinstance(module, AbstractGradSampleModule) or isinstance(optimizer, DPOptimizer):
        raise ParameterError(
            "module or optimizer is private already: pass a new module and its plain optimizer."
        )
    if isinstance(module, torch.jit.ScriptModule):
        raise ParameterError(
            "a scripted module cannot be taken apart by example: pass the module that was scripted."
        )
    if isinstance(module, nn.parallel.DistributedDataParallel):
        raise ParameterError(
            "DistributedDataParallel averages gradients that are not clipped yet: pass the plain "
            "module, with distributed=True."
        )
    for name, layer in module.named_modules():
        if any(kind.__module__.startswith("torch.distributed.fsdp") for kind in type(layer).mro()):
            raise ParameterError(
                f"layer {name!r} is sharded (FSDP), and a process has only a part of its "
                "parameters, so that no gradient of an example could be clipped as a whole. Pass "
                "the plain module, with distributed=True."
            )
    if any(isinstance(p, nn.UninitializedParameter) for p in module.parameters()):
        raise ParameterError(
            "the module has lazy layers whose sizes are not known yet. Pass one batch through it "
            "before make_private, of data that need no protection."
        )
    for name, layer in module.named_modules():
        if isinstance(layer, _BatchNorm):
            raise ParameterError(
                f"layer {name!r} is a {type(layer).__name__}: it mixes the examples of a batch and "
                "keeps statistics without noise. Use GroupNorm or LayerNorm."
            )
    for name, layer in module.named_modules():
        validator = ModuleValidator.VALIDATORS.get(type(layer))
        if validator is not None and any(p.requires_grad for p in layer.parameters()):
            for problem in validator(layer):
                raise untrainable(f"layer {name!r}", problem)
    for problem in ModuleValidator.validate(module, strict=False):
        raise untrainable("this module", problem)
    _check_parameters(_trained(optimizer), set(module.parameters()))


def _trained(optimizer: Optimizer) -> list[nn.Parameter]:
    return [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]


def _layout(module: nn.Module, optimizer: Optimizer) -> dict[str, str]:
    """What must be the same for the numbers of two processes to have the same meaning."""
    tensors = [*module.named_parameters(), *module.named_buffers()]
    names = {id(tensor): name for name, tensor in tensors}
    content = [f"{name} {tuple(tensor.shape)} {tensor.dtype}" for name, tensor in tensors]
    trained = _trained(optimizer)
    content += [names[id(p)] for p in trained]
    return {
        "the count of trained numbers": str(sum(p.numel() for p in trained)),
        LAYOUT: hashlib.sha256("\n".join(content).encode()).hexdigest(),
        "the software": f"mmcc {__version__}, numpy {np.__version__}, torch {torch.__version__}",
    }


def _check_parameters(trained: list[nn.Parameter], known: set[nn.Parameter]) -> None:
    if not trained:
        raise ParameterError("the optimizer has no parameter that is trained.")
    if not known.issuperset(trained):
        raise ParameterError(
            "the optimizer has parameters that are not the module's: they would get no clipped "
            "gradients. Make the optimizer from module.parameters()."
        )
    if any(p.requires_grad for p in known.difference(trained)):
        raise ParameterError(
            "the module has parameters to be trained that the optimizer does not have: their "
            "gradients would be neither clipped nor noised. Freeze them (requires_grad_(False)), "
            "or give them to the optimizer."
        )
    for p in trained:
        if p.dtype not in (torch.float32, torch.float64):
            raise ParameterError(
                f"a parameter is {p.dtype}: noise rounded so coarsely is no Gaussian noise. Train "
                "in float32 or float64."
            )
