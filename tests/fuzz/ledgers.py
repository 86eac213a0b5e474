"""Ledger files: read, checked, added up and printed, as `mmcc ledger` does.

What is accepted is held to a second reading of the file, written without any code of the ledger:
every line sealed by the one before it, no key twice, and no total below the sum of what it lists.
One plan in `REAL` is composed in full; for the others the pairs are added, which is real as well.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from cases.ledgers import begin, bodies, guarantee

from fuzz.drive import Format
from fuzz.mutate import mutated_bytes, mutated_tree
from mmcc.errors import MmccError, PrecisionError
from mmcc.ledger import Ledger, Planned
from mmcc.ledger import _total as compose
from mmcc.ledger._entries import DeltaDot

REAL = 100
SLACK = 1e-9
"""Of the second reading, which is not careful about rounding."""

_folder: Path = Path()


@cache
def seeds() -> tuple[list[dict[str, Any]], ...]:
    """Ledgers as objects without checks: pairs alone, and plans with and without curves."""
    with tempfile.TemporaryDirectory() as folder:
        pairs = Ledger(Path(folder) / "pairs")
        pairs.end(begin(pairs, 1.0), position=8)
        pairs.resume(begin(pairs, 0.5), {"strategy": "tree"})
        begin(pairs, 0.25, 1e-7, data="other")
        plan = Ledger(Path(folder) / "plan")
        curve = tuple(
            DeltaDot(e / 2, d, d / 2) for e, d in ((0, 0.3), (1, 0.1), (2, 1e-3), (4, 1e-8))
        )
        runs = [Planned("m", "f", guarantee(0.5, 1e-6)), Planned("m", "g", guarantee(), curve)]
        plan.declare([*runs, runs[0], Planned("n", "f", guarantee(2.0, 1e-6), curve)], data="d")
        begin(plan, 0.5, 1e-6, fingerprint="f")
        begin(plan, 0.5, 1e-6)
        return _renamed(bodies(pairs.path)), _renamed(bodies(plan.path))


def _renamed(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same every time: names of runs are random, times are those of the clock."""
    names: dict[str, str] = {}
    for body in found:
        body["time"] = "2024-01-01T00:00:00+00:00"
        if "run" in body:
            body["run"] = names.setdefault(body["run"], f"{len(names):016x}")
    return found


def canonical(value: Any) -> str:
    """JSON as a ledger has it; NaN and infinities as Python writes them."""
    return json.dumps(value, sort_keys=True)


def check_of(body: Any, previous: str) -> str:
    """The seal of a line."""
    return hashlib.sha256(f"{previous}\n{canonical(body)}".encode()).hexdigest()[:32]


def sealed(objects: list[Any]) -> list[bytes]:
    """Lines whose seals are right, whatever they say."""
    check, lines = "", []
    for body in objects:
        check = check_of(body, check)
        whole = {**body, "check": check} if isinstance(body, dict) else body
        lines.append(canonical(whole).encode("utf-8", "surrogatepass"))
    return lines


def make(rng: random.Random) -> bytes:
    """A ledger, damaged."""
    objects = rng.choice(seeds())
    kind = rng.randrange(10)
    if kind <= 4:
        try:
            return _joined(sealed(mutated_tree(rng, objects)))
        except (TypeError, ValueError, RecursionError):  # no JSON of that
            return _joined(sealed(objects))
    if kind == 5:
        return _joined(sealed(_reordered(rng, objects)))
    lines = sealed(objects)
    if kind <= 7:
        place = rng.randrange(len(lines))
        lines[place] = _rewritten(rng, lines[place])
        return _joined(lines)
    return mutated_bytes(rng, _joined(lines))


