"""A federated model of letters, with correlated noise over whole client updates.

    python examples/federated_letters.py                 # a table, in a few seconds
    python examples/federated_letters.py --epsilon 16

No sampling is assumed: who takes part in a round need not be secret or random.  What is enforced
and checked here is that a client takes part at most a given number of times, with a given number of
rounds in between (`mmcc.sampling.Unsampled`).  Of `mmcc.training` it only needs `NoiseStream`.

`PrivateRounds` has the methods of a Flower strategy (flwr.server.strategy.Strategy); the few Flower
types that it needs are defined below in the same form, in case Flower is not installed.

In: the texts of Python's own manual (`pydoc_data.topics`), cut into clients of 400 letters each.
Out: for each mechanism the noise, the certified epsilon of a client, and how many bits a letter of
the held-out texts takes, given the letter before.  The learning rates were chosen on the same data
by eye and are the same for all mechanisms; that choice is not part of the guarantee.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pydoc_data.topics import topics
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import mmcc
from mmcc import sampling, strategies
from mmcc.strategies import Strategy
from mmcc.training import NoiseStream

Array = NDArray[np.float64]
LETTERS = "abcdefghijklmnopqrstuvwxyz "
CLIENT = 400
"""Letters of a client."""
SET_ASIDE = 10
"""One in this many clients is held out for measuring."""

try:
    from flwr.common import FitIns, Parameters
except ImportError:

    @dataclass
    class Parameters:  # type: ignore[no-redef]
        """Arrays in transit, as Flower sends them."""

        tensors: list[bytes]
        tensor_type: str

    @dataclass
    class FitIns:  # type: ignore[no-redef]
        """What a client is sent."""

        parameters: Parameters
        config: dict[str, Any]


@dataclass
class FitRes:
    """What a client sends back; Flower's own has more."""

    parameters: Parameters
    num_examples: int = 1


@dataclass(frozen=True)
class Setting:
    """What all mechanisms have in common."""

    rounds: int = 200
    cohort: int = 30
    """Clients that a round asks for: a public number, by which sums are divided."""
    limits: sampling.Unsampled = field(default_factory=lambda: sampling.Unsampled(20, 4))
    epsilon: float = 8.0
    delta: float = 1e-5
    clip: float = 1.0
    learning_rate: float = 4.0


def pack(array: Array) -> Parameters:
    """One array in the form that Flower sends."""
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return Parameters([file.getvalue()], "numpy.ndarray")


def unpack(parameters: Parameters) -> Array:
    """The array, from the form that Flower sends."""
    found: Array = np.load(io.BytesIO(parameters.tensors[0]), allow_pickle=False)
    return found


class PrivateRounds:
    """The server: it sums clipped updates, adds noise, and enforces the limits."""

    def __init__(
        self, setting: Setting, strategy: Strategy, sigma: float, initial: Array, seed: int | None
    ) -> None:
        self.setting, self.model = setting, initial.copy()
        self.noise = iter(NoiseStream(strategy, sigma, initial.shape, seed))
        self.taken: dict[str, list[int]] = {}
        """Rounds in which each client took part: known only to the server."""

    def initialize_parameters(self, client_manager: Any) -> Parameters:
        """The model before the first round."""
        return pack(self.model)

    def may_take_part(self, client: str, server_round: int) -> bool:
        """Whether a client is within the limits; the guarantee rests on this."""
        rounds, limits = self.taken.get(client, []), self.setting.limits
        apart = not rounds or server_round - rounds[-1] >= limits.separation
        return apart and len(rounds) < limits.at_most

    def configure_fit(
        self, server_round: int, parameters: Parameters, client_manager: Any
    ) -> list[tuple[Any, FitIns]]:
        """Ask the clients that took part least; any choice among those allowed would do."""
        every = client_manager.all().items()
        able = [(cid, client) for cid, client in every if self.may_take_part(cid, server_round)]
        able.sort(key=lambda one: len(self.taken.get(one[0], [])))
        asked = FitIns(pack(self.model), {})
        return [(client, asked) for _, client in able[: self.setting.cohort]]

    def aggregate_fit(
        self, server_round: int, results: Sequence[tuple[Any, Any]], failures: Sequence[Any]
    ) -> tuple[Parameters, dict[str, Any]]:
        """Each answer within the limits adds a clipped update; noise is added in any case."""
        total = np.zeros_like(self.model)
        for client, answer in results:
            if self.may_take_part(client.cid, server_round):
                self.taken.setdefault(client.cid, []).append(server_round)
                total += self.clipped(unpack(answer.parameters) - self.model)
        total += self.setting.clip * next(self.noise)
        self.model += self.setting.learning_rate * total / self.setting.cohort
        return pack(self.model), {}

    def clipped(self, update: Array) -> Array:
        """The update, scaled to at most the clip norm; one that is not finite counts as zero."""
        length = float(np.linalg.norm(update))
        if not np.isfinite(length):
            return np.zeros_like(update)
        return update * min(1.0, self.setting.clip / max(length, 1e-12))


