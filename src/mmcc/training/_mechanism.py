"""The mechanism of a training run: public facts, fixed before the first step.

In: strategy, sampling scheme, noise level, decoder, data size, clip norm.  Out: `Mechanism`, its
fingerprint, and the `Guarantee` that the accounting gives for the same objects.
Rounding: that of the accounting; nothing is computed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mmcc._methods import TIGHT, UNAMPLIFIED, VERIFY
from mmcc.errors import (
    MethodError,
    ParameterError,
    SamplingError,
    StrategyError,
    real,
    suggestion,
    whole,
)
from mmcc.sampling import Scheme
from mmcc.sampling._registry import identity_of
from mmcc.sampling._scheme import checked_scheme
from mmcc.strategies._base import FULL, HONAKER, Strategy, checked_strategy
from mmcc.strategies._decoders import decoder_name
from mmcc.strategies._records import strategy_digest
from mmcc.training._clipping import LARGEST, Clipping
from mmcc.training._participants import MAX_EXAMPLES

if TYPE_CHECKING:
    from mmcc.accounting._guarantee import Guarantee
    from mmcc.accounting._parallel import Progress

REDUCTIONS = ("mean", "sum")
DIGEST = " with digest "
"""Separates the description of a strategy from the digest of its numbers."""
AS_A_WHOLE = Clipping()


@dataclass(frozen=True, slots=True)
class Mechanism:
    """What a run does to the data: sum_i clip(g_i) over the participants of a step, plus noise.

    The noise of step t is `max_grad_norm` times row t of sigma C^-1 z (for trees, of the decoder's
    noise).  The sum is divided by `expected_batch_size`, a public number, if the loss is a mean.
    """

    strategy: Strategy
    sampling: Scheme
    sigma: float
    examples: int
    max_grad_norm: float
    decoder: str | None = None
    loss_reduction: str = "mean"
    clipping: Clipping = AS_A_WHOLE

    def __post_init__(self) -> None:
        check_trainable(self.strategy, self.sampling)
        decoder = decoder_name(self.strategy, self.decoder)
        if decoder == FULL:
            raise MethodError(
                f"decoder={FULL!r} uses releases of later steps, which no step of a training run "
                f"can know. Use decoder={HONAKER!r}."
            )
        if self.loss_reduction not in REDUCTIONS:
            raise ParameterError(
                f"unknown loss_reduction {self.loss_reduction!r}; "
                f"{suggestion(self.loss_reduction, REDUCTIONS)}"
            )
        settled = {
            "decoder": decoder,
            "sigma": real("sigma", self.sigma, 0, LARGEST),
            "examples": whole("examples", self.examples, 1, MAX_EXAMPLES),
            "max_grad_norm": real("max_grad_norm", self.max_grad_norm, 0, LARGEST),
        }
        for name, value in settled.items():
            object.__setattr__(self, name, value)
        self.clipping.check(self.max_grad_norm)

    @property
    def steps(self) -> int:
        """The number of steps that are accounted for."""
        return self.strategy.steps

    @property
    def expected_batch_size(self) -> float:
        """The mean number of participants in a step: public, whatever a step really draws."""
        expected = self.sampling.expected_batch(self.steps, self.examples)
        return real("expected_batch", expected, 0, self.examples, closed="h")

    def fingerprint(self) -> dict[str, str]:
        """Everything that defines this mechanism, to the last bit."""
        digest = strategy_digest(self.strategy)[:16]  # the repr of C may not show all of it
        law = {} if self.clipping == AS_A_WHOLE else {"clipping": str(self.clipping)}
        return {
            "strategy": f"{self.strategy!r}{DIGEST}{digest}",
            "sampling": identity_of(self.sampling),
            "sigma": repr(self.sigma),
            "decoder": str(self.decoder),
            "examples": str(self.examples),
            "max_grad_norm": repr(self.max_grad_norm),
            "loss_reduction": self.loss_reduction,
            **law,
        }

    def differences(self, fingerprint: Mapping[str, str]) -> list[str]:
        """What differs, each in a few words; strategies are compared by digest."""
        ours = self.fingerprint()
        names = dict.fromkeys((*ours, *fingerprint))
        return [
            f"{name} was {fingerprint.get(name)} and is {ours.get(name)}"
            for name in names
            if not _same(name, fingerprint.get(name), ours.get(name))
        ]


def _same(name: str, theirs: str | None, ours: str | None) -> bool:
    """Versions may describe a strategy differently, but agree on the digest of its numbers."""
    if name == "strategy" and theirs and ours and DIGEST in theirs:
        return theirs.rpartition(DIGEST)[2] == ours.rpartition(DIGEST)[2]
    return theirs == ours


def check_trainable(strategy: Strategy, sampling: Scheme) -> None:
    """Refuse strategies that cannot be trained with, as gradients depend on earlier releases."""
    checked_strategy(strategy)
    checked_scheme(sampling).check_drawn()
    if not strategy.adaptive:
        raise StrategyError(
            f"{strategy!r} is for inputs that are fixed in advance, but gradients depend on what "
            "was released before them. Use a matrix whose rows are in a causal order."
        )
    sampling.check(strategy.steps)


def declared_strategy(strategy: Strategy, sampling: Scheme, stop_after: int | None) -> Strategy:
    """The strategy of a run: a prefix if the run was declared to end after `stop_after` steps."""
    check_trainable(strategy, sampling)
    if stop_after is None:
        return strategy
    sampling.check_prefix(strategy.steps)
    return strategy.prefix(whole("stop_after", stop_after, 1, strategy.steps))


def amplified(strategy: Strategy, sampling: Scheme) -> bool:
    """Whether amplification is proven for training, where the other examples contribute too."""
    from mmcc.accounting import _best_bound as _best
    from mmcc.accounting import _bounds  # numba takes a second

    problem = _bounds.Problem(strategy, sampling, 1.0)
    return not sampling.setting and bool(_best.amplified(problem))


def training_method(strategy: Strategy, sampling: Scheme, method: str) -> str:
    """The accounting method that is valid for training: unamplified where no other is proven."""
    from mmcc.accounting._bounds import (
        PLAIN,  # numba takes a second
    )
    from mmcc.accounting._questions import check_method

    if method == VERIFY:  # which itself refuses what is not proven for training
        return method
    check_method(method)
    if method == PLAIN.name or amplified(strategy, sampling):
        return method
    if method != TIGHT:
        raise MethodError(
            f"method {method!r} proves nothing for training with {sampling!r}, where the other "
            f"examples contribute too. Use method={UNAMPLIFIED!r}, or leave it out."
        )
    return PLAIN.name


def certify(
    strategy: Strategy,
    sampling: Scheme,
    *,
    delta: float,
    method: str,
    sigma: float | None = None,
    epsilon: float | None = None,
    verify: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Guarantee:
    """The guarantee of all steps: of a noise level, or with the least noise for an epsilon.

    `verify` holds options of `mmcc.verify`, for the method of that name.
    """
    from mmcc.accounting import _questions as solve  # numba takes a second

    proven = training_method(strategy, sampling, method)
    how: dict[str, Any] = {"delta": delta, "method": proven, "progress": progress}
    if proven == VERIFY:
        if epsilon is None:
            raise MethodError(
                f"method={VERIFY!r} needs a target: give epsilon, for which the noise is found, "
                "not sigma."
            )
        return solve.sigma(strategy, sampling, epsilon=epsilon, verify=verify, **how)
    if sigma is not None:
        found = solve.epsilon(strategy, sampling, sigma=sigma, **how)
    elif epsilon is not None:
        found = solve.sigma(strategy, sampling, epsilon=epsilon, **how)
        if "any_sigma" in found.details:
            raise ParameterError(
                f"the probability of taking part at all, {sampling.chance(strategy.steps):.3g}, is "
                f"at most delta = {delta:g}, so any noise satisfies the target and participants "
                "would not be protected. Use a smaller delta, or give sigma."
            )
    else:
        raise ParameterError("give sigma or epsilon.")
    if not found.adaptive or found.setting:
        raise MethodError(f"method {method!r} does not hold for training: {found}.")
    if not amplified(strategy, sampling):
        why = f"no amplification is proven for training with {type(sampling).__name__}"
        return replace(found, bound=f"{found.bound} ({why})")
    return found


def spent_by(mechanism: Mechanism, guarantee: Guarantee, steps: int) -> Guarantee:
    """What a run of so many steps would have cost, had it been declared to end there.

    Under a scheme of whole epochs this is the cost of the epochs begun: their steps so far are
    post-processing of them.  For the same reason it never exceeds the cost of the whole run.
    """
    from mmcc.accounting._guarantee import CERTIFIED

    if steps == 0:
        return replace(
            guarantee, epsilon=0.0, kind=CERTIFIED, failure=0.0, bound="nothing was released"
        )
    prefix = _prefix(mechanism, steps)
    if prefix is None:
        return guarantee
    method = guarantee.method if guarantee.kind == CERTIFIED else TIGHT
    found = certify(
        prefix.strategy,
        prefix.sampling,
        delta=guarantee.delta,
        method=method,
        sigma=mechanism.sigma,
    )
    return found if found.epsilon < guarantee.epsilon else guarantee


def _prefix(mechanism: Mechanism, steps: int) -> Mechanism | None:
    """The shortest run of at least so many steps that could have been declared; None: the whole."""
    strategy, scheme = mechanism.strategy, mechanism.sampling
    try:
        scheme.check_prefix(strategy.steps)
    except SamplingError:  # a single pass over the data is a different pass if it is cut
        return None
    for count in range(steps, strategy.steps):
        try:
            scheme.check(count)
        except SamplingError:  # not a whole epoch
            continue
        return replace(mechanism, strategy=declared_strategy(strategy, scheme, count))
    return None
