"""Checks of an installation: versions, compiled kernels, a known epsilon, optional packages.

In: nothing.  Out: one `Check` for each part, with what to do if something is wrong.
What is required, and what is optional but installed, must work; optional parts may be missing.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module, metadata
from math import isqrt

from mmcc._methods import MMCC, TIGHT

PYTHON = (3, 10)
REQUIRED = (
    "numpy>=1.26",
    "scipy>=1.11",
    "numba>=0.59",
    "threadpoolctl>=3.1",
    "click>=8.1",
    "rich>=13",
)
EXTRAS = {
    "train": ("torch>=2.6", "opacus>=1.6,<1.7"),
    "plot": ("matplotlib>=3.8",),
    "report": ("jinja2>=3.1", "matplotlib>=3.8"),
    "explore": ("dash>=4",),
    "bridge": ("dp-accounting>=0.4.4",),
    "cluster": ("distributed>=2024.1",),
    "secure": ("cryptography>=42",),
}
"""The requirements of pyproject.toml, which is not part of an installation."""

OK, BROKEN, ABSENT, NOTE = "ok", "broken", "not installed", "note"

STEPS, CHANCE, SIGMA, DELTA = 16, 1 / 16, 8.0, 1e-6
KNOWN = {TIGHT: 1.0448688777271822, MMCC: 3.3993726192349922}
"""Epsilon of a binary tree under Poisson sampling by two bounds, as computed at release."""
LOWER = 1.0385398959724323
"""A certified lower bound on its true epsilon; a smaller number would be wrong."""
BAND = 1e-4
"""The relative difference that other versions of numpy and scipy may cause."""

KERNELS = (
    "mmcc.accounting._losses.row_loops",
    "mmcc.strategies._recurrences",
    "mmcc.strategies._banded_error",
)
IMPORTS = {
    "plot": "import matplotlib.figure, matplotlib.ticker",
    "report": "import jinja2, matplotlib.figure",
    "explore": "import dash",
    "bridge": "import dp_accounting",
    "cluster": "import distributed",
    "secure": "import cryptography.hazmat.primitives.ciphers",
    "train": "from mmcc.training import make_private",
}
"""What must be importable for an extra to be usable; torch, the slowest, comes last."""
ANSWER = "mmcc doctor: "
"""The prefix of answers from the importing process, as packages may print other lines."""
PATIENCE = 120.0
"""Seconds allowed for all imports, on a busy machine."""
COPIES = 4
"""How many matrices of the size of a dense strategy may be held at once."""


@dataclass(frozen=True)
class Check:
    """One part of the installation: its state, what was found, and what to do about it."""

    name: str
    state: str
    seen: str
    remedy: str = ""

    def to_dict(self) -> dict[str, str]:
        """All fields, ready for JSON."""
        return asdict(self)


def examine() -> list[Check]:
    """Run every check; optional packages are imported in another process meanwhile."""
    with _importing() as process:
        try:
            found = [_python(), *_packages(), *_answers(), *_numbers()]
            return [*found, *_extras(_import_results(process)), _memory()]
        finally:
            process.kill()  # it has ended, except after Ctrl-C


def works(checks: Iterable[Check]) -> bool:
    """Whether nothing is broken."""
    return all(check.state != BROKEN for check in checks)


# ---------------------------------------------------------------------------------- versions


def _python() -> Check:
    least = ".".join(map(str, PYTHON))
    seen = f"{platform.python_version()} ({platform.system()}, {platform.machine()})"
    if sys.version_info < PYTHON:
        return Check("Python", BROKEN, seen, f"Use Python {least} or newer.")
    return Check("Python", OK, f"{seen}; needs {least}")


def _packages() -> Iterator[Check]:
    for requirement in REQUIRED:
        name, wanted = _parse(requirement)
        version = _version(name)
        remedy = f"pip install '{requirement}'."
        if version is None:
            yield Check(name, BROKEN, "not installed", remedy)
        elif not _fits(version, wanted):
            yield Check(name, BROKEN, f"{version}; needs {wanted}", remedy)
        else:
            yield Check(name, OK, f"{version}; needs {wanted}")


def _extras(imported: Mapping[str, str | None]) -> Iterator[Check]:
    """Optional packages, by the name of the extra: whether installed, and whether importable."""
    for extra, requirements in EXTRAS.items():
        found = _check_installed(extra, requirements)
        if found.state == ABSENT:
            yield found
            continue
        again = f"pip install --force-reinstall 'mmcc[{extra}]'."
        what = "make_private " if extra == "train" else ""
        said = imported.get(extra)
        if said is None:
            seen = f"{found.seen}; {what}was not imported"
            yield Check(found.name, NOTE, seen, found.remedy or again)
        elif said:
            seen = f"{found.seen}; {what}cannot be imported: {said}"
            yield Check(found.name, BROKEN, seen, again)
        else:
            seen = f"{found.seen}; {what}can be imported"
            yield Check(found.name, found.state, seen, found.remedy)


def _check_installed(extra: str, requirements: Iterable[str]) -> Check:
    remedy = f"pip install 'mmcc[{extra}]'."
    versions = {}
    for requirement in requirements:
        name, wanted = _parse(requirement)
        version = _version(name)
        if version is None:
            return Check(f"extra {extra}", ABSENT, f"{name} is not installed", remedy)
        if not _fits(version, wanted):
            return Check(f"extra {extra}", NOTE, f"{name} {version}; needs {wanted}", remedy)
        versions[name] = version
    seen = ", ".join(f"{name} {version}" for name, version in versions.items())
    return Check(f"extra {extra}", OK, seen)


def _parse(requirement: str) -> tuple[str, str]:
    name = re.split("[<>=]", requirement, maxsplit=1)[0]
    return name, requirement.removeprefix(name)


def _version(name: str) -> str | None:
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(name)
    return None


def _fits(version: str, wanted: str) -> bool:
    """Whether a version such as 2.13.0+cpu is within bounds such as `>=1.6,<1.7`."""
    have = _release(version)
    for bound in wanted.split(","):
        limit = _release(bound.lstrip("<>="))
        if not (have >= limit if bound.startswith(">=") else have < limit):
            return False
    return True


def _release(version: str) -> tuple[int, ...]:
    leading = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in leading.group().split(".")) if leading else ()


# ---------------------------------------------------------------- kernels and the known epsilon


def _answers() -> list[Check]:
    """Check the known epsilon by every bound, and compiled kernels by its first use."""
    try:
        import_module("mmcc.accounting._questions")  # importing scipy and numba is not timed
        seconds = [_seconds(MMCC) for _ in range(2)]
        numbers = {method: _epsilon(method) for method in KNOWN}
    except Exception as problem:  # any error is the answer to the check
        said = " ".join(f"{type(problem).__name__}: {problem}".split())
        folder = "set NUMBA_CACHE_DIR to a writable folder"
        remedy = (
            f"{folder[0].upper()}{folder[1:]}."
            if "cannot cache" in said
            else f"Install mmcc again in a new environment; if that does not help, {folder}."
        )
        return [Check("known epsilon", BROKEN, said, remedy)]
    return [_kernels(*seconds), *(_check_known(method, found) for method, found in numbers.items())]


def _seconds(method: str) -> float:
    start = time.perf_counter()
    _epsilon(method)
    return time.perf_counter() - start


def _epsilon(method: str) -> float:
    import mmcc
    from mmcc import sampling, strategies

    tree, scheme = strategies.binary_tree(STEPS), sampling.Poisson(CHANCE)
    return float(mmcc.epsilon(tree, scheme, sigma=SIGMA, delta=DELTA, method=method).epsilon)


def _check_known(method: str, found: float) -> Check:
    """Check that an epsilon is above the lower bound and equals the number at release."""
    name, known = f"known epsilon, {method}", KNOWN[method]
    remedy = (
        "Do not trust any number from this installation: install mmcc in a new environment, and "
        "report this if that does not help."
    )
    if not found >= LOWER:
        return Check(name, BROKEN, f"{found:.6g} is below the lower bound {LOWER:.6g}", remedy)
    if not abs(found - known) <= BAND * known:
        return Check(name, BROKEN, f"{found:.8g}, but should be {known:.8g}", remedy)
    return Check(name, OK, f"{found:.6g}, as it should be; not below {LOWER:.6g}")


def _kernels(first: float, second: float) -> Check:
    """Check where numba keeps compiled kernels, and whether those just used were cached."""
    used = [
        kernel.stats
        for name in KERNELS
        for kernel in vars(import_module(name)).values()
        if hasattr(kernel, "stats") and kernel.signatures
    ]
    times = f"first use {first:.2f} s, second {second:.3f} s"
    if not used:
        return Check(
            "compiled kernels", NOTE, f"none; {times}", "Unset NUMBA_DISABLE_JIT for full speed."
        )
    folder = used[0].cache_path
    missed = sum(bool(stats.cache_misses) for stats in used)
    origin = f"{missed} compiled just now" if missed else f"{len(used)} read from the cache"
    seen = f"{origin}; {times}; {folder}"
    if os.access(folder, os.W_OK):
        return Check("compiled kernels", OK, seen)
    return Check(
        "compiled kernels",
        NOTE,
        f"{seen} (cannot be written)",
        "Set NUMBA_CACHE_DIR to a writable folder, or kernels are compiled every time.",
    )


def _numbers() -> Iterator[Check]:
    """Check the threads of linear algebra: more than processors would wait for each other."""
    with suppress(ImportError):
        libraries = import_module("threadpoolctl").threadpool_info()
        seen = ", ".join(
            f"{library['internal_api']} {library['num_threads']}" for library in libraries
        )
        processors = os.cpu_count() or 1
        yield Check("threads", OK, f"{seen or 'none'}; processors {processors}")


# --------------------------------------------------------------------- imports and memory


def _importing() -> subprocess.Popen[str]:
    """Start a process that imports what is installed: torch takes seconds and may crash."""
    path = os.pathsep.join(folder for folder in sys.path if folder)
    wanted = [extra for extra in IMPORTS if _check_installed(extra, EXTRAS[extra]).state != ABSENT]
    return subprocess.Popen(
        [sys.executable, "-c", "\n".join(["import json", *map(_attempt, wanted)])],
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def _attempt(extra: str) -> str:
    """Lines of Python that import an extra and print its name, first alone and then with the error.

    The second line is missing if the import kills the process.
    """
    answer = f"print({ANSWER!r} + json.dumps([{extra!r}, said]), flush=True)"
    return f"""said = None
{answer}
try:
    {IMPORTS[extra]}
    said = ""
