"""Mutation testing of the accounting core: the small faults in it that no test would notice.

    python scripts/mutation.py map                        # once: which test runs which line
    python scripts/mutation.py run --sample 300 --seed 0  # can be resumed, or run twice at once
    python scripts/mutation.py report

In: `src/mmcc/accounting`, the default tests.  Out: JSON lines in `--folder`, one for each mutant.

A mutant (`mutants`) is never written to disk.  A parent imports numpy, scipy, numba and pytest but
not mmcc and forks a child for each mutant, which imports the one changed module from memory.  So
machine code on disk may be shared by all children, except that of kernels which the change can
reach: they compile afresh, because numba's cache looks at the file alone.

A mutant meets the default tests that run its line (`mutants.seen_lines`), cheap ones first, one
case of a test before the next of the same, up to a total cost; survivors meet the next budget.
It is killed by a failing test, an exception at import, a crash, or a test that takes three times
its usual processor time and GRACE; the clock on the wall decides nothing.  Tests that start
another Python see the original there.

Why our own: cosmic-ray rewrites the file under numba's cache and starts pytest anew for every
mutant; mutmut puts a trampoline around every function, which numba cannot compile.
"""

from __future__ import annotations

import argparse
import fcntl
import importlib.abc
import importlib.util
import json
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

from mutants import (
    CORE,
    ROOT,
    SOURCE,
    Mutant,
    changes_machine_code,
    importers,
    module_of,
    mutants,
    mutated,
    seen_lines,
)

TESTS = ("unit", "soundness", "tightness", "estimates", "properties", "api")
GRACE = 20.0
"""Seconds of processor time that any test may take, beyond three times what it usually takes."""
COMPILING = 40.0
"""The same for a mutant whose kernels must be compiled."""
CASES = 3
"""How many cases of one test are run for the map."""
MEMORY = 6 * 2**30
REWRITTEN = "ignore::pytest.PytestAssertRewriteWarning"
"""Hypothesis is imported before pytest could look at it."""
UNTRIED = 70
"""Exit code of a child that never came to the tests."""
PLAIN = ("-p", "no:cacheprovider", "-p", "no:dash", "--no-header", "--tb=line")


