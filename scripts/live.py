"""Put a mutant into modules that are already imported.

In: a mutant.  Out: nothing; functions, constants and defaults of the live modules are changed.

The mutated module is run once in a scratch namespace, where its imports find the live modules.
From there a function's new code goes into the old function, which everyone keeps using; constants
go to every module that imported them; defaults of arguments and of dataclass fields go along.
Not followed: a constant of one module that another module's constant was computed from at import.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
from mutants import Mutant, changes_machine_code, importers, module_of, mutated
from numba.core.caching import NullCache
from numba.core.dispatcher import Dispatcher

PLAIN = (int, float, str, tuple, np.ndarray)


def apply(mutant: Mutant) -> None:
    """Become the mutant.  LookupError if nothing in the live module is different."""
    name = module_of(mutant.file)
    module = importlib.import_module(name)
    scratch = {"__name__": name, "__package__": module.__package__, "__file__": module.__file__}
    exec(mutated(mutant), scratch)
    changed = 0
    for key, new in list(scratch.items()):
        old = module.__dict__.get(key)
        if isinstance(new, type) and isinstance(old, type) and new.__module__ == name:
            for part in vars(new):
                changed += moved(vars(new)[part], vars(old).get(part))
        elif function_of(new) is not None and getattr(new, "__module__", None) == name:
            changed += moved(new, old)
        elif isinstance(new, PLAIN) and not key.startswith("__"):
            changed += spread_constant(key, old, new) if repr(old) != repr(new) else 0
        elif dataclasses.is_dataclass(new) and not isinstance(new, type) and repr(old) != repr(new):
            changed += spread_constant(key, old, type(old)(**dataclasses.asdict(new)))
    if not changed:
        raise LookupError(f"{mutant} changes nothing that is known")
    if changes_machine_code(mutant):
        forget_machine_code(importers(name))


def function_of(thing: Any) -> FunctionType | None:
    """The function inside a property, a method, a decorated or a compiled function."""
    for name in ("fget", "func", "__func__", "py_func", "__wrapped__"):
        inner = getattr(thing, name, None)
        if inner is not None and not isinstance(thing, FunctionType | type):
            return function_of(inner)
    if isinstance(thing, FunctionType):
        wrapped = getattr(thing, "__wrapped__", None)
        return function_of(wrapped) if wrapped is not None else thing
    return None


def moved(new: Any, old: Any) -> int:
    """Give the old function the new one's code and defaults; 1 if they differ."""
    source, target = function_of(new), function_of(old)
    if source is None or target is None or source is target:
        return 0
    same = target.__code__ == source.__code__
    same &= repr(target.__defaults__) == repr(source.__defaults__)
    same &= repr(target.__kwdefaults__) == repr(source.__kwdefaults__)
    if same:
        return 0
    target.__code__ = source.__code__
    target.__defaults__ = source.__defaults__
    target.__kwdefaults__ = source.__kwdefaults__
    return 1


def spread_constant(name: str, old: Any, new: Any) -> int:
    """Set a constant in every module that holds the old object under this name."""
    holders = [m for m in sys.modules.values() if isinstance(m, ModuleType)]
    holders = [m for m in holders if m.__name__.startswith(("mmcc", "tests"))]
    for module in holders:
        if module.__dict__.get(name) is old:
            setattr(module, name, new)
    return 1


def forget_machine_code(modules: set[str]) -> None:
    """Make the kernels of these modules compile afresh, and leave the cache on disk alone."""
    for name in modules & set(sys.modules):
        for thing in vars(sys.modules[name]).values():
            if isinstance(thing, Dispatcher):
                if thing.overloads:
                    raise LookupError(f"{thing} was compiled before it could be changed")
                thing._cache = NullCache()  # type: ignore[attr-defined]
