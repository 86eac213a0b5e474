"""A function that no loader may ever call, and pickles that ask for it."""

from __future__ import annotations

import pickle

calls: list[object] = []


def sing(*arguments: object) -> str:
    """Note that code named in a file was run."""
    calls.append(arguments)
    return "sung"


def named(module: str, name: str, argument: str = "fuzz") -> bytes:
    """A pickle that calls a function by name as soon as it is read, written by hand."""
    return (
        b"\x80\x02c" + f"{module}\n{name}\n".encode() + b"X" + len(argument).to_bytes(4, "little")
    ) + (argument.encode() + b"\x85R.")


PICKLES = (
    named("fuzz.canary", "sing"),
    named("os", "system", "true"),
    named("posix", "system", "true"),
    named("builtins", "eval", "__import__('fuzz.canary').canary.sing()"),
    named("builtins", "exec", "import fuzz.canary; fuzz.canary.sing()"),
    named("builtins", "__import__", "fuzz.canary"),
    named("subprocess", "check_output", "true"),
    named("torch.hub", "load", "fuzz"),
    named("numpy", "load", "m.npy"),
    named("operator", "attrgetter", "x"),
    named("torch.serialization", "load", "m.npy"),
    pickle.dumps([1, 2.5, "text", {"a": (None, True)}], 2),
)
"""The first one is heard if it is run; the others would be harmless."""
