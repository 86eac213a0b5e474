"""The command line: parse, ask the library one question, print the answer.

In: words.  Out: a table or one JSON object on stdout; progress and errors on stderr.
Exit codes: 0 answered, 1 an audit found a violation or the installation is broken, 2 bad input (one
line on stderr says what to do), 130 stopped by the user.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.main import get_command

import mmcc
from mmcc._cli import audit as auditing
from mmcc._cli import comparing, ledger, mixtures, output
from mmcc._cli import doctor as examining
from mmcc._cli import explore as exploring
from mmcc._cli import report as reporting
from mmcc._cli.guide import Group, guided
from mmcc._cli.mistakes import one_line
from mmcc._cli.options import BOUND, MECHANISM, SIMULATION, command
from mmcc._cli.standard_streams import lasting_streams
from mmcc._cli.words import Options, UsageError
from mmcc.errors import MmccError, suggestion

if TYPE_CHECKING:
    from mmcc import Guarantee
    from mmcc.accounting._parallel import Progress
    from mmcc.sampling import Scheme
    from mmcc.strategies._base import Strategy

BAD_INPUT, STOPPED = 2, 130
COMPLETION = "_MMCC_COMPLETE"

app = typer.Typer(
    cls=Group,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"mmcc {mmcc.__version__}")
        raise typer.Exit


@app.callback()
def root(
    _: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print the version.", metavar=""
        ),
    ] = False,
) -> None:
    """Certified privacy of correlated-noise (matrix) mechanisms under sampling."""


@command(app, *MECHANISM, *BOUND, "sigma", "delta", "compare", "as_json")
def epsilon(options: Options) -> None:
    """Print the certified epsilon of a mechanism at a delta."""
    answer("epsilon", options)


@command(app, *MECHANISM, *BOUND, "sigma", "epsilon", "as_json")
def delta(options: Options) -> None:
    """Print the certified delta of a mechanism at an epsilon."""
    answer("delta", options)


@command(app, *MECHANISM, *BOUND, "epsilon", "delta", "as_json")
def sigma(options: Options) -> None:
    """Print the smallest noise level found that certifies an epsilon at a delta."""
    answer("sigma", options)


@command(app, *MECHANISM, *BOUND, *SIMULATION, "sigma", "delta", "estimate", "plot", "as_json")
def bracket(options: Options) -> None:
    """Print two certified numbers with the true epsilon between them."""
    strategy, scheme = options.mechanism()
    numbers, simulation = options.numbers(), options.simulation()
    if simulation and not options.estimate:
        raise UsageError(f"--{next(iter(simulation))} applies with --estimate only; add it.")
    if options.plot is not None:
        from mmcc import plots

        plots.check_file(options.plot)
    with output.progress_bar() as progress:
        start = time.perf_counter()
        found = mmcc.bracket(
            strategy,
            scheme,
            sigma=numbers["sigma"],
            delta=numbers["delta"],
            method=options.method,
            order=options.order,
            estimate=simulation if options.estimate else False,
            progress=progress,
        )
        seconds = time.perf_counter() - start
        if options.plot is not None:
            plots.epsilon_against_sigma(
                strategy,
                scheme,
                sigma=numbers["sigma"],
                delta=numbers["delta"],
                file=options.plot,
                progress=progress,
            )
    if options.as_json:
        output.print_json(found, seconds, None)
    else:
        output.print_bracket(found, seconds)


@command(app, *MECHANISM, *SIMULATION, "sigma", "delta", "as_json")
def estimate(options: Options) -> None:
    """Print a Monte Carlo estimate of the true epsilon: an interval, not a proof."""
    strategy, scheme = options.mechanism()
    numbers, simulation = options.numbers(), options.simulation()
    with output.progress_bar() as progress:
        start = time.perf_counter()
        found = mmcc.estimate(
            strategy,
            scheme,
            sigma=numbers["sigma"],
            delta=numbers["delta"],
            **simulation,
            progress=progress,
        )
        seconds = time.perf_counter() - start
    if options.as_json:
        output.print_json(found, seconds, None)
    else:
        output.print_estimate(found, seconds)


@command(app, *mixtures.GROUP, "sigma", "delta", "as_json")
def group(options: Options) -> None:
    """Print the certified epsilon of DP-SGD for a group of examples."""
    mixtures.show_group(options)


@command(app, *mixtures.LAST_ITERATE, "sigma", "delta", "as_json")
def last_iterate(options: Options) -> None:
    """Print the certified epsilon of the last iterate of DP-SGD on linear losses."""
    mixtures.show_last_iterate(options)


@command(app, *comparing.COMPARE)
def compare(options: Options) -> None:
    """Print strategies at equal guarantees, with the noise and the error of each."""
    comparing.show_comparison(options)


@app.command(name="ledger")
def show_ledger(
    file: Annotated[str, typer.Argument(help="The ledger: JSON lines.", metavar="FILE")],
    data: Annotated[
        str | None, typer.Option(help="One data set; left out, all of them.", metavar="NAME")
    ] = None,
    delta: Annotated[
        str | None,
        typer.Option(help="Delta of the plan; left out, the sum of its deltas.", metavar="NUMBER"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print what all runs on a data set amount to: one guarantee, killed runs included."""
    ledger.show_ledger(file, data, delta, as_json)


