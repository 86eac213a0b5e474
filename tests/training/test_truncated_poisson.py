"""Claim: batches of truncated Poisson sampling are cut by their law and padded by nobody."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from oracles.whole_data_sets import batches
from scipy.stats import chi2

from mmcc import strategies
from mmcc.errors import SamplingError
from mmcc.sampling import Poisson, TruncatedPoisson
from mmcc.training._participants import Participants

EXAMPLES, STEPS = 30, 7
SCHEME = TruncatedPoisson(0.3, 9, EXAMPLES)


def test_whole_batches_have_the_law_written_out():
    """Chi-square over all batches of 5 examples; drawn in 2000 steps."""
    scheme, steps = TruncatedPoisson(0.4, 2, 5), 2000
    drawn = Participants(scheme, steps, 5, seed=3)
    seen = Counter(tuple(drawn.at(step).tolist()) for step in range(steps))
    law = batches(5, 0.4, 2)
    assert set(seen) <= set(law)
    statistic = sum((seen[batch] - steps * p) ** 2 / (steps * p) for batch, p in law.items())
    assert 1e-4 < chi2.sf(statistic, len(law) - 1) < 1 - 1e-4


def test_steps_are_independent_and_examples_alike():
    """Pairs of neighbouring steps: each example's counts, by their law, within 5 deviations."""
    scheme, steps = TruncatedPoisson(0.4, 2, 5), 2000
    drawn = Participants(scheme, steps, 5, seed=4)
    table = np.array([np.isin(np.arange(5), drawn.at(step)) for step in range(steps)])
    rate = scheme.rate(steps)
    truth = sum(p * len(batch) for batch, p in batches(5, 0.4, 2).items()) / 5
    assert rate == pytest.approx(truth, rel=1e-12)
    assert (abs(table.mean(axis=0) - rate) < 5 * np.sqrt(rate / steps)).all()
    both = (table[1:] & table[:-1]).mean(axis=0)
    assert (abs(both - rate**2) < 5 * rate / np.sqrt(steps)).all()


def test_one_example_is_drawn_at_the_rate_of_a_full_data_set():
    scheme = TruncatedPoisson(0.4, 2, 5)
    sets = scheme.draw(6, 20_000, np.random.default_rng(1))
    shares = np.bincount(sets.steps, minlength=6) / len(sets)
    assert (abs(shares - scheme.rate(6)) < 5 * np.sqrt(0.25 / len(sets))).all()


@pytest.mark.parametrize(("most", "count"), [(9, EXAMPLES), (30, EXAMPLES), (100, 20), (1, 1)])
def test_the_expected_batch_is_that_of_the_law(most, count):
    p = 0.3
    sizes = np.random.default_rng(2).binomial(count, p, 10**6)
    expected = TruncatedPoisson(p, most, EXAMPLES).expected_batch(STEPS, count)
    assert expected == pytest.approx(np.minimum(sizes, most).mean(), rel=5e-3)


def test_a_batch_that_is_not_full_is_that_of_poisson_sampling():
    cut, whole = (Participants(scheme, 300, EXAMPLES, seed=5) for scheme in (SCHEME, Poisson(0.3)))
    sizes = [whole.at(step).size for step in range(300)]
    assert min(sizes) < 9 < max(sizes)
    for step, size in enumerate(sizes):
        assert set(cut.at(step)) <= set(whole.at(step))
        assert cut.at(step).size == min(size, 9)


def test_a_larger_data_set_is_refused():
    with pytest.raises(SamplingError, match=r"at most 30.*Use examples=31"):
        Participants(SCHEME, STEPS, 31)
    with pytest.raises(SamplingError, match="at most 30"):
        SCHEME.expected_batch(STEPS, 31)


@pytest.mark.parametrize(
    "wrong", [{"probability": 0}, {"probability": 1.1}, {"largest_batch": 0}, {"examples": 0.5}]
)
def test_wrong_arguments_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        TruncatedPoisson(**{"probability": 0.1, "largest_batch": 3, "examples": 9, **wrong})


# --------------------------------------------------------------------- batches of a fixed shape

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from cases.private import (  # noqa: E402
    FEATURES,
    backward,
    data,
    linear,
    looked_at,
    parameters,
    private,
    train,
)
from torch import nn  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402

hooked = pytest.mark.filterwarnings("ignore:Full backward hook")


