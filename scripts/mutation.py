"""Mutation testing of the accounting core: the small faults in it that no test would notice.

    python scripts/mutation.py map                        # once: which test runs which line
    python scripts/mutation.py run --sample 300 --seed 0  # can be resumed, or run twice at once
    python scripts/mutation.py report

In: `src/mmcc/accounting`, the default tests.  Out: JSON lines in `--folder`, one for each mutant.

A mutant (`mutants`) is never written to disk.  One process imports and collects everything; for
each mutant it forks a child, which puts the changed code into the live module (`live`) and runs
tests at once.  Machine code on disk is shared by all children, except that of kernels which the
change can reach: they compile afresh, because numba's cache looks at the file alone.

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
import json
import os
import random
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from live import apply
from mutants import (
    CORE,
    ROOT,
    SOURCE,
    Mutant,
    changes_machine_code,
    kernels,
    mutants,
    seen_lines,
)

TESTS = ("unit", "soundness", "tightness", "estimates", "properties", "api")
GRACE = 8.0
"""Seconds of processor time that any test may take, beyond three times what it usually takes."""
COMPILING = 40.0
"""The same for a mutant whose kernels must be compiled."""
DEAR = 1.0
"""Of a test that takes longer than this one case is enough for the map."""
SLOWEST = 8.0
"""Tests that take longer are not used."""
MEMORY = 6 * 2**30
PLAIN = ("-p", "no:cacheprovider", "-p", "no:dash", "-p", "no:xdist", "--no-header", "--tb=no")


@dataclass(frozen=True)
class Test:
    """A test, its usual processor time, and the lines of the core that it runs."""

    name: str
    seconds: float
    lines: frozenset[tuple[str, int]]

    @property
    def function(self) -> str:
        """The test without its case."""
        return self.name.partition("[")[0]


def in_child(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a forked process answers, and its processor time; or how it ended."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryFile("w+") as shared:
        child = os.fork()
        if child == 0:
            try:
                quiet = os.open(os.devnull, os.O_WRONLY)
                os.dup2(quiet, 1)
                os.dup2(quiet, 2)
                resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
                answer = work()
            except BaseException as error:
                answer = {"untried": repr(error)}
            json.dump(answer, shared)
            shared.flush()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        shared.seek(0)
        text = shared.read()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    ended = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    return {**(json.loads(text) if text else {"signal": ended}), "seconds": round(seconds, 2)}


def limit(seconds: float) -> None:
    """End the process after so much more processor time, also inside a compiled loop."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, seconds)


class Server:
    """A pytest plugin that forks instead of running the tests it has collected."""

    def __init__(self, work: Callable[[dict[str, Any]], None]) -> None:
        self.work = work

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: Any) -> bool:
        """Hand over all tests by name."""
        if session.testsfailed:
            raise session.Interrupted("tests cannot be collected")
        self.work({item.nodeid: item for item in session.items})
        return True


def serve(work: Callable[[dict[str, Any]], None], tests: Sequence[str]) -> None:
    """Collect, then work."""
    sys.dont_write_bytecode = True
    pytest.main([*(f"tests/{name}" for name in tests), *PLAIN], plugins=[Server(work)])


class Lines:
    """Records the lines of the core that are run."""

    def __init__(self) -> None:
        self.seen: dict[str, set[int]] = {}

    def trace(self, frame: FrameType, _event: str, _arg: object) -> Callable[..., Any] | None:
        """For `sys.settrace`: frames of other files are not followed."""
        file = frame.f_code.co_filename
        if not file.startswith(str(CORE)):
            return None
        seen = self.seen.setdefault(file[len(str(SOURCE)) + 1 :], set())

        def line(frame: FrameType, _event: str, _arg: object) -> Callable[..., Any]:
            seen.add(frame.f_lineno)
            return line

        return line


def traced(item: Any) -> dict[str, Any]:
    """In a child: run one test and say what it ran."""
    lines = Lines()
    limit(SLOWEST)
    start = time.process_time()
    sys.settrace(lines.trace)
    reports = runtestprotocol(item, nextitem=None, log=False)
    sys.settrace(None)
    used = time.process_time() - start
    passed = not any(report.failed for report in reports)
    found = {file: sorted(seen) for file, seen in lines.seen.items()}
    return {"used": round(used, 3), "lines": found, "passed": passed}


def make_map(folder: Path, items: dict[str, Any]) -> None:
    """Run every test that is not known yet, but of dear ones only the first case.

    The other cases are taken to be like it.
    """
    path = folder / "map.jsonl"
    texts = path.read_text().splitlines() if path.exists() else []
    known = {entry["test"]: entry for entry in map(json.loads, texts)}
    dear: dict[str, str] = {}
    for name in items:
        function = name.partition("[")[0]
        if name in known:
            if known[name].get("seconds", 0.0) > DEAR:
                dear.setdefault(function, name)
            continue
        if function in dear:
            entry: dict[str, Any] = {"test": name, "like": dear[function]}
        else:
            found = in_child(lambda name=name: traced(items[name]))  # type: ignore[misc]
            entry = {"test": name, "seconds": found.get("used", SLOWEST)}
            entry["lines"] = found["lines"] if found.get("passed") else {}
            if entry["seconds"] > DEAR:
                dear[function] = name
        with path.open("a") as stream:
            stream.write(json.dumps(entry) + "\n")


