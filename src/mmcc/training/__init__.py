"""Training with exactly the mechanism that was accounted: noise, samplers, PyTorch.

Noise streams and participants need only numpy; everything that trains needs torch and opacus, which
are loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mmcc.errors import MmccError
from mmcc.training._canaries import Canaries
from mmcc.training._clipping import Clipping
from mmcc.training._mechanism import Mechanism
from mmcc.training._noise import NoiseStream
from mmcc.training._participants import Participants
from mmcc.training._plan import Plan, plan

if TYPE_CHECKING:
    from mmcc.training._checkpoint import load_checkpoint, save_checkpoint
    from mmcc.training._checkpoint_file import CheckpointError
    from mmcc.training._lightning import PrivacyCallback
    from mmcc.training._loader import BatchSampler, PrivateLoader
    from mmcc.training._losses import per_example_loss
    from mmcc.training._optimizer import PrivateOptimizer
    from mmcc.training._private import make_private
    from mmcc.training._progress_line import ProgressLine
    from mmcc.training._run import RunError
    from mmcc.training._torch_noise import TorchNoiseStream
    from mmcc.training._trainer import PrivateTrainer

__all__ = (
    "BatchSampler",
    "Canaries",
    "CheckpointError",
    "Clipping",
    "Mechanism",
    "MissingPackageError",
    "NoiseStream",
    "Participants",
    "Plan",
    "PrivacyCallback",
    "PrivateLoader",
    "PrivateOptimizer",
    "PrivateTrainer",
    "ProgressLine",
    "RunError",
    "TorchNoiseStream",
    "load_checkpoint",
    "make_private",
    "per_example_loss",
    "plan",
    "save_checkpoint",
)

_LATER = {
    "BatchSampler": "_loader",
    "CheckpointError": "_checkpoint_file",
    "PrivacyCallback": "_lightning",
    "PrivateLoader": "_loader",
    "PrivateOptimizer": "_optimizer",
    "PrivateTrainer": "_trainer",
    "ProgressLine": "_progress_line",
    "RunError": "_run",
    "TorchNoiseStream": "_torch_noise",
    "load_checkpoint": "_checkpoint",
    "make_private": "_private",
    "per_example_loss": "_losses",
    "save_checkpoint": "_checkpoint",
}


_PACKAGES = {
    "torch": "'mmcc[train]'",
    "opacus": "'mmcc[train]'",
    "transformers": "transformers accelerate",
    "lightning": "lightning",
}
"""Packages that the training parts need, and what to install for each."""


class MissingPackageError(MmccError, ImportError):
    """A package that is needed is not installed."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'mmcc.training' has no attribute {name!r}")
    try:
        module = import_module(f"mmcc.training.{_LATER[name]}")
    except ModuleNotFoundError as problem:
        package = (problem.name or "").partition(".")[0]
        if package not in _PACKAGES:
            raise
        raise MissingPackageError(
            f"mmcc.training.{name} needs {problem.name}, which is not installed: "
            f"pip install {_PACKAGES[package]}."
        ) from None
    value = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
