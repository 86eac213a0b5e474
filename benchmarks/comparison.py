"""Where correlated noise starts to win: the tables of docs/choosing.md.

    python benchmarks/comparison.py run RECORD [SETTING ...] [--seconds S]
    python benchmarks/comparison.py show RECORD

Every cell is appended to RECORD (one JSON object per line) as it comes, and is not computed again,
so a run may be stopped and continued.  A cell runs in its own process, which is ended after S
seconds (600); the cell then says so.  Settings: one-pass (512 steps, rate 1/512), many-passes (512,
1/16), epochs (2000, 1/100).
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import time
from collections.abc import Iterator
from pathlib import Path

import mmcc.utility  # noqa: F401  imported before processes fork
from mmcc.design._compare import baseline_cell, cell_against, known_errors
from mmcc.design._comparison import Comparison, Row
from mmcc.design._comparison_cells import Limits, answer
from mmcc.sampling._families_at_rate import family
from mmcc.strategies._registry import from_word

DELTA = 1e-5
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
SETTINGS = {"one-pass": (512, 1 / 512), "many-passes": (512, 1 / 16), "epochs": (2000, 1 / 100)}
COUNTING = "continual-counting"
PAPERS = ("2", "4", "8", "16", "64")
"""Bands compared by the paper's bound."""
PLAN = {
    "one-pass": {
        "cyclic-poisson": (f"{COUNTING}:4", f"{COUNTING}:16", f"{COUNTING}:64"),
        "balls-in-bins": (COUNTING, f"{COUNTING}:64", f"{COUNTING}:16"),
        "poisson": (f"{COUNTING}:64", f"{COUNTING}:16", COUNTING),
    },
    "many-passes": {
        "balls-in-bins": (f"{COUNTING}:16", f"{COUNTING}:8", COUNTING),
        "cyclic-poisson": (f"{COUNTING}:4", f"{COUNTING}:8", f"{COUNTING}:12"),
        "poisson": ("tuned-blt", f"{COUNTING}:4", f"{COUNTING}:16", COUNTING),
    },
    "epochs": {
        "balls-in-bins": (f"{COUNTING}:100", COUNTING, f"{COUNTING}:32"),
        "poisson": ("tuned-blt",),
        "cyclic-poisson": (f"{COUNTING}:8", f"{COUNTING}:32"),
    },
}
"""Strategies in the order in which they are computed, by setting and scheme."""


def questions(setting: str) -> Iterator[tuple[float, str, str, str, bool]]:
    """Epsilon, scheme, strategy, method, and whether only the winner is asked for.

    Cheap questions come first: the paper's bound is fast for bands and slow for dense encoders.
    """
    for word in (f"{COUNTING}:{bands}" for bands in PAPERS):
        for epsilon in EPSILONS:
            yield epsilon, "poisson", word, "mmcc", True
    for only_wins in (True, False) if setting == "one-pass" else (False,):
        # With few participations and little noise lower bounds are slow: ask for the winner first.
        for scheme, words in PLAN[setting].items():
            for word in words:
                for epsilon in reversed(EPSILONS):
                    yield epsilon, scheme, word, "tight", only_wins
    for word in ("binary-tree", "blt", COUNTING):
        for epsilon in EPSILONS:
            yield epsilon, "poisson", word, "mmcc", True


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("run", "show"))
    parser.add_argument("record", type=Path)
    parser.add_argument("settings", nargs="*")
    parser.add_argument("--seconds", type=float, default=600.0)
    given = parser.parse_args()
    settings = given.settings or list(SETTINGS)
    if given.what == "show":
        for setting in settings:
            show(setting, read(given.record))
        return
    for setting in settings:
        run(setting, given.record, given.seconds)


