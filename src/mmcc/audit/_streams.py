"""Which noise stream is played: by default the one whose noise training adds.

In: a name, a class, or nothing.  Out: a function that makes the stream, and its name.
torch is imported when its stream is chosen, and not before.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec

from mmcc.audit._play import MakeNoise
from mmcc.errors import ParameterError, suggestion
from mmcc.training import MissingPackageError
from mmcc.training._noise import NoiseStream
from mmcc.training._randomness import DEFAULT, normals

TORCH, NUMPY = "torch", "numpy"
NAMES = (TORCH, NUMPY)
DESCRIPTIONS = {
    TORCH: "TorchNoiseStream, float32: what make_private adds",
    NUMPY: "NoiseStream, float64: not the object that make_private adds",
}
OWN = "its own"
"""The generator of a stream that was given as a class."""


@dataclass(frozen=True, slots=True)
class Source:
    """A noise stream and its name."""

    make: MakeNoise
    stream: str
    generator: str


def chosen(stream: MakeNoise | str | None, generator: str | None) -> Source:
    """The stream of that name or class; by default torch's, or numpy's if torch is missing."""
    if callable(stream):
        if generator is not None:
            raise ParameterError(
                "generator belongs to the streams 'torch' and 'numpy'; a stream given as a class "
                "or function brings its own. Leave generator out."
            )
        return Source(stream, getattr(stream, "__qualname__", type(stream).__qualname__), OWN)
    if stream is None:
        stream = TORCH if find_spec("torch") is not None else NUMPY
    if stream not in NAMES:
        raise ParameterError(f"unknown stream {stream!r}: {suggestion(stream, NAMES)}")
    generator = DEFAULT if generator is None else generator
    normals(0, generator)  # refuses an unknown name or a missing package now
    kind: MakeNoise = partial(
        _torch_stream() if stream == TORCH else NoiseStream, generator=generator
    )
    return Source(kind, stream, generator)


def described(stream: str) -> str:
    """A description of the stream of a result."""
    return f"{stream} ({DESCRIPTIONS[stream]})" if stream in NAMES else stream


def _torch_stream() -> type:
    try:
        from mmcc.audit._torch_stream import SinglePrecision
    except ModuleNotFoundError as problem:
        if (problem.name or "").partition(".")[0] != "torch":
            raise
        raise MissingPackageError(
            "the stream 'torch', which training uses, needs torch, which is not installed: "
            "pip install 'mmcc[train]', or audit the stream 'numpy'."
        ) from None
    return SinglePrecision