def read_map(folder: Path) -> list[Test]:
    """Tests with what they run."""
    entries = [json.loads(text) for text in (folder / "map.jsonl").read_text().splitlines()]
    found: dict[str, Test] = {}
    for entry in entries:
        if "lines" in entry:
            lines = frozenset((file, line) for file, all in entry["lines"].items() for line in all)
            found[entry["test"]] = Test(entry["test"], entry["seconds"], lines)
        elif entry["like"] in found:
            found[entry["test"]] = replace(found[entry["like"]], name=entry["test"])
    return list(found.values())


def known_tests(folder: Path, items: dict[str, Any]) -> list[Test]:
    """Mapped tests that were collected; those which call a kernel themselves have its name."""
    found = []
    for test in read_map(folder):
        if test.name in items:
            named = kernels() & set(items[test.name].function.__code__.co_names)
            found.append(replace(test, lines=test.lines | {(name, 0) for name in named}))
    return found


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


def attacked(mutant: Mutant, tests: Sequence[Test], items: dict[str, Any]) -> dict[str, Any]:
    """In a child: become the mutant, and run tests until one fails."""
    grace = GRACE + (COMPILING if changes_machine_code(mutant) else 0.0)
    limit(grace)
    try:
        apply(mutant)
    except LookupError:
        raise
    except Exception as error:
        return {"killed": True, "by": f"import: {error!r}", "ran": 0}
    for ran, test in enumerate(tests, 1):
        limit(3 * test.seconds + grace)
        following = items[tests[ran].name] if ran < len(tests) else None
        for report in runtestprotocol(items[test.name], nextitem=following, log=False):
            if report.failed:
                return {"killed": True, "by": report.nodeid, "ran": ran}
    return {"killed": False, "by": "", "ran": len(tests)}


def verdict_of(mutant: Mutant, tests: Sequence[Test], items: dict[str, Any]) -> dict[str, Any]:
    """Killed, and by what, or not."""
    found = in_child(lambda: attacked(mutant, tests, items))
    if "untried" in found:
        raise RuntimeError(f"{mutant} could not be tried: {found['untried']}")
    if "signal" in found:
        by = "time" if found["signal"] == signal.SIGPROF else f"signal {found['signal']}"
        return {"killed": True, "by": by, "seconds": found["seconds"]}
    return found


def sampled(sample: int, seed: int, without: Sequence[str]) -> list[Mutant]:
    """Some of all mutants, every one as likely as any other, but for parts that are left out."""
    parts = tuple(f"mmcc/accounting/{part}" for part in without)
    everything = [mutant for mutant in mutants() if not mutant.file.startswith(parts)]
    return random.Random(seed).sample(everything, min(sample, len(everything)))


def claimed(folder: Path, name: str, budget: float) -> bool:
    """Whether this process is the first to take a mutant, with this budget."""
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


def run(
    folder: Path, wanted: Sequence[Mutant], budgets: Sequence[float], items: dict[str, Any]
) -> None:
    """Every mutant against ever costlier sets of tests until one kills it."""
    tests = known_tests(folder, items)
    for budget in budgets:
        for mutant in wanted:
            if results(folder).get(mutant.name, {}).get("killed"):
                continue
            if not claimed(folder, mutant.name, budget):
                continue
            chosen = tests_for(mutant, tests, budget)
            verdict = verdict_of(mutant, chosen, items)
            entry = asdict(mutant) | verdict | {"tests": len(chosen), "budget": budget}
            with (folder / "results.jsonl").open("a") as stream:
                stream.write(json.dumps(entry) + "\n")


def report(folder: Path, wanted: Sequence[Mutant]) -> None:
    """Print the score and the survivors."""
    known = results(folder)
    listed = [known[m.name] for m in wanted if m.name in known]
    killed = [entry for entry in listed if entry["killed"]]
    print(f"{len(killed)} of {len(listed)} killed: {len(killed) / max(len(listed), 1):.1%}")
    for entry in listed:
        if not entry["killed"]:
            place = f"{entry['file'].removeprefix('mmcc/accounting/')}#{entry['index']}"
            change = f"{entry['before']}  ->  {entry['after']}"
            print(f"{place}:{entry['line']}  {change}  [{entry['tests']} tests]")


def main() -> None:
    """Parse, and do one thing."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=["map", "list", "run", "report"])
    parser.add_argument("--folder", type=Path, default=ROOT / ".mutation")
    parser.add_argument("--sample", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--without", nargs="+", default=[], help="parts, such as _bounds/chain/")
    parser.add_argument("--only", nargs="+", help="names of mutants (file#index), not a sample")
    parser.add_argument("--budgets", type=float, nargs="+", default=[3.0, 12.0, 60.0])
    parser.add_argument("--tests", nargs="+", default=TESTS, help="folders or files below tests/")
    chosen = parser.parse_args()
    os.chdir(ROOT)
    sys.path.insert(0, str(SOURCE))
    folder = chosen.folder.resolve()
    folder.mkdir(exist_ok=True)
    os.environ.setdefault("NUMBA_CACHE_DIR", str(folder / "kernels"))
    if chosen.what == "map":
        serve(lambda items: make_map(folder, items), chosen.tests)
        return
    wanted = sampled(chosen.sample, chosen.seed, chosen.without)
    if chosen.only:
        wanted = [m for m in mutants() if m.name.removeprefix("mmcc/accounting/") in chosen.only]
    if chosen.what == "list":
        for mutant in wanted:
            print(f"{mutant.name}:{mutant.line} {mutant.kind}: {mutant.before} -> {mutant.after}")
    elif chosen.what == "run":
        serve(lambda items: run(folder, wanted, chosen.budgets, items), chosen.tests)
    else:
        report(folder, wanted)


if __name__ == "__main__":
    main()
