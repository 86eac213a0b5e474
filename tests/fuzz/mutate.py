"""Damage of every kind: to bytes, to nested objects, to numbers as text."""

from __future__ import annotations

import copy
import random
from typing import Any

BYTES = (b"\0", b"\xff", b"\n", b"\r\n", b"\xef\xbb\xbf", b"PK\x03\x04", b"\x93NUMPY")
VALUES: tuple[Any, ...] = (
    *(0, 1, -1, 2, 7, 8, 9, 255, 2**31, 2**53 + 1, 2**63, 10**12, 10**12 + 1, 10**18, 10**30),
    *(0.0, -0.0, 0.5, 1.0, 1.5, -1.5, 1e-6, 5e-324, 1e-310, 1e-300, 1e-17, 1e17, 1e100, 1e308),
    *(float("nan"), float("inf"), float("-inf"), 10**400, -(10**400), 0.1 + 0.2, 1 - 2**-53),
    *(True, False, None, "", " ", "0", "1.0", "nan", "x", "a\nb", "\x1b[2J", "\ud800", "\u2028"),
    *("\u0661\u0662", "x" * 3000, "\x00", "../../x", "é", [], {}, [[]], [0], [1, 2, 3], {"a": 1}),
)


def mutated_bytes(rng: random.Random, content: bytes, times: int | None = None) -> bytes:
    """A few pieces replaced, put in, taken out, repeated, cut off."""
    for _ in range(times or 1 + int(rng.expovariate(0.7))):
        at, end = sorted(rng.randrange(len(content) + 1) for _ in range(2))
        end = min(end, at + rng.choice((1, 2, 8, 64, 10**6)))
        kind = rng.randrange(7)
        if kind == 0 and content:
            at = min(at, len(content) - 1)
            flipped = content[at] ^ (1 << rng.randrange(8))
            content = content[:at] + bytes([flipped]) + content[at + 1 :]
        elif kind == 1:
            piece = rng.randbytes(rng.randint(1, 6))
            content = content[:at] + piece + content[at + len(piece) :]
        elif kind == 2:
            content = content[:at] + rng.choice(BYTES) + content[at:]
        elif kind == 3:
            content = content[:at] + content[end:]
        elif kind == 4:
            content = content[:end] + content[at:end] + content[end:]
        elif kind == 5:
            content = content[:at]
        else:
            content = (
                content[:at]
                + bytes([rng.choice(b"0123456789eE+-.,;xL \t\"'{}[]()")])
                + (content[at + 1 :])
            )
    return content


def mutated_tree(rng: random.Random, tree: Any, values: tuple[Any, ...] = VALUES) -> Any:
    """A copy of dicts and lists with one to three places changed; sequences may become longer."""
    tree = copy.deepcopy(tree)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        places = list(_places(tree))
        if not places:
            return rng.choice(values)
        holder, key = rng.choice(places)
        kind = rng.randrange(10)
        if kind <= 3:
            holder[key] = copy.deepcopy(rng.choice(values))
        elif kind <= 5:
            holder[key] = _nudged(rng, holder[key])
        elif kind == 6:
            del holder[key]
        elif kind == 7:
            other, place = rng.choice(places)
            if place in other if isinstance(other, dict) else place < len(other):
                holder[key] = copy.deepcopy(other[place])
        elif kind == 8 and isinstance(holder, dict):
            name = rng.choice(("", "extra", "check", "epsilon", "digest", 0, "x" * 100))
            holder[name] = rng.choice(values)
        elif isinstance(holder, list):
            holder.insert(rng.randrange(len(holder) + 1), copy.deepcopy(holder[key]))
        else:
            holder[key] = _nested(rng.choice((1, 2, 50, 400)), holder[key], rng.random() < 0.5)
    return tree


def _places(tree: Any) -> Any:
    """Every (container, key) of a tree."""
    keys = list(tree) if isinstance(tree, dict) else range(len(tree))
    for key in keys:
        yield tree, key
        if isinstance(tree[key], (dict, list)) and tree[key]:
            yield from _places(tree[key])


def _nudged(rng: random.Random, value: Any) -> Any:
    """A value close to what was there."""
    if isinstance(value, bool):
        return rng.choice((not value, int(value), str(value)))
    if isinstance(value, int):
        near = float(value) if abs(value) < 2**1000 else float("inf")
        return rng.choice((value + 1, value - 1, -value, near, str(value), value * 10**6))
    if isinstance(value, float):
        scale = rng.choice((-1.0, 0.5, 2.0, 1e-9, 1e-300, 1e9, 1 + 2**-52))
        return rng.choice((value * scale, value * scale, -value, str(value), [value]))
    if isinstance(value, str):
        cut = value[: rng.randrange(len(value) + 1)]
        coded = value.encode(errors="surrogatepass").hex()
        return rng.choice((cut, value + "0", value.upper(), coded, [value]))
    return [value]


def _nested(depth: int, value: Any, as_list: bool) -> Any:
    for _ in range(depth):
        value = [value] if as_list else {"a": value}
    return value
