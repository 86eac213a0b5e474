"""Between a batch and its step: one pass of the module over the batch, and nothing written down.

In: the module's passes and its content.  Out: refusals.
Clipping bounds what one example does to the sum of gradients if each row of per-example gradients
is one example's, and if the data leave no other trace in the module.  Neither can be seen from the
gradients alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mmcc.training.run import Batch, RunError

LEFT = ("activations", "max_batch_len")
"""What Opacus keeps at a layer between a forward pass and its backward pass."""


class Watch:
    """What a module does from the moment a batch is handed out until its step."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._sizes: list[int | None] = []
        self._content = b""

    def new_batch(self) -> None:
        """A batch is handed out: whatever a pass without a step has left is void."""
        self._sizes.clear()
        for parameter in self._module.parameters():
            if hasattr(parameter, "grad_sample"):
                parameter.grad_sample = None
            if hasattr(parameter, "_forward_counter"):
                parameter._forward_counter = 0
            parameter.__dict__.pop("_current_grad_sample", None)
        for layer in self._module.modules():
            for name in LEFT:
                layer.__dict__.pop(name, None)
        self._content = self._digest()

    def passed(self, inputs: Sequence[Any]) -> None:
        """The module is about to make a pass for gradients."""
        batch = first_tensor(inputs)
        self._sizes.append(None if batch is None else len(batch))

    def check(self, batch: Batch) -> None:
        """Refuse passes over anything but the batch, once, and a module that was written to."""
        sizes = self._sizes if batch.size else [size for size in self._sizes if size] or [0]
        if sizes != [batch.size]:
            raise RunError(
                f"the loader handed out {batch.size} examples, and the module was called "
                f"{len(self._sizes)} times, with {self._sizes} of them in the first dimension of "
                "its first tensor: each example goes through the module once for each batch, in "
                "training mode. Use torch.no_grad() for anything else."
            )
        if self._digest() != self._content:
            raise RunError(
                "a parameter or buffer of the module changed between a batch and its step: what "
                "the data wrote there carries no noise. Leave out layers that keep statistics or "
                "change their weights in the forward pass, such as Embedding(max_norm=...)."
            )

    def _digest(self) -> bytes:
        """Sums of all tensors, which tell a change that is made behind autograd's back too."""
        sums = [
            (torch.view_as_real(tensor) if tensor.is_complex() else tensor)
            .detach()
            .sum(dtype=torch.float64)
            .cpu()
            for tensor in (*self._module.parameters(), *self._module.buffers())
        ]
        return torch.stack(sums).numpy().tobytes() if sums else b""


def first_tensor(inputs: Any) -> Tensor | None:
    """The first tensor among arguments, with a dimension for the examples."""
    if isinstance(inputs, Tensor):
        return inputs if inputs.dim() else None
    if isinstance(inputs, Mapping):
        inputs = tuple(inputs.values())
    if isinstance(inputs, Sequence) and not isinstance(inputs, str):
        for entry in inputs:
            found = first_tensor(entry)
            if found is not None:
                return found
    return None


def refuse_packed(_layer: nn.Module, inputs: tuple[Any, ...]) -> None:
    """For recurrent layers: a packed sequence sorts its examples, and its gradients with them."""
    if any(isinstance(entry, nn.utils.rnn.PackedSequence) for entry in inputs):
        raise RunError(
            "a recurrent layer got a PackedSequence, whose rows need not be in the order of the "
            "batch, so that gradients of different examples would be clipped as one. Pass padded "
            "sequences."
        )