@dataclass(frozen=True)
class LetterClient:
    """A client: how often each letter follows each other letter in its text."""

    cid: str
    pairs: Array

    def fit(self, asked: FitIns) -> FitRes:
        """One step of gradient descent on the client's own letters."""
        logits = unpack(asked.parameters)
        rows = self.pairs.sum(axis=1, keepdims=True)
        gradient = (rows * np.exp(logits - log_sums(logits)) - self.pairs) / self.pairs.sum()
        return FitRes(pack(logits - 8.0 * gradient))


@dataclass(frozen=True)
class Clients:
    """The clients, with the method of Flower's client manager that is needed."""

    listed: dict[str, LetterClient]

    def all(self) -> dict[str, LetterClient]:
        """Every client by its id."""
        return self.listed


def log_sums(logits: Array) -> Array:
    """For each row of logits, the logarithm of the sum of exponentials."""
    most = logits.max(axis=1, keepdims=True)
    return np.asarray(most + np.log(np.exp(logits - most).sum(axis=1, keepdims=True)))


def read_clients() -> tuple[Clients, Array]:
    """Clients with their pairs of letters, and the pairs of the held-out clients."""
    text = " ".join(topics[name] for name in sorted(topics)).lower()
    codes = np.array([LETTERS.find(letter) for letter in text])
    codes = codes[codes >= 0]
    parts = codes[: codes.size // CLIENT * CLIENT].reshape(-1, CLIENT)
    pairs = np.zeros((len(parts), len(LETTERS), len(LETTERS)))
    owner = np.repeat(np.arange(len(parts)), CLIENT - 1)
    np.add.at(pairs, (owner, parts[:, :-1].ravel(), parts[:, 1:].ravel()), 1.0)
    aside = np.arange(len(parts)) % SET_ASIDE == 0
    listed = {str(i): LetterClient(str(i), pairs[i]) for i in np.flatnonzero(~aside)}
    return Clients(listed), pairs[aside].sum(axis=0)


def bits(logits: Array, pairs: Array) -> float:
    """Bits that a letter takes, given the one before."""
    return float(-(pairs * (logits - log_sums(logits))).sum() / pairs.sum() / np.log(2))


def train(
    setting: Setting, strategy: Strategy, clients: Clients, seed: int | None
) -> tuple[Array, mmcc.Guarantee]:
    """All rounds, with the least noise that certifies the target."""
    found = mmcc.sigma(strategy, setting.limits, epsilon=setting.epsilon, delta=setting.delta)
    server = PrivateRounds(setting, strategy, found.sigma, np.zeros((len(LETTERS),) * 2), seed)
    parameters = server.initialize_parameters(clients)
    for server_round in range(1, setting.rounds + 1):
        asked = server.configure_fit(server_round, parameters, clients)
        results = [(client, client.fit(what)) for client, what in asked]
        parameters, _ = server.aggregate_fit(server_round, results, [])
    return unpack(parameters), found


def mechanisms(rounds: int) -> dict[str, Strategy]:
    """The mechanisms that are compared."""
    return {
        "independent noise": strategies.identity(rounds),
        "BLT": strategies.blt(rounds, 2),
        "binary tree": strategies.binary_tree(rounds),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Train with every mechanism and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--epsilon", type=float, default=Setting.epsilon)
    parser.add_argument("--rounds", type=int, default=Setting.rounds)
    parser.add_argument("--seed", type=int, help="repeats the noise; keep it secret")
    given = parser.parse_args(arguments)
    setting = Setting(rounds=given.rounds, epsilon=given.epsilon)
    clients, aside = read_clients()
    table = Table("mechanism", "sigma", "epsilon of a client", "bits a letter")
    table.add_row("untrained", "", "", f"{np.log2(len(LETTERS)):.3f}")
    try:
        for name, strategy in mechanisms(setting.rounds).items():
            logits, found = train(setting, strategy, clients, given.seed)
            certified = f"{found.epsilon:.4g}, certified by {found.bound}"
            table.add_row(name, f"{found.sigma:.4g}", certified, f"{bits(logits, aside):.3f}")
    except mmcc.MmccError as problem:
        print(f"federated_letters: {problem}", file=sys.stderr)
        return 2
    console = Console(width=100)
    console.print(table)
    console.print(f"{setting.limits.words(setting.rounds)} {setting.limits.caution}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
