"""How an example's gradient is bounded: as a whole, layer by layer, or by normalising it.

In: the clipping rule, and norms of examples' gradients.  Out: the factors by which the gradients
are multiplied before they are summed.
Rounding: where the norm of the whole gradient follows from those of layers, it is rounded up.
Norms get a stabiliser, as in Opacus, so clipped gradients are a little shorter than the clip norm.

Under every rule, what an example adds to the sum has at most the norm c, the unit of the noise:

- flat: g min(1, c / |g|), over all parameters together;
- per-layer: g_l min(1, c_l / |g_l|) for each layer l; the whole has at most the norm
  sqrt(sum_l c_l^2) = c;
- automatic (Bu et al. 2023): c g / (|g| + gamma), with a public constant gamma.

How the norms are found is the subject of `mmcc.training._example_gradients`.
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
"""What make_private accepts: ghost is the rule of flat, without per-example gradients."""
LAWS = (FLAT, PER_LAYER, AUTOMATIC)
STABILISER = 1e-6
"""Added to norms."""
GAMMA = 0.01
LARGEST = 1e30
"""The largest clip norm and noise level: single precision ends beyond it."""
MOST_LISTED = 4


@dataclass(frozen=True, slots=True)
class Clipping:
    """A clipping rule with its public constants."""

    law: str = FLAT
    gamma: float | None = None
    """The constant of automatic clipping; None for other rules."""
    norms: tuple[tuple[str, float], ...] = ()
    """For per-layer clipping: prefixes of parameter names, and the clip norm of each."""

    def __post_init__(self) -> None:
        if self.law not in LAWS:
            raise MethodError(f"unknown clipping rule {self.law!r}; {suggestion(self.law, LAWS)}")
        if (self.law == AUTOMATIC) is not (self.gamma is not None):
            raise ParameterError(
                f"gamma is the constant of clipping={AUTOMATIC!r}; no other rule has one."
            )
        if (self.law == PER_LAYER) is not bool(self.norms):
            raise ParameterError(f"clipping={PER_LAYER!r} has a norm for each layer, others none.")
        if self.gamma is not None:
            # Below the stabiliser, the divisor could consist of rounding errors alone.
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
        """The rule from its text, as `str` writes it."""
        law, _, rest = text.partition("(")
        try:
            constant = ast.literal_eval(rest.removesuffix(")")) if rest else None
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            constant = None
        if isinstance(constant, Mapping):
            return cls(law, norms=tuple(constant.items()))
        return cls(law, constant)

    def check(self, max_grad_norm: float) -> None:
        """Refuse layers whose combined norm exceeds the one that the noise is made for."""
        together = math.hypot(*(norm for _, norm in self.norms))
        if not together <= max_grad_norm * (1 + 2**-40):
            raise ParameterError(
                f"the clip norms of the layers amount to {together:.9g}, but max_grad_norm is "
                f"{max_grad_norm:.9g}: the noise would cover less than an example can do. Use the "
                "square root of the sum of their squares."
            )

    def in_short(self) -> str:
        """The rule in a few words."""
        if self.law == PER_LAYER:
            listed = ", ".join(f"{norm:g} for {name!r}" for name, norm in self.norms[:MOST_LISTED])
            left = len(self.norms) - MOST_LISTED
            return f"{self.law}: {listed}{f' and {left} more' if left > 0 else ''}"
        return self.law if self.gamma is None else f"{self.law}, gamma {self.gamma:g}"

    def parts(self, names: Sequence[str]) -> list[int]:
        """The index of the part of the gradient that each parameter is in; a part has one norm."""
        if self.law != PER_LAYER:
            return [0] * len(names)
        places = {prefix: place for place, (prefix, _) in enumerate(self.norms)}
        return [places[_longest(name, places)] for name in names]

    def factors(self, squares: Tensor, max_grad_norm: float) -> Tensor:
        """The factors for examples' gradients: a row an example, a column a part.

        `squares` are the squared norms of the parts.  A gradient that is not finite has no norm,
        and its factors are meaningless.
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
    """The clipping rule that was asked for, and its clip norm, for the named trained parameters.

    The names are in the module's order.  Only per-layer clipping takes several norms.
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
        whole: Any = max_grad_norm  # each layer gets a share of it
        if several:
            whole = math.hypot(*(norm for _, norm in norms)) * (1 + 2**-50)
        return Clipping(law, norms=norms), real("max_grad_norm", whole, 0, LARGEST)
    if law == AUTOMATIC and gamma is None:
        gamma = GAMMA
    if several:
        raise ParameterError(
            f"several clip norms are for clipping={PER_LAYER!r}; {clipping!r} takes one for all "
            "parameters together."
        )
    return Clipping(law, gamma), real("max_grad_norm", max_grad_norm, 0, LARGEST)


def _norms(
    given: float | Mapping[str, float] | Sequence[float], names: Sequence[str]
) -> tuple[tuple[str, float], ...]:
    """The norms of layers, given as one for all, by name, or in order."""
    layers = list(dict.fromkeys(name.rpartition(".")[0] for name in names))
    if isinstance(given, Mapping):
        used = {_longest(name, given) for name in names}
        unused = [name for name in given if name not in used]
        if unused:
            raise ParameterError(
                f"max_grad_norm has a clip norm for {shown(unused[0])}, but no trained parameter's "
                "name starts with it (unless a longer prefix applies). Leave it out."
            )
        return tuple(
            (name, real(f"the clip norm of {name!r}", c, 0, LARGEST)) for name, c in given.items()
        )
    if isinstance(given, Sequence) and not isinstance(given, str):
        if len(given) != len(layers):
            raise ParameterError(
                f"max_grad_norm has {len(given)} clip norms for {len(layers)} layers with trained "
                f"parameters (first {layers[0]!r}): give one for each, or a mapping from prefixes "
                "of parameter names."
            )
        listed = (real("a clip norm", norm, 0, LARGEST) for norm in given)
        return tuple(zip(layers, listed, strict=True))
    total = real("max_grad_norm", given, 0, LARGEST)
    share = total / math.sqrt(len(layers)) * (1 - 2**-50)
    return tuple((name, share) for name in layers)


def _longest(name: str, prefixes: Mapping[str, object]) -> str:
    """The longest of the prefixes of a parameter's name, in whole words."""
    found = name
    while found not in prefixes:
        if not found:
            raise ParameterError(
                f"max_grad_norm has no clip norm for the parameter {name!r}: every trained "
                "parameter needs one. Give a norm for '', which stands for all that remain."
            )
        found = found.rpartition(".")[0]
    return found
