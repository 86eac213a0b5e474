"""Training in several processes, and a `Nursery` from which they come.

Each process of a group runs the scenarios (functions of this file) in order and leaves what it saw
in FOLDER/SCENARIO.RANK; it finds the others by way of FOLDER/group.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from cases.private import (
    CLASSES,
    FEATURES,
    STEPS,
    backward,
    data,
    linear,
    parameters,
    private,
    train,
)
from cases.sharded import (  # noqa: F401 (scenarios)
    sharded_cases,
    sharded_evaluation,
    sharded_killed,
    sharded_killed_saving,
    sharded_noise,
    sharded_refusals,
    sharded_settings,
    sharded_stopped,
    sharded_taken_up,
    sharded_whole,
)
from cases.spread import resumed_spread, spread  # noqa: F401 (scenarios)
from mmcc import MmccError, strategies
from mmcc.sampling import BallsInBins, CyclicPoisson, MinSeparation, Poisson, Shuffle
from mmcc.training import load_checkpoint, save_checkpoint
from mmcc.training._distributed import peers_of

STRATEGIES = {
    "identity": strategies.identity(STEPS),
    "bands": strategies.toeplitz([1.0, 0.6, 0.3], STEPS),
    "tree": strategies.binary_tree(STEPS),
    "blt": strategies.blt(STEPS, decay=[0.9, 0.4], scale=[0.3, 0.2]),
}
SAMPLINGS = {"usual": Poisson(0.3), "rare": Poisson(0.03)}
"""Of 30 examples: with `rare` most batches have nobody or one, so that parts are empty."""
CASES = {
    f"{name} {often} {physical} {dtype}": {
        "strategy": STRATEGIES[name],
        "sampling": SAMPLINGS[often],
        "physical_batch_size": physical,
        "dtype": dtype,
    }
    for name in STRATEGIES
    for often, physical, dtype in [
        ("usual", None, "float64"),
        ("usual", 2, "float64"),
        ("rare", None, "float64"),
        ("usual", 2, "float32"),
    ]
} | {
    f"{clipping} {often} {dtype}": {
        "strategy": STRATEGIES["bands"],
        "sampling": SAMPLINGS[often],
        "physical_batch_size": 2,
        "dtype": dtype,
        "clipping": clipping,
    }
    for clipping, often, dtype in [
        ("ghost", "usual", "float64"),
        ("ghost", "rare", "float32"),
        ("per-layer", "usual", "float64"),
        ("automatic", "rare", "float64"),
        ("ghost", "usual", "bfloat16"),
    ]
}
SCHEMES = {
    "poisson": Poisson(0.1),
    "cyclic": CyclicPoisson(0.4, 3),
    "separated": MinSeparation(0.2, 4),
    "bins": BallsInBins(20),
    "shuffle": Shuffle(8),
}
ACCELERATED = "tree usual 2 float64"
LONG = 40
WIDE = (200, 500)
"""Numbers of a model that is all noise."""
PATIENCE, SHORT, LIMIT = 600, 10, 1800
"""Seconds that a process waits for the others, waits in `stuck`, and lives."""


def case(dtype: str, **options: Any) -> tuple[Any, Any, Any]:
    """One run of `CASES`, in this process alone or in all."""
    kind = getattr(torch, dtype)
    inputs, labels = data().tensors
    return private(
        linear().to(kind), TensorDataset(inputs.to(kind), labels), momentum=0.5, **options
    )


class Numbers(Dataset):
    """Example i is the number i."""

    def __len__(self) -> int:
        return 30

    def __getitem__(self, index: int) -> int:
        return index


def cases(folder: Path) -> dict[str, Any]:
    found = {}
    for name, options in CASES.items():
        made = case(**options, distributed=True)
        train(*made)
        found[name] = parameters(made[0])
    return found


def ledger(folder: Path) -> dict[str, Any]:
    """A run in a ledger, taken up once from its checkpoint; a last step that differs."""
    options = {"distributed": True, "ledger": folder / "runs.jsonl", "data_name": "numbers"}
    first = private(**options)
    save_checkpoint(folder / "listed", *first)
    train(*first)
    second = private(**options)
    load_checkpoint(folder / "listed", *second)
    train(*second)
    apart = private(distributed=True, strategy=strategies.identity(1), sampling=Poisson(1.0))
    for group in apart[1].param_groups:
        group["lr"] *= 1 + dist.get_rank()
    try:
        train(*apart)
    except MmccError as problem:
        return {"name": second[1].run.record.name, "apart": str(problem)}
    return {"name": second[1].run.record.name, "apart": ""}


def shards(folder: Path) -> dict[str, Any]:
    """Which examples this process was given, by step."""
    found = {}
    for name, scheme in SCHEMES.items():
        for physical in (None, 2):
            _, _, loader = private(
                dataset=Numbers(),
                strategy=strategies.identity(LONG),
                sampling=scheme,
                physical_batch_size=physical,
                distributed=True,
            )
            steps: list[list[int]] = [[] for _ in range(LONG)]
            chunks = []
            batches = iter(loader)
            for _ in range(len(loader)):
                batch = next(batches)
                steps[loader.run.handed[-1].step] += batch.tolist()
                chunks.append(len(batch))
            found[f"{name} {physical}"] = {"steps": steps, "chunks": chunks}
    return found


def noise(folder: Path) -> dict[str, Any]:
    """How a model moves whose gradients are zero, in units of sigma times the clip norm."""
    return {
        f"{name} {seed}": moves(strategies_of_three()[name], seed, distributed=True)
        for name in strategies_of_three()
        for seed in (4, None)
    }


def strategies_of_three() -> dict[str, Any]:
    return {
        "identity": strategies.identity(3),
        "bands": strategies.toeplitz([1.0, 0.7, 0.2], 3),
        "tree": strategies.binary_tree(3),
    }


def moves(strategy: Any, seed: int | None, **options: Any) -> torch.Tensor:
    sigma, clip, rate = 1.7, 0.6, 1e-3
    _, size = WIDE
    module = nn.Linear(size, WIDE[0], bias=False).double()
    module, optimizer, loader = private(
        module,
        TensorDataset(torch.ones(30, size, dtype=torch.float64)),
        rate=rate,
        strategy=strategy,
        max_grad_norm=clip,
        sigma=sigma,
        seed=seed,
        **options,
    )
    places = [parameters(module)[0]]
    for (inputs,) in loader:
        (0.0 * module(inputs)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        places.append(parameters(module)[0])
    scale = optimizer.expected_batch_size / (rate * sigma * clip)
    return torch.stack([(b - a).flatten() * scale for a, b in pairwise(places)])


def mixed(folder: Path) -> list[torch.Tensor]:
    """Sums of several types and memory layouts, over processes that have 1, 2, ... of each."""
    share = dist.get_rank() + 1
    large = torch.full((), 1 + 2.0**-40, dtype=torch.float64)
    kept = [torch.arange(6, dtype=torch.float32).view(2, 3).t(), large]
    return list(peers_of(True).sum([share * sums for sums in kept], 2**40 + 3, kept))


def start(folder: Path) -> list[torch.Tensor]:
    """Every process has a model of its own at first."""
    torch.manual_seed(100 + dist.get_rank())
    made = private(nn.Linear(FEATURES, CLASSES).double(), distributed=True)
    return parameters(made[0])


def dropping(seed: int | None, **options: Any) -> tuple[Any, Any, Any]:
    """A run that depends on the global generator, which is another one in each process."""
    torch.manual_seed(50 + dist.get_rank())
    module = nn.Sequential(nn.Linear(FEATURES, 8), nn.Dropout(0.4), nn.Linear(8, CLASSES)).double()
    return private(
        module,
        strategy=strategies.binary_tree(STEPS),
        momentum=0.9,
        physical_batch_size=3,
        seed=seed,
        distributed=True,
        **options,
    )


def saving(folder: Path, file: str, seed: int | None, at: Callable[[Any], None]) -> Any:
    """Train to the end with a checkpoint after each step; `at` is called for each batch."""
    made = dropping(seed)
    path = folder / file
    if path.exists():
        torch.manual_seed(999)
        assert load_checkpoint(path, *made) == {"note": "kept"}
    else:
        save_checkpoint(path, *made, extra={"note": "kept"})
    module, optimizer, loader = made
    for batch in loader:
        before = optimizer.position
        at(optimizer)
        optimizer.zero_grad()
        backward(module, batch)
        optimizer.step()
        if optimizer.position > before:
            save_checkpoint(path, *made, extra={"note": "kept"})
    return parameters(module)


def uninterrupted(folder: Path) -> Any:
    return saving(folder, "whole", 8, lambda optimizer: None)


def taken_up(folder: Path) -> Any:
    return saving(folder, "broken", None, lambda optimizer: None)


def killed(folder: Path) -> Any:
    """The last process is gone in the middle of a step, with a part of its batch in hand."""

    def at(optimizer: Any) -> None:
        if dist.get_rank() == dist.get_world_size() - 1 and optimizer.position == 4:
            os.kill(os.getpid(), signal.SIGKILL)

    return saving(folder, "broken", 8, at)


def killed_with_workers(folder: Path) -> Any:
    """Processes that load data hold the connections of the one that is killed for a while."""
    loading = DataLoader(data(), batch_size=9, num_workers=2)
    made = private(dataset=loading, distributed=True)
    for batch in made[2]:
        if dist.get_rank() == 1 and made[1].position == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        one_step(made, batch)


def stuck(folder: Path) -> Any:
    """One process does nothing for longer than the others wait."""
    made = private(distributed=True)
    for batch in made[2]:
        if dist.get_rank() == 1 and made[1].position == 2:
            time.sleep(3 * SHORT)
        one_step(made, batch)


def killed_first(folder: Path) -> Any:
    """Process 0 is gone when the others wait for its sum."""

    def at(optimizer: Any) -> None:
        if dist.get_rank() == 0 and optimizer.position == 4:
            time.sleep(0.5)
            os.kill(os.getpid(), signal.SIGKILL)

    return saving(folder, "broken", 8, at)


def plain(folder: Path) -> Any:
    """Three steps, a checkpoint, and the rest; nothing depends on global generators."""
    made = case(**CASES["tree usual 2 float64"], steps_per_epoch=3, distributed=True)
    train(*made)
    save_checkpoint(folder / "plain", *made)
    while not made[1].finished:
        train(*made)
    return parameters(made[0])


def grown(folder: Path) -> Any:
    """Take up a run that was begun by one process."""
    made = case(**CASES["tree usual 2 float64"], distributed=True)
    load_checkpoint(folder / "alone", *made)
    train(*made)
    return parameters(made[0])


def accelerated(folder: Path) -> dict[str, Any]:
    """A case in accelerate's own loop, on as many processes as accelerate was told of."""
    import accelerate

    rank, count = dist.get_rank(), dist.get_world_size()
    os.environ |= {"RANK": f"{rank}", "LOCAL_RANK": f"{rank}", "WORLD_SIZE": f"{count}"}
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": "0"}  # the group is there already
    accelerator = accelerate.Accelerator(cpu=True)
    run = case(**CASES[ACCELERATED], distributed=True)
    prepared = module, optimizer, loader = accelerator.prepare(*run)
    for inputs, labels in loader:
        optimizer.zero_grad()
        accelerator.backward(nn.functional.cross_entropy(module(inputs), labels))
        optimizer.step()
    same = all(one is other for one, other in zip(prepared, run, strict=True))
    return {"parameters": parameters(module), "same": same, "count": accelerator.num_processes}


