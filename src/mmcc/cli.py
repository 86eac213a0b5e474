"""The command line: parse, ask the library one question, print the answer.

In: words.  Out: a table or one JSON object on stdout; progress and errors on stderr.
Exit codes: 0 answered, 2 bad input (one line on stderr says what to do), 130 stopped by the user.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, cast

import typer

import mmcc
from mmcc.command_line import output
from mmcc.command_line.words import FILES, METHODS, SCHEMES, STRATEGIES, Options
from mmcc.errors import MmccError, suggestion
from mmcc.sampling import CyclicPoisson, Scheme
from mmcc.strategies.base import ORDERS, Strategy

if TYPE_CHECKING:
    from mmcc import Guarantee
    from mmcc.accounting.parallel import Progress
    from mmcc.strategies.base import Order

COMMANDS = ("epsilon", "delta", "sigma", "bracket")
BAD_INPUT, STOPPED = 2, 130

StrategyName = Annotated[
    str,
    typer.Option(
        help=f"What is released: {', '.join(STRATEGIES)}, or a {', '.join(FILES)} file.",
        metavar="NAME|FILE",
    ),
]
SamplingName = Annotated[
    str, typer.Option(help=f"Who takes part when: {', '.join(SCHEMES)}.", metavar="NAME")
]
Probability = Annotated[
    str | None,
    typer.Option(
        help="Chance to take part in a step (cyclic: in a round): 1/2048, 0.01.", metavar="NUMBER"
    ),
]
Separation = Annotated[
    str | None,
    typer.Option(help="cyclic-poisson: steps from one round of a group to the next.", metavar="N"),
]
Steps = Annotated[
    str | None, typer.Option(help="Training steps: columns of the strategy.", metavar="N")
]
Height = Annotated[str | None, typer.Option(help="tree-restart: levels of each tree.", metavar="N")]
Coefficients = Annotated[
    str | None, typer.Option(help="toeplitz: the first column, such as 1,0.5,0.25.", metavar="LIST")
]
Buffers = Annotated[
    str | None, typer.Option(help="blt: buffers, optimised for prefix sums.", metavar="N")
]
Decay = Annotated[str | None, typer.Option(help="blt: decay of each buffer.", metavar="LIST")]
Scale = Annotated[str | None, typer.Option(help="blt: scale of each buffer.", metavar="LIST")]
Sigma = Annotated[
    str, typer.Option(help="Noise standard deviation in units of the clip norm.", metavar="NUMBER")
]
Epsilon = Annotated[str, typer.Option(help="Epsilon of the guarantee.", metavar="NUMBER")]
Delta = Annotated[str, typer.Option(help="Delta of the guarantee, such as 1e-6.", metavar="NUMBER")]
Method = Annotated[str, typer.Option(help=f"Which bound: {', '.join(METHODS)}.", metavar="NAME")]
RowOrder = Annotated[
    str | None,
    typer.Option(help=f"mmcc: the order of analysis: {', '.join(ORDERS)}.", metavar="NAME"),
]
NonAdaptive = Annotated[
    bool, typer.Option("--non-adaptive", help="File: accept rows that are not in causal order.")
]
Compare = Annotated[
    bool, typer.Option("--compare", help="Also print what other certified bounds give.")
]
Plot = Annotated[
    str | None,
    typer.Option(help="Draw epsilon against sigma by every bound: .png .svg .pdf.", metavar="FILE"),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"mmcc {mmcc.__version__}")
        raise typer.Exit


@app.callback()
def root(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Certified privacy of correlated-noise (matrix) mechanisms under sampling.

    Example: mmcc epsilon --strategy binary-tree --steps 128 --sampling poisson --prob 1/128
    --sigma 14 --delta 1e-6
    """


@app.command()
def epsilon(
    *,
    strategy: StrategyName,
    sampling: SamplingName,
    sigma: Sigma,
    delta: Delta,
    steps: Steps = None,
    height: Height = None,
    coefficients: Coefficients = None,
    buffers: Buffers = None,
    decay: Decay = None,
    scale: Scale = None,
    prob: Probability = None,
    separation: Separation = None,
    method: Method = "tight",
    order: RowOrder = None,
    non_adaptive: NonAdaptive = False,
    compare: Compare = False,
    as_json: AsJson = False,
) -> None:
    """Print the certified epsilon of a mechanism at a delta."""
    answer("epsilon", Options(**locals()))


