"""Claim: a scheme is `draw` and `expected_batch`; estimates, certificate and training follow."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

import mmcc
from extending.exactly import Exactly
from mmcc import report, sampling, strategies
from mmcc.audit import audit
from mmcc.errors import MethodError, MmccError, ParameterError, SamplingError
from mmcc.training import Mechanism, Participants

SCHEME = Exactly(3)
TREE = strategies.binary_tree(8)


def test_its_draws_are_sets_of_that_size_and_every_set_is_as_likely():
    drawn = SCHEME.draw(5, 20_000, np.random.default_rng(3))
    sets = drawn.steps.reshape(-1, 3)
    assert (np.diff(sets, axis=1) > 0).all()
    _, counts = np.unique(sets, axis=0, return_counts=True)
    assert counts.size == math.comb(5, 3)
    assert np.abs(counts / 2000 - 1).max() < 0.15


def test_its_estimate_is_that_of_the_same_scheme_by_another_name():
    """All steps but one, with independent noise: in one step an example is absent."""
    noise = strategies.identity(4)
    ours = mmcc.estimate(noise, Exactly(1), sigma=1.0, delta=1e-3, samples=10_000)
    bins = mmcc.bracket(noise, sampling.BallsInBins(4), sigma=1.0, delta=1e-3)
    assert ours.low <= bins.upper
    assert bins.lower <= ours.high


def test_it_is_certified_without_amplification_and_nothing_more_is_claimed():
    plain = mmcc.epsilon(TREE, SCHEME, sigma=9.0, delta=1e-5, method="unamplified")
    every = mmcc.epsilon(TREE, sampling.Poisson(1.0), sigma=9.0, delta=1e-5)
    assert plain.epsilon == every.epsilon
    with pytest.raises(MethodError, match="no amplification is proven"):
        mmcc.epsilon(TREE, SCHEME, sigma=9.0, delta=1e-5)


@pytest.mark.parametrize("form", ["html", "markdown"])
def test_its_report_says_what_it_does_and_how_to_get_the_number_again(form):
    made = report.of_mechanism(TREE, SCHEME, sigma=9.0, delta=1e-5, method="unamplified")
    text = made.html() if form == "html" else made.markdown()
    assert "takes part in exactly" in text
    assert "Exactly(times=3)" in text
    assert "no command" in text
    assert "--sampling" not in text


def test_its_batches_are_its_draws():
    people = Participants(SCHEME, 8, 50, seed=1)
    batches = [people.at(step) for step in range(8)]
    assert people.expected == 50 * 3 / 8
    assert (np.bincount(np.concatenate(batches), minlength=50) == 3).all()
    assert all((np.diff(batch) > 0).all() for batch in batches)
    again = Participants(SCHEME, 8, 50, seed=2)
    again.restore(people.state())
    assert [again.at(step).tolist() for step in range(8)] == [b.tolist() for b in batches]


def test_its_audit_passes_and_catches_another_scheme():
    asked = {"sigma": 4.0, "delta": 1e-3, "runs": 4000, "seed": 3, "stream": "numpy"}
    assert audit(TREE, SCHEME, **asked).passed

    def poisson(scheme, steps, examples, seed):
        return Participants(sampling.Poisson(3 / 8), steps, examples, seed)

    assert not audit(TREE, SCHEME, participants=poisson, **asked).passed


@dataclass(frozen=True)
class Twice(Exactly):
    def draw(self, steps, count, generator, group=0):
        return sampling.Participations.from_rows(np.zeros((count, 2), np.int64))


@dataclass(frozen=True)
class Beyond(Exactly):
    def draw(self, steps, count, generator, group=0):
        return sampling.Participations.from_rows(np.full((count, 1), steps))


@dataclass(frozen=True)
class Fewer(Exactly):
    def draw(self, steps, count, generator, group=0):
        return super().draw(steps, count - 1, generator)


@dataclass(frozen=True)
class Unsorted(Exactly):
    def drawing(self, steps, examples, bits):
        return SimpleNamespace(at=lambda step: np.array([2, 1]))


@dataclass(frozen=True)
class Grouped(Exactly):
    groups = 2


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (Twice, "repeated a step"),
        (Beyond, "left that range"),
        (Fewer, "a different number of sets"),
        (Unsorted, "increasing order"),
        (Grouped, "public groups"),
    ],
)
def test_batches_that_would_not_be_sets_of_examples_are_refused(wrong, why):
    with pytest.raises(SamplingError, match=why):
        Participants(wrong(3), 8, 50, seed=1).at(0)


@pytest.mark.parametrize("wrong", [Twice, Beyond, Fewer])
def test_nothing_is_estimated_from_sets_that_are_none(wrong):
    with pytest.raises(SamplingError, match="must draw"):
        mmcc.estimate(TREE, wrong(3), sigma=4.0, delta=1e-3, samples=2000)


@pytest.mark.parametrize("expected", [0.0, -1.0, math.nan, math.inf, 51.0])
def test_an_expected_batch_that_cannot_be_is_refused(expected):
    class Scaled(Exactly):
        def expected_batch(self, steps, examples):
            return expected

    with pytest.raises(ParameterError, match="expected_batch"):
        _ = Participants(Scaled(3), 8, 50, seed=1).expected
    with pytest.raises(ParameterError, match="expected_batch"):
        _ = Mechanism(TREE, Scaled(3), 1.0, 50, 1.0).expected_batch_size


class Plain(sampling.Scheme):
    def draw(self, steps, count, generator, group=0):
        return SCHEME.draw(steps, count, generator)

    def expected_batch(self, steps, examples):
        return examples * 3 / steps


def test_a_scheme_that_cannot_be_told_from_others_is_refused():
    for ask in (
        lambda: Participants(Plain(), 8, 50, seed=1),
        lambda: mmcc.epsilon(TREE, Plain(), sigma=1.0, delta=1e-5, method="unamplified"),
    ):
        with pytest.raises(SamplingError, match="frozen dataclass"):
            ask()


@dataclass(frozen=True)
class Poisson(sampling.Scheme):
    """The same examples in every step, under a name that is taken."""

    probability: float

    def draw(self, steps, count, generator, group=0):
        rows = [np.arange(steps if here else 0) for here in generator.random(count) < 0.3]
        edges = np.cumsum([0, *map(len, rows)])
        return sampling.Participations(np.concatenate([*rows, np.empty(0, np.int64)]), edges)

    def expected_batch(self, steps, examples):
        return examples * self.probability


@dataclass(frozen=True)
class Marked(Exactly):
    marks: tuple = ()

    def __repr__(self):
        return "Marked()"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Poisson(0.3), sampling.Poisson(0.3)),
        (Marked(3, (1,)), Marked(3, (2,))),
        (Marked(3), Marked(2)),
    ],
    ids=["name", "field", "repr"],
)
def test_a_scheme_is_not_taken_for_another_that_looks_alike(one, other):
    saved = Participants(one, 8, 50, seed=1).state()
    with pytest.raises(SamplingError, match="the saved sampler has scheme"):
        Participants(other, 8, 50, seed=1).restore(saved)
    prints = [Mechanism(TREE, scheme, 1.0, 50, 1.0).fingerprint() for scheme in (one, other)]
    assert prints[0] != prints[1]


@pytest.mark.filterwarnings("ignore:Full backward hook")
def test_it_trains_and_goes_on_from_a_checkpoint(tmp_path):
    torch = pytest.importorskip("torch")
    from mmcc.training import load_checkpoint, make_private, save_checkpoint

    def private():
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 2)
        data = torch.utils.data.TensorDataset(torch.randn(32, 3), torch.randint(2, (32,)))
        return make_private(
            model,
            torch.optim.SGD(model.parameters(), lr=0.1),
            data,
            strategy=TREE,
            sampling=SCHEME,
            sigma=9.0,
            delta=1e-5,
            max_grad_norm=1.0,
            seed=5,
        )

    def train(run, stop=None):
        module, optimizer, loader = run
        for count, (inputs, labels) in enumerate(loader, 1):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(module(inputs), labels).backward()
            optimizer.step()
            if count == stop:
                save_checkpoint(tmp_path / "run", optimizer)
        return [p.detach().clone() for p in module.parameters()], optimizer.guarantee

    through, guarantee = train(private(), stop=3)
    plain = mmcc.epsilon(TREE, SCHEME, sigma=9.0, delta=1e-5, method="unamplified")
    assert guarantee.epsilon == plain.epsilon
    assert "no amplification is proven for training with Exactly" in guarantee.bound
    resumed = private()
    load_checkpoint(tmp_path / "run", resumed[1])
    again, _ = train(resumed)
    assert all(torch.equal(one, other) for one, other in zip(through, again, strict=True))
    with pytest.raises(MmccError, match="sampling=scheme"):
        report.of_checkpoint(tmp_path / "run", delta=1e-5)
    told = report.of_checkpoint(tmp_path / "run", delta=1e-5, sampling=SCHEME)
    assert told.claims[0].epsilon == plain.epsilon
    with pytest.raises(MmccError, match="different one"):
        report.of_checkpoint(tmp_path / "run", delta=1e-5, sampling=Exactly(2))
