"""How long `mmcc --help` takes from a cold start, compared with its parts.

    python benchmarks/startup.py

Each command runs ten times, in turn with the others, each time in a new process.  Time is processor
time (user and system), which a loaded machine affects less than the clock; the last column is the
ratio to `import click`.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys

RUNS = 10
UNIT = "import click"
COMMANDS = {
    "nothing": ["-c", "pass"],
    UNIT: ["-c", "import click"],
    "import mmcc": ["-c", "import mmcc"],
    "import mmcc._cli.app": ["-c", "import mmcc._cli.app"],
    "mmcc --help": ["-m", "mmcc", "--help"],
    "mmcc epsilon --help": ["-m", "mmcc", "epsilon", "--help"],
    "mmcc epsilom": ["-m", "mmcc", "epsilom"],
    "import numpy": ["-c", "import numpy"],
}


def processor_seconds(arguments: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)


def main() -> None:
    taken: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(RUNS):
        for name, arguments in COMMANDS.items():
            taken[name].append(processor_seconds(arguments))
    medians = {name: statistics.median(seconds) for name, seconds in taken.items()}
    print(f"{'':32} {'median':>8} {'least':>8} {'ratio':>6}")
    for name, median in medians.items():
        ratio = median / medians[UNIT]
        print(f"{name:32} {median:6.3f} s {min(taken[name]):6.3f} s {ratio:6.2f}")


if __name__ == "__main__":
    main()