class Lines:
    """A pytest plugin that records for every test its processor time and the lines it runs.

    Of a test with many cases only CASES are run; the others are taken to be like them.
    """

    def __init__(self, out: Path) -> None:
        self.out = out
        self.seen: set[tuple[str, int]] = set()
        self.prefix = str(CORE)

    def trace(self, frame: FrameType, event: str, arg: object) -> Callable[..., Any] | None:
        file = frame.f_code.co_filename
        if not file.startswith(self.prefix):
            return None
        seen, name = self.seen, file[len(str(SOURCE)) + 1 :]

        def line(frame: FrameType, _event: str, _arg: object) -> Callable[..., Any]:
            seen.add((name, frame.f_lineno))
            return line

        return line

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        cases: dict[str, list[Any]] = {}
        for item in items:
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
        kept = set()
        for alike in cases.values():
            step = max(-(-len(alike) // CASES), 1)
            for place, item in enumerate(alike):
                if place % step == 0:
                    kept.add(item)
                else:
                    self.write({"test": item.nodeid, "like": alike[place - place % step].nodeid})
        items[:] = [item for item in items if item in kept]

    def pytest_runtest_protocol(self, item: Any) -> None:
        self.seen.clear()
        self.start = time.process_time()
        sys.settrace(self.trace)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        sys.settrace(None)
        seconds = round(time.process_time() - self.start, 3)
        lines: dict[str, list[int]] = {}
        for file, line in sorted(self.seen):
            lines.setdefault(file, []).append(line)
        self.write({"test": nodeid, "seconds": seconds, "lines": lines})

    def write(self, entry: dict[str, Any]) -> None:
        with self.out.open("a") as stream:
            stream.write(json.dumps(entry) + "\n")


def make_map(folder: Path, folders: Sequence[str]) -> None:
    """Run the default tests once, with lines recorded."""
    import pytest

    plugins = [Lines(folder / "map.jsonl")]
    pytest.main([*(f"tests/{name}" for name in folders), *PLAIN], plugins=plugins)


@dataclass(frozen=True)
class Test:
    """A test, its usual processor time, and the lines of the core that it runs."""

    name: str
    seconds: float
    lines: frozenset[tuple[str, int]]

    @property
    def function(self) -> str:
        return self.name.partition("[")[0]


def read_map(folder: Path) -> list[Test]:
    """Tests with what they run; of a test that was recorded twice, the later record."""
    entries = [json.loads(text) for text in (folder / "map.jsonl").read_text().splitlines()]
    found: dict[str, Test] = {}
    for entry in entries:
        if "lines" in entry:
            lines = frozenset((file, line) for file, all in entry["lines"].items() for line in all)
            found[entry["test"]] = Test(entry["test"], entry["seconds"], lines)
    for entry in entries:
        if entry.get("like") in found and entry["test"] not in found:
            found[entry["test"]] = replace(found[entry["like"]], name=entry["test"])
    return list(found.values())


def tests_for(mutant: Mutant, tests: Sequence[Test], budget: float) -> list[Test]:
    """Tests that run the mutant's lines, cheap and various first, up to a total cost."""
    wanted = seen_lines(mutant)
    able = sorted((t for t in tests if wanted & t.lines), key=lambda t: (t.seconds, t.name))
    rounds: dict[str, int] = {}
    ranked = []
    for test in able:
        turn = rounds[test.function] = rounds.get(test.function, -1) + 1
        # The later cases of a test are worth less than the first of another one.
        ranked.append(((test.seconds + 0.02) * (1 + turn), test.name, test))
    chosen = []
    for _, _, test in sorted(ranked, key=lambda entry: entry[:2]):
        if test.seconds <= budget:
            chosen.append(test)
            budget -= test.seconds
    return chosen


class Mutated(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from memory."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant
        self.module = module_of(mutant.file)
        self.code = mutated(mutant)

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != self.module:
            return None
        file = str(SOURCE / self.mutant.file)
        folders = [str(Path(file).parent)] if file.endswith("__init__.py") else None
        return importlib.util.spec_from_file_location(
            name, file, loader=self, submodule_search_locations=folders
        )

    def create_module(self, spec: Any) -> None:
        return None

    def exec_module(self, module: Any) -> None:
        exec(self.code, module.__dict__)


class Chosen:
    """A pytest plugin: these tests in this order, each with a limit of processor time."""

    def __init__(self, tests: Sequence[Test], grace: float) -> None:
        self.place = {test.name: place for place, test in enumerate(tests)}
        self.limit = {test.name: 3 * test.seconds + grace for test in tests}
        self.failed = ""
        self.ran = 0

    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        items[:] = [item for item in items if item.nodeid in self.place]
        items.sort(key=lambda item: self.place[item.nodeid])

    def pytest_runtest_protocol(self, item: Any, nextitem: Any) -> None:
        # The default action of SIGPROF ends the process, also inside a compiled loop.
        signal.setitimer(signal.ITIMER_PROF, self.limit[item.nodeid])
        self.ran += 1

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.failed = self.failed or report.nodeid

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.failed = self.failed or f"import: {report.nodeid}"


def fresh_kernels(modules: set[str]) -> None:
    """Compile the kernels of these modules anew, and leave the cache on disk alone."""
    import numba

    original = numba.njit

    def njit(*arguments: Any, **options: Any) -> Any:
        def decorate(function: Any) -> Any:
            mine = {**options, "cache": options.get("cache", False)}
            if function.__module__ in modules:
                mine["cache"] = False
            return original(**mine)(function)

        return decorate(arguments[0]) if arguments else decorate

    numba.njit = njit


def try_tests(mutant: Mutant | None, tests: Sequence[Test], answer: int) -> None:
    """In a child: import the mutant, run the tests, write what happened, end the process."""
    import pytest

    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    grace = GRACE
    if mutant is not None:
        sys.meta_path.insert(0, Mutated(mutant))
        if changes_machine_code(mutant):
            fresh_kernels(importers(module_of(mutant.file)))
            grace += COMPILING
    sys.dont_write_bytecode = True
    chosen = Chosen(tests, grace)
    signal.setitimer(signal.ITIMER_PROF, grace + 20)
    files = list(dict.fromkeys(test.name.partition("::")[0] for test in tests))
    code = pytest.main([*files, *PLAIN, "-x", "-W", REWRITTEN], plugins=[chosen])
    os.write(
        answer, json.dumps({"code": int(code), "by": chosen.failed, "ran": chosen.ran}).encode()
    )
    os._exit(0)


def verdict_of(mutant: Mutant | None, tests: Sequence[Test]) -> dict[str, Any]:
    """Fork, wait, and say killed (and by what) or survived."""
    read, write = os.pipe()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    child = os.fork()
    if child == 0:
        os.close(read)
        try:
            try_tests(mutant, tests, write)
        except BaseException as error:
            os.write(write, repr(error).encode())
        finally:
            os._exit(UNTRIED)
    os.close(write)
    _, status = os.waitpid(child, 0)
    os.set_blocking(read, False)  # a worker that a test left behind may hold the other end
    with os.fdopen(read) as stream:
        text = stream.read()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == UNTRIED:
        raise RuntimeError(f"{mutant} could not be tried: {text}")
    if not text:
        ended = os.WTERMSIG(status) if os.WIFSIGNALED(status) else -os.WEXITSTATUS(status)
        by = "time" if ended == signal.SIGPROF else f"crash {ended}"
        return {"killed": True, "by": by, "seconds": seconds}
    answer = json.loads(text)
    killed = answer["code"] not in (0, 5)
    return {"killed": killed, "by": answer["by"], "ran": answer["ran"], "seconds": seconds}


def sampled(sample: int, seed: int) -> list[Mutant]:
    """Some of all mutants, every one as likely as any other."""
    everything = mutants()
    return random.Random(seed).sample(everything, min(sample, len(everything)))


def claim(folder: Path, name: str, budget: float) -> bool:
    """Whether this process is the first to take a mutant, in this stage."""
    with (folder / "claims.txt").open("a+") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        stream.seek(0)
        key = f"{name} {budget:g}\n"
        if key in stream.read().splitlines(keepends=True):
            return False
        stream.write(key)
        return True


def results(folder: Path) -> dict[str, dict[str, Any]]:
    """The last verdict of every mutant."""
    path = folder / "results.jsonl"
    found = {}
    for text in path.read_text().splitlines() if path.exists() else ():
        entry = json.loads(text)
        found[f"{entry['file']}#{entry['index']}"] = entry
    return found


def run(folder: Path, sample: int, seed: int, budgets: Sequence[float]) -> None:
    """Every sampled mutant against ever costlier sets of tests until one kills it."""
    preload()
    tests = read_map(folder)
    for budget in budgets:
        for mutant in sampled(sample, seed):
            if results(folder).get(mutant.name, {}).get("killed"):
                continue
            if not claim(folder, mutant.name, budget):
                continue
            chosen = tests_for(mutant, tests, budget)
            verdict = verdict_of(mutant, chosen) if chosen else {"killed": False, "ran": 0}
            entry = asdict(mutant) | verdict | {"tests": len(chosen), "budget": budget}
            with (folder / "results.jsonl").open("a") as stream:
                stream.write(json.dumps(entry) + "\n")
            print(f"{mutant.name}:{mutant.line} {verdict}", flush=True)


def preload() -> None:
    """Import what every test needs, but nothing of mmcc."""
    import hypothesis
    import mpmath  # type: ignore[import-untyped]
    import numba
    import pytest
    import scipy.linalg
    import scipy.optimize
    import scipy.signal
    import scipy.special
    import scipy.stats

    del hypothesis, mpmath, numba, pytest, scipy


def report(folder: Path, sample: int, seed: int) -> None:
    """Print the score and the survivors."""
    known = results(folder)
    listed = [known[m.name] for m in sampled(sample, seed) if m.name in known]
    killed = [entry for entry in listed if entry["killed"]]
    print(f"{len(killed)} of {len(listed)} killed: {len(killed) / max(len(listed), 1):.1%}")
    print(f"{sum(entry.get('seconds', 0) for entry in listed):.0f} s of processor time")
    for entry in listed:
        if not entry["killed"]:
            place = f"{entry['file'].removeprefix('mmcc/accounting/')}:{entry['line']}"
            print(f"{place}  {entry['before']}  ->  {entry['after']}  [{entry['tests']} tests]")


def main() -> None:
    """Parse, and do one thing."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=["map", "list", "run", "report", "check"])
    parser.add_argument("--folder", type=Path, default=ROOT / ".mutation")
    parser.add_argument("--sample", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--budgets", type=float, nargs="+", default=[12.0, 60.0])
    parser.add_argument("--tests", nargs="+", default=TESTS, help="folders or files, for map")
    chosen = parser.parse_args()
    os.chdir(ROOT)
    sys.path.insert(0, str(SOURCE))
    chosen.folder.mkdir(exist_ok=True)
    os.environ.setdefault("NUMBA_CACHE_DIR", str(chosen.folder.resolve() / "kernels"))
    if chosen.what == "map":
        make_map(chosen.folder, chosen.tests)
    elif chosen.what == "list":
        for mutant in sampled(chosen.sample, chosen.seed):
            print(f"{mutant.name}:{mutant.line} {mutant.kind}: {mutant.before} -> {mutant.after}")
    elif chosen.what == "run":
        run(chosen.folder, chosen.sample, chosen.seed, chosen.budgets)
    elif chosen.what == "check":
        preload()
        print(verdict_of(None, read_map(chosen.folder)))
    else:
        report(chosen.folder, chosen.sample, chosen.seed)


if __name__ == "__main__":
    main()