def clipped_step(module, inputs, labels, clip, divisor, rate):
    """One step without noise, example by example, by plain autograd."""
    total = [torch.zeros_like(p) for p in module.parameters()]
    for row, label in zip(inputs, labels, strict=True):
        loss = nn.functional.cross_entropy(module(row[None]), label[None])
        gradients = torch.autograd.grad(loss, list(module.parameters()))
        norm = torch.cat([g.reshape(-1) for g in gradients]).norm()
        for sum_, g in zip(total, gradients, strict=True):
            sum_ += g * min(1.0, clip / float(norm))
    with torch.no_grad():
        for p, sum_ in zip(module.parameters(), total, strict=True):
            p -= rate * sum_ / divisor


@hooked
@pytest.mark.parametrize("mode", ["hooks", "functorch", "ghost"])
@pytest.mark.parametrize("physical", [None, 4])
def test_padding_moves_nothing(mode, physical):
    """With next to no noise: parameters are those of the real members alone."""
    module, optimizer, loader = private(
        sampling=SCHEME,
        strategy=strategies.identity(STEPS),
        sigma=1e-9,
        max_grad_norm=0.4,
        physical_batch_size=physical,
        grad_sample_mode=mode,
    )
    train(module, optimizer, loader)
    reference, who = linear(), Participants(SCHEME, STEPS, EXAMPLES, seed=11)
    inputs, labels = data().tensors
    for step in range(STEPS):
        members = torch.from_numpy(who.at(step).copy())
        clipped_step(reference, inputs[members], labels[members], 0.4, who.expected, 0.5)
    for found, truth in zip(parameters(module), reference.parameters(), strict=True):
        torch.testing.assert_close(found, truth.detach(), rtol=1e-6, atol=1e-6)


@hooked
@pytest.mark.parametrize("physical", [None, 4, 100])
def test_every_batch_has_the_same_shape_and_zeros_at_its_end(physical):
    _, _, loader = private(sampling=SCHEME, physical_batch_size=physical)
    rows = min(9, physical or 9)
    who = Participants(SCHEME, STEPS, EXAMPLES, seed=11)
    inputs, _ = data().tensors
    found = looked_at(loader)
    assert {batch[0].shape for batch in found} == {(rows, FEATURES)}
    assert {batch[1].shape for batch in found} == {(rows,)}
    real = torch.cat([batch[0][batch[0].any(dim=1)] for batch in found])
    members = np.concatenate([who.at(step) for step in range(STEPS)])
    assert torch.equal(real, inputs[torch.from_numpy(members)])
    assert all(not batch[0][int(batch[0].any(dim=1).sum()) :].any() for batch in found)


@hooked
def test_an_empty_batch_is_padding_alone():
    _, _, loader = private(sampling=TruncatedPoisson(1e-9, 3, EXAMPLES))
    assert all(
        batch[0].shape == (3, FEATURES) and not batch[0].any() for batch in looked_at(loader)
    )


class DividesByItsNorm(nn.Module):
    """Gradients of a row of zeros are not numbers."""

    def __init__(self):
        super().__init__()
        self.inner = linear()

    def forward(self, inputs):
        return self.inner(inputs / inputs.norm(dim=1, keepdim=True))


@hooked
@pytest.mark.parametrize("clipping", ["flat", "ghost", "per-layer", "automatic"])
def test_padding_without_a_gradient_counts_as_nothing(clipping):
    module, optimizer, loader = private(
        DividesByItsNorm(),
        sampling=TruncatedPoisson(1e-9, 3, EXAMPLES),
        sigma=1e-15,
        clipping=clipping,
    )
    before = parameters(module)
    for batch in loader:
        optimizer.zero_grad()
        backward(module, batch)
        optimizer.step()
    for found, was in zip(parameters(module), before, strict=True):
        torch.testing.assert_close(found, was, rtol=0, atol=1e-6)


@hooked
def test_a_training_run_has_the_amplified_guarantee():
    scheme = TruncatedPoisson(0.05, 12, EXAMPLES)
    _, optimizer, _ = private(sampling=scheme, sigma=2.0)
    plain = private(sampling=scheme, sigma=2.0, method="unamplified")[1]
    assert optimizer.guarantee.epsilon < 0.5 * plain.guarantee.epsilon
    assert optimizer.guarantee.adaptive
    assert optimizer.guarantee.setting == ""


@hooked
def test_training_refuses_more_examples():
    with pytest.raises(SamplingError, match="at most 30"):
        private(
            dataset=TensorDataset(*(torch.cat([part, part]) for part in data().tensors)),
            sampling=SCHEME,
        )
