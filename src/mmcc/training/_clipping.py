"""How an example's gradient is bounded: as a whole, layer by layer, or by normalising it.

In: the law of clipping, and norms of examples' gradients.  Out: the factors by which they are
multiplied before they are added up.
Rounding: where the norm of the whole follows from those of layers, it is rounded up.  Norms get a
stabiliser, as in Opacus, so that clipped gradients are a little shorter than the clip norm.

Whatever the law, what an example adds to the sum has at most the norm c that noise is in units of:

- flat: g min(1, c / |g|), over all parameters together;
- per-layer: g_l min(1, c_l / |g_l|) for each layer l; the whole has at most the norm
  sqrt(sum_l c_l^2) = c;
- automatic (Bu et al. 2023): c g / (|g| + gamma), with a public constant gamma.

How norms come about (`mmcc.training._example_gradients`) is another question.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mmcc.errors import MethodError, ParameterError, real, shown, suggestion

if TYPE_CHECKING:
    from torch import Tensor

FLAT, GHOST, PER_LAYER, AUTOMATIC = CLIPPINGS = ("flat", "ghost", "per-layer", "automatic")
"""What make_private takes: ghost is the law of flat, found without per-example gradients."""
LAWS = (FLAT, PER_LAYER, AUTOMATIC)
STABILISER = 1e-6
"""Added to norms."""
GAMMA = 0.01
LARGEST = 1e30
"""Of clip norms and noise levels: beyond it single precision ends."""
MOST_LISTED = 4


@dataclass(frozen=True, slots=True)
class Clipping:
    """A law of clipping with its public constants."""

    law: str = FLAT
    gamma: float | None = None
    """Of automatic clipping."""
    norms: tuple[tuple[str, float], ...] = ()
    """Of clipping by layers: where a parameter's name begins, and the clip norm of what does."""

    def __post_init__(self) -> None:
        if self.law not in LAWS:
            raise MethodError(f"unknown law of clipping {self.law!r}; {suggestion(self.law, LAWS)}")
        if (self.law == AUTOMATIC) is not (self.gamma is not None):
            raise ParameterError(
                f"gamma is the constant of clipping={AUTOMATIC!r}, and of no other."
            )
        if (self.law == PER_LAYER) is not bool(self.norms):
            raise ParameterError(f"clipping={PER_LAYER!r} has a norm for each layer, others none.")
        if self.gamma is not None:
            # With less than the stabiliser, what is divided by may be rounding errors alone.
            gamma = real("gamma", self.gamma, STABILISER, LARGEST, closed="l")
            object.__setattr__(self, "gamma", gamma)
        for name, norm in self.norms:
            real(f"the clip norm of {name!r}", norm, 0, LARGEST)

    def __str__(self) -> str:
        if self.law == PER_LAYER:
            return f"{self.law}({dict(self.norms)!r})"
        return self.law if self.gamma is None else f"{self.law}({self.gamma!r})"

    @classmethod
    def of(cls, text: str) -> Clipping:
        """The law that is written so."""
        law, _, rest = text.partition("(")
        try:
            constant = ast.literal_eval(rest.removesuffix(")")) if rest else None
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            constant = None
        if isinstance(constant, Mapping):
            return cls(law, norms=tuple(constant.items()))
        return cls(law, constant)

    def check(self, max_grad_norm: float) -> None:
        """Refuse layers whose norms are together more than the one that noise is made for."""
        together = math.hypot(*(norm for _, norm in self.norms))
        if not together <= max_grad_norm * (1 + 2**-40):
            raise ParameterError(
                f"the clip norms of the layers amount to {together:.9g}, and max_grad_norm is "
                f"{max_grad_norm:.9g}: noise would be made for less than an example can do. Use "
                "the root of the sum of their squares."
            )

    def in_short(self) -> str:
        """The law in a few words."""
        if self.law == PER_LAYER:
            listed = ", ".join(f"{norm:g} for {name!r}" for name, norm in self.norms[:MOST_LISTED])
            left = len(self.norms) - MOST_LISTED
            return f"{self.law}: {listed}{f' and {left} more' if left > 0 else ''}"
        return self.law if self.gamma is None else f"{self.law}, gamma {self.gamma:g}"

    def parts(self, names: Sequence[str]) -> list[int]:
        """In which part of the gradient each parameter is: those of one have one norm."""
        if self.law != PER_LAYER:
            return [0] * len(names)
        places = {prefix: place for place, (prefix, _) in enumerate(self.norms)}
        return [places[_longest(name, places)] for name in names]

    def factors(self, squares: Tensor, max_grad_norm: float) -> Tensor:
        """What an example's gradient is multiplied by: a row an example, a column a part.

        `squares` are the squared norms of the parts.  A gradient that is not finite has no norm,
        and its factors mean nothing.
        """
        norms = squares.sqrt()
        if self.law == AUTOMATIC:
            assert self.gamma is not None
            return max_grad_norm / (norms + self.gamma)
        bounds: Any = max_grad_norm
        if self.law == PER_LAYER:
            bounds = squares.new_tensor([norm for _, norm in self.norms])
        found: Tensor = (bounds / (norms + STABILISER)).clamp(max=1.0)
        return found