@command(app, *MECHANISM, *auditing.AUDIT)
def audit(options: Options) -> None:
    """Play the real noise and batches many times and look for a violation of what is certified."""
    auditing.show_audit(options)


@command(app, *MECHANISM, *BOUND, *reporting.REPORT, optional=reporting.OPTIONAL)
def report(options: Options) -> None:
    """Write a guarantee with all it assumes to one file, to attach to a model release.

    On a mechanism (--strategy and the rest), a training run (--checkpoint) or a ledger (--ledger).
    """
    reporting.write_report(options)


@app.command()
def explore(port: exploring.Port = exploring.PORT, no_browser: exploring.NoBrowser = False) -> None:
    """Open a page on this machine in which parameters move and certified numbers follow."""
    exploring.show_explorer(port, no_browser)


@app.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check this installation: versions, compiled kernels, a known epsilon, optional packages."""
    examining.show_doctor(as_json)


COMMANDS = guided(app)


def answer(asked: str, options: Options) -> None:
    """Ask the library the one question and print the answer."""
    strategy, scheme = options.mechanism()
    numbers = options.numbers()
    with output.progress_bar() as progress:
        question = getattr(mmcc, asked)
        start = time.perf_counter()
        found: Guarantee = question(
            strategy,
            scheme,
            **numbers,
            method=options.method,
            order=options.order,
            progress=progress,
        )
        seconds = time.perf_counter() - start
        compared = comparison(strategy, scheme, found, progress) if options.compare else None
    if options.as_json:
        output.print_json(found, seconds, compared)
    else:
        output.print_tables(asked, found, seconds, compared)


def comparison(
    strategy: Strategy, scheme: Scheme, found: Guarantee, progress: Progress | None
) -> dict[str, float | None]:
    """Epsilon by other certified bounds, at the same sigma and delta."""
    from mmcc.sampling import CyclicPoisson

    def by(method: str, sampled: Scheme = scheme) -> float | None:
        try:
            other = mmcc.epsilon(
                strategy,
                sampled,
                sigma=found.sigma,
                delta=found.delta,
                method=method,
                progress=progress,
            )
        except MmccError:  # the answer itself stands; this line of the table does not
            return None
        return other.epsilon

    return {
        "unamplified": by("unamplified"),
        "one_fixed_pass": by("unamplified", CyclicPoisson(1, strategy.steps)),
        "mmcc": by("mmcc"),
        "tight": found.epsilon,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    with lasting_streams():
        return _exit_code(words)


def _exit_code(words: list[str]) -> int:
    """Answer what was asked, or complain."""
    try:
        _check_command(words)
        code = _commands()(words, prog_name="mmcc", standalone_mode=False)
        if code == STOPPED:  # some versions of typer turn Ctrl-C into this
            raise KeyboardInterrupt
        sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort):
        return _complain("stopped.", STOPPED)
    except Exception as problem:
        if isinstance(problem.__cause__, KeyboardInterrupt):  # as it comes out of compiled kernels
            return _complain("stopped.", STOPPED)
        message = one_line(problem)
        if message is None:
            raise
        return _complain(message, BAD_INPUT)
    return code if isinstance(code, int) else 0


@cache
def _commands() -> Any:
    """All commands, made once: a process may ask many questions."""
    return get_command(app)


def _check_command(words: Sequence[str]) -> None:
    if COMPLETION in os.environ:  # the shell asks, with no words of ours
        return
    if not words:
        raise MmccError(f"a command is missing; {suggestion('', COMMANDS)} See mmcc --help.")
    if not words[0].startswith("-") and words[0] not in COMMANDS:
        raise MmccError(f"unknown command {words[0]!r}; {suggestion(words[0], COMMANDS)}")


def _complain(message: str, code: int) -> int:
    print(f"mmcc: {message}", file=sys.stderr)
    return code
