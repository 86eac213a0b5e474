"""Ledgers made by hand: guarantees with given pairs, lines with given faults."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import norm

from mmcc.accounting._guarantee import Guarantee
from mmcc.ledger import Ledger, Planned
from mmcc.ledger._entries import FIRST, DeltaDot, sealed


def guarantee(epsilon: float = 1.0, delta: float = 1e-6, **changed: Any) -> Guarantee:
    fields = {
        "sigma": 2.0,
        "method": "tight",
        "strategy": "binary_tree(8)",
        "sampling": "Poisson(probability=0.125)",
        "adaptive": True,
        "bound": "projection",
    }
    return Guarantee(epsilon=epsilon, delta=delta, **(fields | changed))


def begin(ledger: Ledger, epsilon: float = 1.0, delta: float = 1e-6, **changed: Any) -> str:
    what = {"data": "d", "mechanism": "a tree", "steps": 8, "fingerprint": {"strategy": "tree"}}
    pair = {"guarantee": guarantee(epsilon, delta)}
    return ledger.begin(**(what | pair | changed))


def gaussian_delta(ratio: float, epsilon: float) -> float:
    """delta(epsilon) of N(ratio, 1) against N(0, 1)."""
    upper = epsilon / ratio + ratio / 2
    lower = epsilon / ratio - ratio / 2
    return norm.sf(lower) - math.exp(epsilon) * norm.sf(upper)


def gaussian_run(ratio: float, delta: float, fingerprint: str = "f") -> Planned:
    """A Gaussian mechanism, its curve from the closed form."""
    dots = [
        DeltaDot(e, d, d) for e in np.arange(80) / 16 for d in [gaussian_delta(ratio, e) * 1.000001]
    ]
    epsilon = next(dot.epsilon for dot in dots if dot.remove <= delta)
    return Planned("gaussian", fingerprint, guarantee(epsilon, delta), tuple(dots))


def bodies(file: Path) -> list[dict[str, Any]]:
    """The objects of a ledger without their checks."""
    found = [json.loads(line) for line in file.read_text().splitlines()]
    return [{name: value for name, value in body.items() if name != "check"} for body in found]


def write(file: Path, objects: list[dict[str, Any]]) -> None:
    """A ledger whose checks are all right, whatever the objects say."""
    check, lines = FIRST, []
    for body in objects:
        lines.append(sealed(body, check))
        check = json.loads(lines[-1])["check"]
    file.write_text("".join(f"{line}\n" for line in lines))


def changed(file: Path, number: int, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the object of one line and make all checks anew."""
    objects = bodies(file)
    change(objects[number - 1])
    write(file, objects)