def clipping_of(
    clipping: object,
    max_grad_norm: float | Mapping[str, float] | Sequence[float],
    gamma: float | None,
    names: Sequence[str],
) -> tuple[Clipping, float]:
    """The law that was asked for and its clip norm, for the trained parameters of these names.

    The names are in the module's order.  Only clipping by layers takes several norms.
    """
    if not isinstance(clipping, str) or clipping not in CLIPPINGS:
        raise MethodError(f"unknown clipping {shown(clipping)}; {suggestion(clipping, CLIPPINGS)}")
    law = FLAT if clipping == GHOST else clipping
    several = isinstance(max_grad_norm, Mapping | Sequence) and not isinstance(max_grad_norm, str)
    if law == PER_LAYER:
        if gamma is not None:
            raise ParameterError(
                f"gamma is the constant of clipping={AUTOMATIC!r}, not of {law!r}."
            )
        norms = _norms(max_grad_norm, names)
        whole: Any = max_grad_norm  # of which each layer has its share
        if several:
            whole = math.hypot(*(norm for _, norm in norms)) * (1 + 2**-50)
        return Clipping(law, norms=norms), real("max_grad_norm", whole, 0, LARGEST)
    if law == AUTOMATIC and gamma is None:
        gamma = GAMMA
    if several:
        raise ParameterError(
            f"several clip norms are for clipping={PER_LAYER!r}; {clipping!r} has one for all "
            "parameters together."
        )
    return Clipping(law, gamma), real("max_grad_norm", max_grad_norm, 0, LARGEST)


def _norms(
    given: float | Mapping[str, float] | Sequence[float], names: Sequence[str]
) -> tuple[tuple[str, float], ...]:
    """The norms of layers as they are given: one for all, by names, or one after another."""
    layers = list(dict.fromkeys(name.rpartition(".")[0] for name in names))
    if isinstance(given, Mapping):
        used = {_longest(name, given) for name in names}
        unused = [name for name in given if name not in used]
        if unused:
            raise ParameterError(
                f"max_grad_norm has a clip norm for {shown(unused[0])}, and no trained parameter "
                "has a name that begins so and is not in a part of its own."
            )
        return tuple(
            (name, real(f"the clip norm of {name!r}", c, 0, LARGEST)) for name, c in given.items()
        )
    if isinstance(given, Sequence) and not isinstance(given, str):
        if len(given) != len(layers):
            raise ParameterError(
                f"max_grad_norm has {len(given)} clip norms for {len(layers)} layers with trained "
                f"parameters (first {layers[0]!r}): give one for each, or a mapping from the "
                "beginnings of parameters' names."
            )
        listed = (real("a clip norm", norm, 0, LARGEST) for norm in given)
        return tuple(zip(layers, listed, strict=True))
    total = real("max_grad_norm", given, 0, LARGEST)
    share = total / math.sqrt(len(layers)) * (1 - 2**-50)
    return tuple((name, share) for name in layers)


def _longest(name: str, prefixes: Mapping[str, object]) -> str:
    """The longest of the prefixes, in whole words, that a parameter's name begins with."""
    found = name
    while found not in prefixes:
        if not found:
            raise ParameterError(
                f"max_grad_norm has no clip norm for the parameter {name!r}: every trained "
                "parameter belongs to a part. Give one for '', which is whatever is left."
            )
        found = found.rpartition(".")[0]
    return found
