"""`python -m fuzz FORMAT`: feed many inputs to a target, save those that fail."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from importlib import import_module

from fuzz.drive import Format, Tally, fed, run

FORMATS = ("matrices", "ledgers", "checkpoints", "words")


def main() -> int:
    """Parse, feed, say."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("format", choices=FORMATS)
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the number of the first input")
    parser.add_argument("--replay", action="store_true", help="feed the corpus instead")
    given = parser.parse_args()
    format: Format = import_module(f"fuzz.{given.format}").FORMAT
    if given.replay:
        return _replay(format)
    last, told = time.monotonic(), 0

    def say(tally: Tally) -> None:
        nonlocal last, told
        for failure in tally.failures[told:]:
            where = _innermost(failure.__cause__)
            print(f"FAILED {failure.save(format).name}: {str(failure)[:300]}{where}", flush=True)
        told = len(tally.failures)
        if time.monotonic() - last > 10:
            last = time.monotonic()
            print(f"{format.name}: {tally}", file=sys.stderr, flush=True)

    tally = run(format, given.inputs, given.seed, first=given.first, say=say)
    print(f"{format.name}, seed {given.seed}: {tally}")
    return bool(tally.failures)


def _replay(format: Format) -> int:
    with format.around():
        for path in format.corpus():
            print(path.name, "accepted" if fed(format, path.read_bytes())[0] else "refused")
    return 0


def _innermost(problem: BaseException | None) -> str:
    if problem is None or problem.__traceback__ is None:
        return ""
    frame = traceback.extract_tb(problem.__traceback__)[-1]
    return f" ({frame.filename.rsplit('/', 1)[-1]}:{frame.lineno})"


if __name__ == "__main__":
    sys.exit(main())
