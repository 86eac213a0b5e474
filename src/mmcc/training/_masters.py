"""Master copies in single precision, which are trained in place of 16-bit parameters.

In: the parameters of an optimizer.  Out: what it steps on: a master copy for each 16-bit parameter,
and the parameter itself for all others.
Rounding: norms, sums and noise are in single precision, and so is the step that the optimizer makes
with a released gradient.  A parameter is its master rounded to 16 bits, which is post-processing:
it reveals no more about the data than the master.  Noise that was itself rounded to 8 bits, or
added to a sum in 8 bits, would not be Gaussian noise on a bounded sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from mmcc.errors import ParameterError

SHORT = (torch.bfloat16, torch.float16)
WIDE = (torch.float32, torch.float64)


class Masters:
    """The tensors that the optimizer steps on in place of the trained parameters, in order."""

    def __init__(self, trained: Sequence[nn.Parameter]) -> None:
        self.stepped = [
            nn.Parameter(p.detach().float()) if p.dtype in SHORT else p for p in trained
        ]
        self._pairs = [
            (place, p, master)
            for place, (p, master) in enumerate(zip(trained, self.stepped, strict=True))
            if p is not master
        ]

    def take_over(self, optimizer: Optimizer) -> None:
        """Make the optimizer step on masters, which start as copies of the parameters."""
        masters = {p: master for _, p, master in self._pairs}
        with torch.no_grad():
            for p, master in masters.items():
                master.copy_(p)
        for group in optimizer.param_groups:
            group["params"] = [masters.get(p, p) for p in group["params"]]
        for p, master in masters.items():
            if p in optimizer.state:
                kept = optimizer.state.pop(p)
                optimizer.state[master] = {name: _widened(value) for name, value in kept.items()}

    @torch.no_grad()
    def refresh(self) -> None:
        """Before a step: adopt what was written to a parameter since the last one."""
        for _, p, master in self._pairs:
            written = p != master.to(p.dtype)
            if written.any():
                master.copy_(torch.where(written, p.to(master.dtype), master))

    @torch.no_grad()
    def write_back(self) -> None:
        """After a step: set the parameters to their masters, rounded."""
        for _, p, master in self._pairs:
            p.copy_(master)

    def state(self) -> dict[str, Tensor]:
        """The masters, by their indices in the optimizer."""
        return {str(place): master.detach() for place, _, master in self._pairs}

    @torch.no_grad()
    def load(self, state: Mapping[str, Any]) -> None:
        """Restore masters that were saved."""
        if set(state) != set(self.state()):
            raise ParameterError("it has other parameters in 16 bits than this module.")
        for place, p, master in self._pairs:
            saved = state[str(place)]
            fits = isinstance(saved, Tensor) and saved.dtype == master.dtype
            if not fits or saved.shape != master.shape:
                raise ParameterError("its copies in single precision do not fit the parameters.")
            if not torch.equal(saved.to(p.device, p.dtype), p.detach()):
                raise ParameterError("its copies in single precision are not of its parameters.")
            master.copy_(saved)


def _widened(value: Any) -> Any:
    """An optimizer's state of a 16-bit parameter, converted for its master."""
    if isinstance(value, Tensor) and value.dtype in SHORT:
        return value.float()
    return value
