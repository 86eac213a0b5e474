"""Claim: with independent noise and Poisson sampling we are DP-SGD as Opacus does it.

The same epsilon as its PRV accountant, the same steps, the same accuracy.
"""

from __future__ import annotations

import statistics
import sys
import warnings
from pathlib import Path

import pytest
from cases.samples import first

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import fashion_mnist as example  # noqa: E402
from opacus import PrivacyEngine  # noqa: E402
from opacus.accountants import PRVAccountant  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

import mmcc  # noqa: E402
from mmcc import sampling, strategies  # noqa: E402
from mmcc.training import make_private  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook", "ignore:Secure RNG turned off")


@pytest.mark.parametrize(
    ("sigma", "rate", "steps", "delta"),
    first(
        [
            (0.8, 1 / 60, 60, 1e-5),
            (1.5, 0.25, 50, 1e-5),
            (4.0, 0.1, 500, 1e-6),
            (1.07, 1024 / 60000, 480, 1e-5),
            (0.9, 0.01, 300, 1e-5),
            (2.0, 0.05, 1000, 1e-5),
        ],
        3,
    ),
)
def test_epsilon_is_that_of_the_prv_accountant(sigma, rate, steps, delta):
    """The peer is an upper end, 1e-3 wide, for remove; ours is certified, the larger of both."""
    accountant = PRVAccountant()
    accountant.history = [(sigma, rate, steps)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = accountant.get_epsilon(delta, eps_error=1e-3)
    ours = mmcc.epsilon(
        strategies.identity(steps), sampling.Poisson(rate), sigma=sigma, delta=delta
    )
    assert abs(ours.epsilon / theirs - 1) < 0.01
    assert ours.epsilon > theirs - 2e-3  # their true value is not below their interval


def ours(network, data, batch, steps, sigma, learning_rate, seed):
    module, optimizer, loader = make_private(
        network,
        torch.optim.SGD(network.parameters(), lr=learning_rate),
        data,
        strategy=strategies.identity(steps),
        sampling=sampling.Poisson(batch / len(data)),
        max_grad_norm=1.0,
        sigma=sigma,
        delta=1e-5,
        seed=seed,
    )
    for pixels, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(pixels), labels).backward()
        optimizer.step()


def theirs(network, data, batch, steps, sigma, learning_rate):
    module, optimizer, loader = PrivacyEngine().make_private(
        module=network,
        optimizer=torch.optim.SGD(network.parameters(), lr=learning_rate),
        data_loader=DataLoader(data, batch_size=batch),
        noise_multiplier=sigma,
        max_grad_norm=1.0,
        poisson_sampling=True,
    )
    done = 0
    while done < steps:
        for pixels, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(pixels), labels).backward()
            optimizer.step()
            done += 1
            if done == steps:
                break


def test_steps_without_noise_are_those_of_opacus():
    """Everyone takes part and there is no noise to speak of: parameters are the same numbers."""
    generator = torch.Generator().manual_seed(1)
    data = TensorDataset(
        torch.randn(48, 1, 28, 28, generator=generator),
        torch.randint(10, (48,), generator=generator),
    )
    torch.manual_seed(2)
    mine, peer = example.small_network(), example.small_network()
    peer.load_state_dict(mine.state_dict())
    begun = [p.detach().clone() for p in mine.parameters()]
    ours(mine, data, 48, 5, 1e-9, 1.0, 0)
    theirs(peer, data, 48, 5, 0.0, 1.0)
    for before, p, q in zip(begun, mine.parameters(), peer.parameters(), strict=True):
        moved = (q - before).abs().max()
        assert moved > 1e-3
        assert (p - q).abs().max() < 1e-4 * moved + 1e-6


SEEDS = range(4)
SUBSET = 4096
BATCH = 256
STEPS = 48


@pytest.mark.slow
def test_accuracy_is_that_of_opacus():
    """Means over seeds agree within five standard errors; four times the noise would not."""
    if not example.DEBIAN.is_dir():
        pytest.skip("needs Debian's dataset-fashion-mnist")
    data = example.images(example.DEBIAN, SUBSET)
    reached = {"ours": [], "Opacus": [], "four times the noise": []}
    for seed in SEEDS:
        for name, found in reached.items():
            torch.manual_seed(seed)
            network = example.small_network()
            if name == "Opacus":
                theirs(network, data.train, BATCH, STEPS, 1.0, 2.0)
            else:
                sigma = 1.0 if name == "ours" else 4.0
                ours(network, data.train, BATCH, STEPS, sigma, 2.0, seed)
            found.append(100 * example.accuracy(network, data.test))
    means = {name: statistics.mean(found) for name, found in reached.items()}
    spreads = {name: statistics.stdev(found) for name, found in reached.items()}
    print({name: f"{means[name]:.2f} ± {spreads[name]:.2f} %" for name in reached})
    spread = (spreads["ours"] ** 2 + spreads["Opacus"] ** 2) ** 0.5
    allowed = 5 * spread / len(SEEDS) ** 0.5
    assert abs(means["ours"] - means["Opacus"]) < allowed
    assert means["ours"] - means["four times the noise"] > allowed