def told(work: Callable[[], Any]) -> str:
    try:
        work()
    except MmccError as problem:
        return f"{type(problem).__name__}: {problem}"
    return "nothing"


def refusals(folder: Path) -> dict[str, str]:
    rank = dist.get_rank()
    first = rank == 0

    def lone(**options: Any) -> Callable[[], Any]:
        return lambda: private(distributed=True, **options)

    found = {
        "sigma": told(lone(sigma=1.0 + rank)),
        "steps": told(lone(strategy=strategies.identity(STEPS + rank))),
        "bands": told(lone(strategy=strategies.toeplitz([1.0, 0.5 + rank / 2**40], STEPS))),
        "physical": told(lone(physical_batch_size=5 + rank)),
        "generator": told(lone(generator="philox" if first else "chacha")),
        "data": told(lone(dataset=data(30 + rank))),
        "wrong on one": told(lone(sigma=1.0 if first else -1.0)),
        "wrong on all": told(lone(seed=-1)),
        "model": told(lone(module=nn.Linear(FEATURES, CLASSES + rank).double())),
        "names": told(lone(module=linear() if first else nn.Sequential(linear()))),
        "wrapped": told(lone(module=nn.parallel.DistributedDataParallel(linear()))),
        "not said": told(private),
    }
    made = private(distributed=True, strategy=STRATEGIES["bands"], seed=1)
    save_checkpoint(folder / "known", *made)
    save_checkpoint(folder / "other", *private(distributed=True, strategy=STRATEGIES["bands"]))
    found["missing file"] = told(
        lambda: load_checkpoint(folder / ("known" if first else "missing"), *made)
    )
    found["other file"] = told(
        lambda: load_checkpoint(folder / ("known" if first else "other"), *made)
    )
    unwritable = folder / "nowhere" / "file"
    found["unwritable"] = told(lambda: save_checkpoint(unwritable, *made))
    train(*made)
    found["position"] = str(made[1].position)

    made = private(distributed=True)
    for batch in made[2]:
        if not first:
            made[1].param_groups[0]["lr"] = 0.25
        found["learning rate"] = told(lambda batch=batch: one_step(made, batch))
        if found["learning rate"] != "nothing":
            break
    found["learning rate, again"] = told(lambda: train(*made))

    made = private(distributed=True)
    found["lone save"] = told(
        lambda: save_checkpoint(folder / "lone", *made) if first else train(*made)
    )
    found["lone file"] = str((folder / "lone").exists())
    return found