def run(setting: str, record: Path, seconds: float) -> None:
    """Compute what is not in the record yet."""
    steps, rate = SETTINGS[setting]
    known = read(record)
    base = {}
    for epsilon in EPSILONS:
        key = [setting, epsilon, "poisson", "DP-SGD", "tight"]
        if tuple(key) not in known:
            cell = baseline_cell(steps, rate, epsilon, DELTA, Limits())
            known[tuple(key)] = append(record, key, answer(cell)[0].to_dict())
        base[epsilon] = row_of(known[tuple(key)])
    for epsilon, scheme, word, method, only_wins in questions(setting):
        key = [setting, epsilon, scheme, word, f"{method}, who wins" if only_wins else method]
        if tuple(key) in known:
            continue
        limits = Limits(method, only_wins, seconds=seconds)
        strategy = from_word(word, steps)
        errors = known_errors(strategy)
        cell = cell_against(
            base[epsilon], word, strategy, family(scheme, rate, steps), limits, errors
        )
        known[tuple(key)] = append(record, key, in_time(cell, seconds))


def in_time(cell, seconds: float) -> dict:
    """The cell, computed in its own process, or the fact that it was stopped."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    worker = context.Process(target=lambda: sender.send(answer(cell)[0].to_dict()))
    start = time.perf_counter()
    worker.start()
    try:
        if receiver.poll(1.1 * seconds):
            return receiver.recv()
    finally:
        worker.kill()
        worker.join()
    return {
        "strategy": cell.label,
        "detail": repr(cell.strategy),
        "scheme": cell.family.name,
        "sampling": "",
        "separation": None,
        "epsilon": cell.epsilon,
        "delta": cell.delta,
        "method": cell.limits.method,
        "verdict": "no answer",
        "correlated": True,
        "reason": f"ended after {seconds:g} s",
        "seconds": time.perf_counter() - start,
    }


def append(record: Path, key: list, row: dict) -> dict:
    with record.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"key": key, "row": row}) + "\n")
    print(*key, row.get("sigma"), row.get("saving"), row["verdict"], row["seconds"], flush=True)
    return row


def read(record: Path) -> dict[tuple, dict]:
    if not record.exists():
        return {}
    lines = [json.loads(line) for line in record.read_text(encoding="utf-8").splitlines()]
    return {tuple(line["key"]): line["row"] for line in lines}


def row_of(content: dict) -> Row:
    fields = {name: content[name] for name in Row.__dataclass_fields__ if name in content}
    fields.setdefault("separation", None)
    return Row(**fields | {"reservations": tuple(content.get("reservations", ()))})


def upwards(value: float) -> str:
    """Four digits, never below the value."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 3)
    return f"{math.ceil(value / unit) * unit:.4g}"


def show(setting: str, known: dict[tuple, dict]) -> None:
    """The tables in Markdown, and the smallest epsilon of a win by scheme and method."""
    steps, rate = SETTINGS[setting]
    mine = {key: row_of(row) for key, row in known.items() if key[0] == setting}
    print(f"\n{setting}: {steps} steps, rate 1/{round(1 / rate)}, delta {DELTA:g}\n")
    print("| scheme | strategy | " + " | ".join(f"epsilon {e:g}" for e in EPSILONS) + " |")
    print("|" + "---|" * (2 + len(EPSILONS)))
    kinds = dict.fromkeys((scheme, word, method) for _, _, scheme, word, method in mine)
    order = {scheme: k for k, scheme in enumerate(("poisson", "cyclic-poisson", "balls-in-bins"))}
    for scheme, word, method in sorted(
        kinds, key=lambda kind: (kind[2] != "tight", order[kind[0]])
    ):
        shown = []
        for epsilon in EPSILONS:
            row = mine.get((setting, epsilon, scheme, word, method))
            if row is None:
                shown.append("")
            elif row.at_tie or row.rmse is None:
                shown.append(row.text.partition(":")[0])
            else:
                saved = None if row.saving is None else math.floor(1000 * row.saving) / 10
                gain = "" if saved is None else f" ({saved:+.1f} %)"
                shown.append(f"{upwards(row.sigma)}: {row.rmse:.4g}{gain}")
        told = scheme if method == "tight" else f"{scheme} ({method})"
        print(f"| {told} | {word} | " + " | ".join(shown) + " |")
    for method in ("tight", "mmcc"):
        rows = [
            row for key, row in mine.items() if key[4].startswith(method) and key[3] != "DP-SGD"
        ]
        base = [mine[key] for key in mine if key[3] == "DP-SGD"]
        table = Comparison(steps, rate, DELTA, method, tuple(base), tuple(rows))
        for crossing in table.crossings:
            print(f"\n- {method}: {crossing}")


if __name__ == "__main__":
    main()