def _joined(lines: list[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def _reordered(rng: random.Random, objects: list[Any]) -> list[Any]:
    objects = list(objects)
    for _ in range(rng.randint(1, 3)):
        if not objects:
            break
        taken = objects.pop(rng.randrange(len(objects)))
        for _ in range(rng.randint(0, 2)):
            objects.insert(rng.randrange(len(objects) + 1), taken)
    return objects


def _rewritten(rng: random.Random, line: bytes) -> bytes:
    """The same line in other words, most of which JSON allows and a ledger does not."""
    number = rng.choice((b"1e-999", b"-1", b"0", b"NaN", b"Infinity", b"1E400", b"9" * 5000))
    field = rng.choice((b'"epsilon"', b'"delta"', b'"sigma"', b'"steps"', b'"version"'))
    deep = rng.choice((100, 990, 1100, 10**5))
    return rng.choice(
        (
            b"\xef\xbb\xbf" + line,
            line + b"\r",
            line.replace(b": ", b":"),
            line.replace(b"{", b"{" + field + b": " + number + b", ", 1),
            line.replace(field + b": ", field + b": " + number + b", " + field + b": ", 1),
            line[:-1] + b", " + field + b": " + number + b"}",
            line.replace(b'"d"', b'"\\u0064"'),
            line.replace(b'"d"', '"\u0434"'.encode()),
            line.replace(b'"d"', b'"\xff\xfe"'),
            line.replace(b'"d"', b'"\\ud800"'),
            line.replace(b'"d"', b"[" * deep + b"]" * deep),
            line.replace(b"a tree", b"x" * 10**6),
            line + line,
            line + b" ",
            line.decode().encode("utf-16"),
            b"// " + line,
            b"",
        )
    )


def feed(content: bytes) -> bool:
    """Everything that the command does with a file, but for the printing itself."""
    path = _folder / "ledger.jsonl"
    path.write_bytes(content)
    real = zlib.crc32(content) % REAL == 0
    stub = mock.patch.object(compose, "composed_epsilon", _not_composed)
    try:
        ledger = Ledger(path)
        history = ledger.history()
        names = history.data_sets()
        if real:
            totals = [ledger.total(name) for name in names]
        else:
            with stub:
                totals = [ledger.total(name) for name in names]
    except MmccError as problem:
        _check_sentence(str(problem))
        return False
    listed = second_reading(content)
    for total in totals:
        json.dumps(total.to_dict(), allow_nan=False)
        assert len(str(total).splitlines()) == 1
        _check_total(total, listed)
    return True


def _not_composed(*_: object) -> float:
    raise PrecisionError("not composed here.")


def _check_sentence(message: str) -> None:
    assert message, "an error without a word"
    assert len(message.splitlines()) == 1, message
    assert len(message) < 10_000, f"an error of {len(message)} characters"


def second_reading(content: bytes) -> list[dict[str, Any]]:
    """All objects of a ledger that is whole, or an error."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len({name for name, _ in pairs}) == len(pairs), "a key twice"
        return dict(pairs)

    found, previous = [], ""
    assert content == b"" or content.endswith(b"\n"), "a line that is not whole"
    for line in content.split(b"\n")[:-1]:
        body = json.loads(line.decode("ascii"), object_pairs_hook=once)
        check = body.pop("check")
        assert check == check_of(body, previous), "a line that is not sealed"
        previous = check
        found.append(body)
    return found


def _check_total(total: Any, listed: list[dict[str, Any]]) -> None:
    """No total is below what the lines add up to."""
    assert 0 <= total.epsilon < math.inf
    assert 0 <= total.delta <= 1
    own = [body for body in listed if body.get("data") == total.data]
    planned = [run for body in own if body["kind"] == "plan" for run in body["runs"]]
    begun = [body for body in own if body["kind"] == "begin"]
    free = [_key(run) for run in planned]
    outside = []
    for run in begun:
        if _key(run) in free:
            free.remove(_key(run))
        else:
            outside.append(run)
    epsilon, delta = _sums(outside)
    part = total.plan
    if planned:
        epsilon, delta = epsilon + Fraction(part.epsilon), delta + Fraction(part.delta)
        sums = _sums(planned)
        if part.method == compose.PAIRS:
            assert (part.epsilon, part.delta) >= (sums[0], min(sums[1], 1)), "a plan for less"
        for run in planned:
            least = least_delta(run, part.epsilon)
            assert least <= part.delta * (1 + SLACK) + 1e-300, "a plan below one of its runs"
    assert total.epsilon >= epsilon, "epsilon below the sum"
    assert total.delta >= min(delta, 1), "delta below the sum"
    assert total.adaptive == all(run["guarantee"]["adaptive"] for run in planned + begun)


def _key(run: dict[str, Any]) -> tuple[str, float, float]:
    pair = run["guarantee"]
    return canonical(run["fingerprint"]), pair["epsilon"], pair["delta"]


def _sums(runs: list[dict[str, Any]]) -> tuple[Fraction, Fraction]:
    pairs = [run["guarantee"] for run in runs]
    return (
        sum((Fraction(pair["epsilon"]) for pair in pairs), Fraction()),
        sum((Fraction(pair["delta"]) for pair in pairs), Fraction()),
    )


def least_delta(run: dict[str, Any], epsilon: float) -> float:
    """The delta at epsilon of the least private mechanism that the run's dots allow, *remove*.

    Below the chords of its dots, of the mirrored ones and of (0, 1); after the last dot flat.
    """
    pair = run["guarantee"]
    dots = [*run["curve"], [pair["epsilon"], pair["delta"], pair["delta"]]]
    dots = [dot for dot in dots if dot[0] <= 600]
    if not dots or epsilon > 600:
        return 0.0
    points = [(0.0, 1.0)]
    for e, remove, add in dots:
        points.append((math.exp(e), remove))
        points.append((math.exp(-e), -math.expm1(-e) + math.exp(-e) * add))
    x = math.exp(epsilon)
    lowest = min(height for place, height in points if place <= x)
    for left, high in points:
        for right, low in points:
            if left < x < right:
                chord = high + (low - high) * (x - left) / (right - left)
                lowest = min(lowest, chord)
    return lowest


@contextmanager
def around() -> Iterator[None]:
    """A folder for the file."""
    global _folder
    with tempfile.TemporaryDirectory() as folder:
        _folder = Path(folder)
        yield


FORMAT = Format("ledgers", make, feed, around)
