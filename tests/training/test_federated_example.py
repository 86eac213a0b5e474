"""Claim: the federated example adds the accounted noise to clipped updates and keeps its limits."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import federated_letters as example

from mmcc import sampling, strategies
from mmcc.training import NoiseStream

SETTING = example.Setting(
    rounds=12, cohort=3, limits=sampling.Unsampled(3, 2), clip=0.5, learning_rate=2.0
)
START = np.arange(6.0).reshape(2, 3)


class Client:
    """Sends the model with a fixed change, invited or not."""

    def __init__(self, cid: str, change: np.ndarray) -> None:
        self.cid, self.change = cid, change

    def fit(self, asked: example.FitIns) -> example.FitRes:
        return example.FitRes(example.pack(example.unpack(asked.parameters) + self.change))


def server(seed: int = 5) -> example.PrivateRounds:
    return example.PrivateRounds(SETTING, strategies.blt(12), 1.5, START, seed)


def play(made: example.PrivateRounds, server_round: int, clients: list[Client]) -> np.ndarray:
    asked = example.FitIns(example.pack(made.model), {})
    results = [(client, client.fit(asked)) for client in clients]
    parameters, _ = made.aggregate_fit(server_round, results, [])
    return example.unpack(parameters)


def test_a_round_is_clipped_updates_and_the_noise_of_the_stream():
    noise = list(NoiseStream(strategies.blt(12), 1.5, START.shape, 5))
    small, large = np.full((2, 3), 0.1), np.full((2, 3), -10.0)
    made = server()
    after = play(made, 1, [Client("a", small), Client("b", large)])
    total = small + large * 0.5 / np.linalg.norm(large) + 0.5 * noise[0]
    np.testing.assert_allclose(after, START + 2.0 * total / 3, rtol=1e-12)
    again = play(made, 2, [])  # noise comes whoever answers
    np.testing.assert_allclose(again, after + 2.0 * 0.5 * noise[1] / 3, rtol=1e-12)


def test_what_is_no_number_counts_nothing():
    alone, broken = server(), server()
    bad = np.full((2, 3), np.nan)
    with np.errstate(invalid="ignore"):
        found = play(broken, 1, [Client("a", bad), Client("b", np.full((2, 3), np.inf))])
    np.testing.assert_array_equal(found, play(alone, 1, []))


def test_nobody_takes_part_beyond_the_limits_even_uninvited():
    made = server()
    everyone = {name: Client(name, np.ones((2, 3))) for name in "abcdef"}
    manager = example.Clients(everyone)
    for server_round in range(1, 13):
        invited = made.configure_fit(server_round, example.pack(made.model), manager)
        assert len(invited) <= 3
        assert all(made.may_take_part(client.cid, server_round) for client, _ in invited)
        play(made, server_round, list(everyone.values()))
    assert set(made.taken) == set(everyone)
    for rounds in made.taken.values():
        assert len(rounds) == 2
        assert all(later - earlier >= 3 for earlier, later in pairwise(rounds))
    with pytest.raises(StopIteration):
        play(made, 13, [])


def test_training_learns_and_keeps_its_target():
    clients, aside = example.read_clients()
    setting = example.Setting(rounds=20, epsilon=200.0)
    logits, found = example.train(setting, strategies.blt(20), clients, seed=1)
    assert example.bits(logits, aside) < 4.4 < example.bits(np.zeros_like(logits), aside)
    assert found.epsilon <= 200.0
    assert found.adaptive
    assert found.sampling == repr(setting.limits)


def test_a_target_that_is_none_is_one_sentence(capsys):
    assert example.main(["--epsilon", "-1"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.strip().splitlines()) == 1
