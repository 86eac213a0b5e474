"""Files that a release leaves behind: `python tests/cases/saved_runs.py FOLDER`, with that release.

Checkpoints after three steps, the parameters with which each of their runs ended, a ledger, and
what it amounts to.  They are written once, by the release that the folder is named after, and never
again: the tests say that later releases read them.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

from mmcc import sampling, strategies
from mmcc.ledger import Ledger, planned
from mmcc.training import make_private, save_checkpoint

STEPS, SAVED = 8, 3
RUNS: dict[str, tuple[Any, Any]] = {
    "identity": (strategies.identity(STEPS), sampling.Poisson(0.3)),
    "poisson": (strategies.toeplitz([1.0, 0.6, 0.3], STEPS), sampling.Poisson(0.3)),
    "cyclic-poisson": (strategies.binary_tree(STEPS), sampling.CyclicPoisson(0.8, 3)),
    "min-separation": (strategies.banded_inverse(STEPS, 3), sampling.MinSeparation(0.6, 3)),
    "balls-in-bins": (
        strategies.blt(STEPS, decay=[0.9, 0.4], scale=[0.3, 0.2]),
        sampling.BallsInBins(4),
    ),
    "shuffle": (strategies.continual_counting(STEPS), sampling.Shuffle(4)),
}
DATA = TensorDataset(
    torch.linspace(-1, 1, 120, dtype=torch.float64).sin().reshape(30, 4), torch.arange(30) % 3
)


def made(name: str, **options: Any) -> Any:
    """The run of a name, before its first step."""
    strategy, scheme = RUNS[name]
    torch.manual_seed(8)
    module = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.4), nn.Linear(6, 3)).double()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5, momentum=0.9)
    given = {"max_grad_norm": 1.0, "sigma": 2.0, "delta": 1e-5, "seed": 11, **options}
    return make_private(module, optimizer, DATA, strategy=strategy, sampling=scheme, **given)


def train(run: Any, end: int = STEPS) -> None:
    """As far as a step."""
    module, optimizer, loader = run
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(inputs), labels).backward()
        optimizer.step()
        if optimizer.position == end:
            break


def parameters(run: Any) -> list[list[Any]]:
    return [p.detach().tolist() for p in run[0].parameters()]


def write_checkpoints(folder: Path) -> None:
    ends = {}
    for name in RUNS:
        run = made(name)
        train(run, SAVED)
        save_checkpoint(folder / f"{name}.checkpoint", *run, extra={"run": name})
        train(run)
        ends[name] = parameters(run)
    (folder / "ends.json").write_text(json.dumps({"torch": torch.__version__, "ends": ends}))


def write_ledger(folder: Path) -> None:
    """One data set with runs alone, and one with a plan, of which a run was made."""
    path = folder / "ledger.jsonl"
    ledger = {"ledger": path, "data_name": "survey"}
    train(made("poisson", **ledger))
    killed = made("cyclic-poisson", **ledger)
    train(killed, SAVED)
    save_checkpoint(folder / "killed.checkpoint", *killed)
    save_checkpoint(folder / "entered.checkpoint", *made("balls-in-bins", **ledger))
    stopped = made("min-separation", **ledger)
    train(stopped, SAVED)
    stopped[1].end()
    plan = []
    for sigma in (2.0, 2.0, 4.0):
        mechanism = made("identity", sigma=sigma)[1].mechanism
        fingerprint = mechanism.fingerprint()
        plan.append(planned(*RUNS["identity"], sigma=sigma, delta=1e-5, fingerprint=fingerprint))
    Ledger(path).declare(plan, data="patients")
    train(made("identity", ledger=path, data_name="patients"))
    train(made("shuffle", ledger=path, data_name="patients"))
    asked = [("survey", None), ("patients", None), ("patients", 1e-6)]
    totals = []
    for data, delta in asked:
        total = Ledger(path).total(data, delta=delta)
        totals.append([data, delta, total.epsilon.hex(), total.delta.hex()])
    (folder / "totals.json").write_text(json.dumps(totals, indent=1))


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message="Full backward hook")
    target = Path(sys.argv[1])
    target.mkdir(exist_ok=True)
    write_checkpoints(target)
    write_ledger(target)
