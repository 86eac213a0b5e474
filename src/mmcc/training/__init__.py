"""Training with exactly the mechanism that was accounted: noise, samplers, PyTorch.

Noise streams and participants need numpy alone; whatever trains needs torch and opacus, and is
loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mmcc.errors import MmccError
from mmcc.training.mechanism import Mechanism
from mmcc.training.noise import NoiseStream
from mmcc.training.participants import Participants

if TYPE_CHECKING:
    from mmcc.training.checkpoint import load_checkpoint, save_checkpoint
    from mmcc.training.checkpoint_file import CheckpointError
    from mmcc.training.loader import PrivateLoader
    from mmcc.training.losses import per_example_loss
    from mmcc.training.optimizer import PrivateOptimizer
    from mmcc.training.private import make_private
    from mmcc.training.run import RunError
    from mmcc.training.samplers import BatchSampler
    from mmcc.training.torch_noise import TorchNoiseStream

__all__ = (
    "BatchSampler",
    "CheckpointError",
    "Mechanism",
    "MissingPackageError",
    "NoiseStream",
    "Participants",
    "PrivateLoader",
    "PrivateOptimizer",
    "RunError",
    "TorchNoiseStream",
    "load_checkpoint",
    "make_private",
    "per_example_loss",
    "save_checkpoint",
)

_LATER = {
    "BatchSampler": "samplers",
    "CheckpointError": "checkpoint_file",
    "PrivateLoader": "loader",
    "PrivateOptimizer": "optimizer",
    "RunError": "run",
    "TorchNoiseStream": "torch_noise",
    "load_checkpoint": "checkpoint",
    "make_private": "private",
    "per_example_loss": "losses",
    "save_checkpoint": "checkpoint",
}


class MissingPackageError(MmccError, ImportError):
    """A package is needed that is not installed."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'mmcc.training' has no attribute {name!r}")
    try:
        module = import_module(f"mmcc.training.{_LATER[name]}")
    except ModuleNotFoundError as problem:
        if (problem.name or "").partition(".")[0] not in ("torch", "opacus"):
            raise
        raise MissingPackageError(
            f"mmcc.training.{name} needs {problem.name}, which is not installed: "
            "pip install 'mmcc[train]'."
        ) from None
    value = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
