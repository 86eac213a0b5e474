"""Samplers of jax_privacy as schemes, and back, only if both draw the same.

In: a sampler.  Out: the scheme with its law of participation; docs/from-jax-privacy.md explains
why, sampler by sampler.  A sampler without such a scheme is refused, never approximated.

Their seed is as secret as the data, and batches must be used as they come: reordering them, or
keeping the last one only if it is full, changes the sampling.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mmcc.bridge.jax_privacy._library import their
from mmcc.errors import SamplingError, shown, whole
from mmcc.sampling import (
    BallsInBins,
    CyclicPoisson,
    MinSeparation,
    Poisson,
    Scheme,
    TruncatedPoisson,
)
from mmcc.sampling._participations import MAX_STEPS
from mmcc.sampling._scheme import checked_scheme

REFUSED = {
    "FixedBatchSampling": (
        "batches have a fixed size, so an example that is drawn takes the place of another: "
        "nothing is proven for correlated noise. For independent noise use "
        "mmcc.mixtures.fixed_batches, which has its own adjacency; otherwise Poisson sampling."
    ),
    "UserSelectionStrategy": (
        "users are drawn, not examples. Pass its base_strategy: then the guarantee is for a user, "
        "whose batch must be clipped as a whole."
    ),
}
"""Why a sampler is refused, and what to do instead."""


def scheme_from(sampler: Any, examples: int | None = None) -> Scheme:
    """The scheme with which a sampler of jax_privacy draws.

    `examples` is a bound on the size of the data set, needed only if batches are cut at a size.
    """
    module, kind = their("batch_selection"), type(sampler).__name__
    known = type(sampler) is getattr(module, kind, None)
    if known and kind in REFUSED:
        raise SamplingError(f"{kind}: {REFUSED[kind]}")
    if not known or kind not in _READERS:
        raise SamplingError(
            f"need one of jax_privacy's samplers {', '.join(_READERS)}, got {shown(sampler)}. A "
            "user-defined class may draw anything: describe it as a scheme of mmcc.sampling."
        )
    whole("iterations", sampler.iterations, 1, MAX_STEPS)
    scheme = _READERS[kind](sampler, examples)
    scheme.check(sampler.iterations)
    return scheme


def scheme_to(scheme: Scheme, steps: int) -> Any:
    """The sampler of jax_privacy that draws like a scheme, for `steps` steps.

    There, groups of a cyclic scheme have equal sizes, and left-over examples are never drawn.
    """
    checked_scheme(scheme)
    scheme.check(whole("steps", steps, 1, MAX_STEPS))
    given = dict(scheme.arguments())
    found = _WRITERS.get(scheme.name)
    if found is None:
        raise SamplingError(
            f"jax_privacy 2.0 has no sampler that draws like {scheme!r}. Draw its batches with "
            "mmcc.training.Participants, which needs neither torch nor jax."
        )
    name, arguments = found(given)
    return getattr(their("batch_selection"), name)(iterations=steps, **arguments)


def _cyclic(sampler: Any, examples: int | None) -> Scheme:
    """Poisson sampling, in turns if there are several groups.

    Groups drawn independently with probability 1 are bins: an example is in one of them, all
    equally likely, and takes part whenever it is that group's turn.
    """
    groups = whole("cycle_length", sampler.cycle_length, 1, MAX_STEPS)
    p, most = sampler.sampling_prob, sampler.truncated_batch_size
    if most is not None:
        if groups > 1:
            raise SamplingError(
                f"truncated_batch_size={most} with cycle_length={groups}: nothing is proven here "
                "for groups that take turns with batches that are cut. Use only one of them."
            )
        if examples is None:
            raise SamplingError(
                f"truncated_batch_size={most}: how often a batch is cut depends on how many "
                "examples there are. Pass examples, a bound on the size of the data set."
            )
        return TruncatedPoisson(p, most, examples)
    if groups == 1:
        return Poisson(p)
    independent = their("batch_selection").PartitionType.INDEPENDENT
    if p == 1 and sampler.partition_type is independent and sampler.iterations % groups == 0:
        return BallsInBins(groups)
    return CyclicPoisson(p, groups)


def _min_separation(sampler: Any) -> Scheme:
    """A warm start with probability 1 is balls-in-bins: all first steps are equally likely."""
    if sampler.truncated_batch_size is not None:
        raise SamplingError(
            f"truncated_batch_size={sampler.truncated_batch_size}: nothing is proven here for "
            "batches that are cut with a minimum separation. Leave it out, and pad batches instead."
        )
    separation = whole("min_sep", sampler.min_sep, 1, MAX_STEPS)
    if separation == 1:
        return Poisson(sampler.sampling_prob)
    bins = sampler.sampling_prob == 1 and sampler.iterations % separation == 0
    if bins and sampler.warm_start:
        return BallsInBins(separation)
    return MinSeparation(sampler.sampling_prob, separation, bool(sampler.warm_start))


_READERS: dict[str, Callable[[Any, int | None], Scheme]] = {
    "CyclicPoissonSampling": _cyclic,
    "BallsInBinsSampling": lambda sampler, _: BallsInBins(sampler.cycle_length),
    "BMinSepSampling": lambda sampler, _: _min_separation(sampler),
}


def _written_min_separation(given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Without a pause it is Poisson sampling, because their sampler cannot start warm then."""
    if given["separation"] == 1:
        return "CyclicPoissonSampling", {"sampling_prob": given["probability"]}
    return "BMinSepSampling", {
        "sampling_prob": given["probability"],
        "min_sep": given["separation"],
        "warm_start": given.get("warm_start", False),
    }


_WRITERS: dict[str, Callable[[dict[str, Any]], tuple[str, dict[str, Any]]]] = {
    "poisson": lambda given: ("CyclicPoissonSampling", {"sampling_prob": given["probability"]}),
    "cyclic-poisson": lambda given: (
        "CyclicPoissonSampling",
        {"sampling_prob": given["probability"], "cycle_length": given["separation"]},
    ),
    "truncated-poisson": lambda given: (
        "CyclicPoissonSampling",
        {
            "sampling_prob": given["probability"],
            "truncated_batch_size": given["largest_batch"],
        },
    ),
    "min-separation": _written_min_separation,
    "balls-in-bins": lambda given: ("BallsInBinsSampling", {"cycle_length": given["bins"]}),
}
"""By the scheme's name, the class there and its arguments except the iterations."""
