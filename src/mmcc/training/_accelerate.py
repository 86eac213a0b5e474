"""What accelerate's `prepare` finds: objects of a run, which it is to leave as they are.

In: a run, and the state that accelerate keeps for its process.  Out: "prepared already", or a
refusal.
`prepare` would make another loader from the batches of ours, half of them for each of two
processes; put a module into DistributedDataParallel, which averages gradients before they are
clipped; and let an optimizer step now and then.  It asks each object first whether it is prepared.
What it would have done for device and precision is done here.
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
"""Of accelerate: all that needs no scaled losses."""
NATIVE = "NO"
PARALLEL = (NATIVE, "MULTI_CPU", "MULTI_GPU", "MULTI_XPU", "MULTI_NPU", "MULTI_HPU")
"""Of accelerate's kinds of processes: those in which each has the whole module."""


class Prepared:
    """An object of a run, which passes through accelerate's `prepare` as it is."""

    @property
    def _is_accelerate_prepared(self) -> bool:
        """What accelerate asks, and nobody else."""
        state = _state()
        if state is not None:
            self._meet_accelerate(state)
        return True

    @_is_accelerate_prepared.setter
    def _is_accelerate_prepared(self, value: bool) -> None:
        """Accelerate notes what it has seen, which is known."""

    def _meet_accelerate(self, state: Any) -> None:
        """Refuse a setting in which the run would not be what was accounted, or take it over."""
        raise NotImplementedError


def check_setting(state: Any, run: TrainingRun) -> None:
    """Refuse what accelerate was told to do and cannot be done to a run."""
    from accelerate.state import GradientState

    count = GradientState().num_steps
    if count != 1:
        raise RunError(
            f"gradient_accumulation_steps={count} would hide batches from the run: every batch of "
            "its loader is one step, whose noise is released. Leave it at 1 and pass "
            "physical_batch_size to make_private, which cuts the accounted batches."
        )
    if state.mixed_precision not in PRECISIONS:
        raise RunError(
            f"mixed_precision={state.mixed_precision!r} multiplies the loss, so that every "
            "gradient would be clipped as if it were thousands of times as long. Use 'bf16', which "
            "needs no scaler, or 'no'."
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
            f"accelerate has {state.num_processes} processes and the run {run.peers.count}: each "
            "would make a release of its own. Make the Accelerator first, and then pass "
            "distributed=True to make_private."
        )
    if state.dynamo_plugin.backend.name != NATIVE:
        raise RunError(
            "accelerate was told to compile the module (dynamo_backend), and a compiled module is "
            "not to be wrapped again. Call torch.compile before make_private, and leave it out."
        )


def check_place(state: Any, parameters: Iterable[torch.Tensor]) -> None:
    """Refuse parameters that are elsewhere than accelerate puts the batches."""
    check_device(
        parameters, state.device, "accelerate puts batches on", "module.to(accelerator.device)"
    )


def check_device(
    parameters: Iterable[torch.Tensor], meant: torch.device, does: str, remedy: str
) -> None:
    """Refuse parameters, where the noise is made too, that are elsewhere than a tool has them."""
    for parameter in parameters:
        at = parameter.device
        another = None not in (at.index, meant.index) and at.index != meant.index
        if at.type != meant.type or another:  # the CPU may have a number, and may not
            raise RunError(
                f"a parameter is on {at} and {does} {meant}: call {remedy} before the optimizer is "
                "made, and then make_private."
            )


def precision(state: Any) -> AbstractContextManager[Any]:
    """In which the module is to be called."""
    if state.mixed_precision == "no":
        return nullcontext()
    return torch.autocast(state.device.type, torch.bfloat16)


def moved(batch: Any, device: torch.device | None) -> Any:
    """A batch where accelerate would put it."""
    if device is None:
        return batch
    from accelerate.utils import send_to_device

    return send_to_device(batch, device)


def _state() -> Any:
    """What accelerate knows of this process; None where nobody has started it."""
    module = sys.modules.get("accelerate.state")
    if module is None or not module.AcceleratorState._shared_state:
        return None
    return module.AcceleratorState()
