"""accelerate's `prepare` and the objects of a run, which it must leave as they are.

In: a run, and the state that accelerate keeps for its process.  Out: "already prepared", or a
refusal.
`prepare` would build another loader from the batches of ours (and give each of two processes half
of them), put the module into DistributedDataParallel, which averages gradients before they are
clipped, and make the optimizer step only now and then.  It first asks each object whether it is
already prepared.  Whatever it would have done for device and precision is done here.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch

from mmcc.training._run import RunError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractContextManager

    from mmcc.training._run import TrainingRun

PRECISIONS = ("no", "bf16")
"""The mixed precisions of accelerate that need no scaled losses."""
NATIVE = "NO"
PARALLEL = (NATIVE, "MULTI_CPU", "MULTI_GPU", "MULTI_XPU", "MULTI_NPU", "MULTI_HPU")
"""The kinds of distributed setups of accelerate in which every process has the whole module."""


class Prepared:
    """An object of a run, which passes through accelerate's `prepare` unchanged."""

    @property
    def _is_accelerate_prepared(self) -> bool:
        """Only accelerate reads this attribute."""
        state = _state()
        if state is not None:
            self._meet_accelerate(state)
        return True

    @_is_accelerate_prepared.setter
    def _is_accelerate_prepared(self, value: bool) -> None:
        """Accelerate writes here what it has prepared; there is nothing to record."""

    def _meet_accelerate(self, state: Any) -> None:
        """Refuse settings under which the run is not what was accounted; adopt the others."""
        raise NotImplementedError


def check_setting(state: Any, run: TrainingRun) -> None:
    """Refuse settings of accelerate that a run cannot follow."""
    from accelerate.state import GradientState

    count = GradientState().num_steps
    if count != 1:
        raise RunError(
            f"gradient_accumulation_steps={count} would hide batches from the run: every batch of "
            "its loader is one step, whose noise is released. Leave it at 1 and pass "
            "physical_batch_size to make_private, which splits the accounted batches."
        )
    if state.mixed_precision not in PRECISIONS:
        raise RunError(
            f"mixed_precision={state.mixed_precision!r} scales the loss, so every gradient would "
            "be clipped as if it were thousands of times as long. Use 'bf16', which needs no "
            "scaler, or 'no'."
        )
    kind = state.distributed_type.name
    if kind not in PARALLEL:
        raise RunError(
            f"accelerate was started for {kind}, in which a process does not have the whole "
            "module. Start it for several processes with a copy each (MULTI_GPU, MULTI_CPU), and "
            "pass distributed=True to make_private."
        )
    if state.num_processes != run.peers.count:
        raise RunError(
            f"accelerate has {state.num_processes} processes but the run has {run.peers.count}: "
            "each would make a release of its own. Create the Accelerator first, then pass "
            "distributed=True to make_private."
        )
    if state.dynamo_plugin.backend.name != NATIVE:
        raise RunError(
            "accelerate was told to compile the module (dynamo_backend), but a wrapped module must "
            "not be compiled. Leave that out, and call torch.compile before make_private."
        )


def check_place(state: Any, parameters: Iterable[torch.Tensor]) -> None:
    """Refuse parameters that are not on the device to which accelerate moves the batches."""
    check_device(
        parameters, state.device, "accelerate puts batches on", "module.to(accelerator.device)"
    )


def check_device(
    parameters: Iterable[torch.Tensor], meant: torch.device, does: str, remedy: str
) -> None:
    """Refuse parameters, and so noise, on another device than the one that a tool uses."""
    for parameter in parameters:
        at = parameter.device
        another = None not in (at.index, meant.index) and at.index != meant.index
        if at.type != meant.type or another:  # the CPU may or may not have a number
            raise RunError(
                f"a parameter is on {at} but {does} {meant}: call {remedy} before creating the "
                "optimizer, and then call make_private."
            )


def precision(state: Any) -> AbstractContextManager[Any]:
    """The autocast context in which the module is called."""
    if state.mixed_precision == "no":
        return nullcontext()
    return torch.autocast(state.device.type, torch.bfloat16)


def move(batch: Any, device: torch.device | None) -> Any:
    """A batch on the device to which accelerate would move it."""
    if device is None:
        return batch
    from accelerate.utils import send_to_device

    return send_to_device(batch, device)


def _state() -> Any:
    """Accelerate's state of this process; None where accelerate was not started."""
    module = sys.modules.get("accelerate.state")
    if module is None or not module.AcceleratorState._shared_state:
        return None
    return module.AcceleratorState()