@app.command()
def delta(
    *,
    strategy: StrategyName,
    sampling: SamplingName,
    sigma: Sigma,
    epsilon: Epsilon,
    steps: Steps = None,
    height: Height = None,
    coefficients: Coefficients = None,
    buffers: Buffers = None,
    decay: Decay = None,
    scale: Scale = None,
    prob: Probability = None,
    separation: Separation = None,
    method: Method = "tight",
    order: RowOrder = None,
    non_adaptive: NonAdaptive = False,
    as_json: AsJson = False,
) -> None:
    """Print the certified delta of a mechanism at an epsilon."""
    answer("delta", Options(**locals()))


@app.command()
def sigma(
    *,
    strategy: StrategyName,
    sampling: SamplingName,
    epsilon: Epsilon,
    delta: Delta,
    steps: Steps = None,
    height: Height = None,
    coefficients: Coefficients = None,
    buffers: Buffers = None,
    decay: Decay = None,
    scale: Scale = None,
    prob: Probability = None,
    separation: Separation = None,
    method: Method = "tight",
    order: RowOrder = None,
    non_adaptive: NonAdaptive = False,
    as_json: AsJson = False,
) -> None:
    """Print the smallest noise level found that certifies an epsilon at a delta."""
    answer("sigma", Options(**locals()))


@app.command()
def bracket(
    *,
    strategy: StrategyName,
    sampling: SamplingName,
    sigma: Sigma,
    delta: Delta,
    steps: Steps = None,
    height: Height = None,
    coefficients: Coefficients = None,
    buffers: Buffers = None,
    decay: Decay = None,
    scale: Scale = None,
    prob: Probability = None,
    separation: Separation = None,
    method: Method = "tight",
    order: RowOrder = None,
    non_adaptive: NonAdaptive = False,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Print two certified numbers with the true epsilon between them."""
    options = Options(**locals())
    chosen, scheme = options.mechanism()
    numbers = options.numbers()
    if plot is not None:
        from mmcc import plots

        plots.check_file(plot)
    with output.progress_bar() as progress:
        start = time.perf_counter()
        found = mmcc.bracket(
            chosen,
            scheme,
            sigma=numbers["sigma"],
            delta=numbers["delta"],
            method=method,
            order=cast("Order | None", order),
            progress=progress,
        )
        seconds = time.perf_counter() - start
        if plot is not None:
            plots.epsilon_against_sigma(
                chosen,
                scheme,
                sigma=numbers["sigma"],
                delta=numbers["delta"],
                file=plot,
                progress=progress,
            )
    if as_json:
        output.print_json(found, seconds, None)
    else:
        output.print_bracket(found, seconds)


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
    try:
        _check_command(words)
        code = app(words, prog_name="mmcc", standalone_mode=False)
        if code == STOPPED:  # some versions of typer turn Ctrl-C into this
            raise KeyboardInterrupt
        sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort):
        return _complain("stopped.", STOPPED)
    except BrokenPipeError:  # the reader had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as problem:
        message = _one_line(problem)
        if message is None:
            raise
        return _complain(message, BAD_INPUT)
    return code if isinstance(code, int) else 0


def _check_command(words: Sequence[str]) -> None:
    if not words:
        raise MmccError(f"a command is missing; {suggestion('', COMMANDS)} See mmcc --help.")
    if not words[0].startswith("-") and words[0] not in COMMANDS:
        raise MmccError(f"unknown command {words[0]!r}; {suggestion(words[0], COMMANDS)}")


def _one_line(problem: Exception) -> str | None:
    """What went wrong, in the words of the command line; None if it is a fault of the program."""
    if isinstance(problem, MmccError):
        text = re.sub(r"\b(method|order)='(\w+)'", r"--\1 \2", str(problem))
        text = text.replace("adaptive=False", "--non-adaptive")
    elif isinstance(problem, MemoryError):
        text = "not enough memory for this mechanism; use fewer steps or a structured strategy."
    elif isinstance(problem, OSError):
        text = f"cannot read or write: {problem.strerror or problem}."
    elif format_message := getattr(problem, "format_message", None):  # typer's usage errors
        text = re.sub(r"\(Possible options: (.*)\)", r"did you mean \1?", str(format_message()))
        text = text[:1].lower() + text[1:]
    else:
        return None
    return " ".join(text.split())


def _complain(message: str, code: int) -> int:
    print(f"mmcc: {message}", file=sys.stderr)
    return code