def one_step(made: Any, batch: Any) -> None:
    module, optimizer, _ = made
    backward(module, batch)
    optimizer.step()
    optimizer.zero_grad()


class Nursery:
    """One process that has imported everything and forks groups, for the tests to ask."""

    def __init__(self) -> None:
        path = os.pathsep.join(part for part in sys.path if part)
        environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        if sys.platform == "linux":  # where the machine's own name may lead nowhere
            environment["GLOO_SOCKET_IFNAME"] = "lo"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "cases.peers"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def group(self, folder: Path, count: int, *scenarios: str) -> list[dict[str, Any]]:
        """How each process of a group ended: status, time, what it said."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([str(folder), count, scenarios]) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def results(self, folder: Path, count: int, *scenarios: str) -> list[Any]:
        """What each process saw in the last of the scenarios."""
        for end in self.group(folder, count, *scenarios):
            assert end["status"] == 0, end["said"]
        return results(folder, scenarios[-1], count)

    def close(self) -> None:
        self._process.communicate(timeout=LIMIT)


def results(folder: Path, scenario: str, count: int = 2) -> list[Any]:
    """What each process saw."""
    return [torch.load(folder / f"{scenario}.{rank}", weights_only=True) for rank in range(count)]


def member(rank: int, count: int, folder: Path, scenarios: Sequence[str]) -> None:
    """The life of one process."""
    signal.alarm(LIMIT)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/group",
        rank=rank,
        world_size=count,
        timeout=timedelta(seconds=SHORT if "stuck" in scenarios else PATIENCE),
    )
    for scenario in scenarios:
        torch.save(globals()[scenario](folder), folder / f"{scenario}.{rank}")
    dist.destroy_process_group()


def forked(rank: int, count: int, folder: Path, scenarios: Sequence[str]) -> int:
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        said = os.open(folder / f"said.{rank}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(said, 2)
        member(rank, count, folder, scenarios)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def group(folder: Path, count: int, scenarios: Sequence[str]) -> list[dict[str, Any]]:
    (folder / "group").unlink(missing_ok=True)
    children = [forked(rank, count, folder, scenarios) for rank in range(count)]
    ends = {}
    for _ in children:
        child, status = os.wait()
        ends[child] = {"status": os.waitstatus_to_exitcode(status), "time": time.monotonic()}
    return [
        {**ends[child], "said": (folder / f"said.{rank}").read_text()}
        for rank, child in enumerate(children)
    ]


def main() -> None:
    private()  # what is imported late is imported once
    for line in sys.stdin:
        folder, count, scenarios = json.loads(line)
        print(json.dumps(group(Path(folder), count, scenarios)), flush=True)


if __name__ == "__main__":
    main()