except BaseException as problem:
    said = type(problem).__name__ + ": " + " ".join(str(problem).split())
{answer}"""


def _import_results(process: subprocess.Popen[str]) -> dict[str, str | None]:
    """Why each extra cannot be imported: empty if it can, None if that is unknown."""
    try:
        printed, _ = process.communicate(timeout=PATIENCE)
        ended = f"the process ended with {process.returncode}"
    except subprocess.TimeoutExpired:
        process.kill()
        printed, _ = process.communicate()
        ended = None
    lines = (line for line in printed.splitlines() if line.startswith(ANSWER))
    found: dict[str, str | None] = {}
    last = ""
    for line in lines:
        last, said = json.loads(line.removeprefix(ANSWER))
        found[last] = said
    if last and found[last] is None:
        found[last] = ended
    return found


def _memory() -> Check:
    free = _free_bytes()
    if free is None:
        return Check("memory", OK, "not known on this system")
    largest = isqrt(free // (8 * COPIES))
    return Check(
        "memory",
        OK,
        f"{free / 2**30:.1f} GiB free: dense strategies up to about {largest} steps; trees, "
        "Toeplitz and BLT strategies need little",
    )


def _free_bytes() -> int | None:
    with suppress(OSError, StopIteration, ValueError):
        with open("/proc/meminfo", encoding="ascii") as lines:
            line = next(line for line in lines if line.startswith("MemAvailable:"))
        return int(line.split()[1]) * 1024
    with suppress(AttributeError, OSError, ValueError):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None
