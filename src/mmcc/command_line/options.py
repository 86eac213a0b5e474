"""Every option of the command line, described once; a command is a list of their names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from mmcc.command_line.words import FILES, METHODS, SCHEMES, STRATEGIES, Options
from mmcc.strategies.base import ORDERS


def _text(description: str, metavar: str, default: object = None) -> tuple[Any, object]:
    return Annotated[str | None, typer.Option(help=description, metavar=metavar)], default


def _needed(description: str, metavar: str) -> tuple[Any, object]:
    option = Annotated[str, typer.Option(help=description, metavar=metavar)]
    return option, inspect.Parameter.empty


def _flag(name: str, description: str) -> tuple[Any, object]:
    return Annotated[bool, typer.Option(name, help=description)], False


OPTIONS: dict[str, tuple[Any, object]] = {
    "strategy": _needed(
        f"What is released: {', '.join(STRATEGIES)}, or a {', '.join(FILES)} file.", "NAME|FILE"
    ),
    "sampling": _needed(f"Who takes part when: {', '.join(SCHEMES)}.", "NAME"),
    "sigma": _needed("Noise standard deviation in units of the clip norm.", "NUMBER"),
    "epsilon": _needed("Epsilon of the guarantee.", "NUMBER"),
    "epsilons": (
        Annotated[
            str, typer.Option("--epsilon", help="Epsilon, or several: 1,2,4.", metavar="LIST")
        ],
        inspect.Parameter.empty,
    ),
    "delta": _needed("Delta of the guarantee, such as 1e-6.", "NUMBER"),
    "steps": _text("Training steps: columns of the strategy.", "N"),
    "height": _text("tree-restart: levels of each tree.", "N"),
    "bands": _text("banded, banded-toeplitz: bands of C; banded-inverse: of C^-1.", "N"),
    "coefficients": _text("toeplitz: the first column, such as 1,0.5,0.25.", "LIST"),
    "buffers": _text("blt: buffers, optimised for prefix sums.", "N"),
    "decay": _text("blt: decay of each buffer.", "LIST"),
    "scale": _text("blt: scale of each buffer.", "LIST"),
    "objective": _text("blt: the error to reduce, mean (default) or max.", "NAME"),
    "prob": _text(
        "Chance to take part in a step (cyclic-poisson: in a round; min-separation: when "
        "eligible): 1/2048, 0.01.",
        "NUMBER",
    ),
    "separation": _text(
        "cyclic-poisson: steps from one round of a group to the next; min-separation: the least "
        "number of steps from one participation to the next.",
        "N",
    ),
    "bins": _text("balls-in-bins: steps of an epoch; an example has one of them.", "N"),
    "epoch_steps": _text("shuffle: steps of an epoch; left out, one pass.", "N"),
    "group": _text("Examples that are protected together.", "K"),
    "examples": _text("Fixed batches: examples in the data set.", "N"),
    "batch": _text("Fixed batches: examples in each batch, drawn without replacement.", "N"),
    "zero_one": _flag(
        "--zero-one",
        "Fixed batches: the paper's 0-1 setting, in which no other example contributes.",
    ),
    "method": _text(f"Which bound: {', '.join(METHODS)}.", "NAME", "tight"),
    "order": _text(f"mmcc: the order of analysis: {', '.join(ORDERS)}.", "NAME"),
    "non_adaptive": _flag("--non-adaptive", "File: accept rows that are not in causal order."),
    "compare": _flag("--compare", "Also print what other certified bounds give."),
    "estimate": _flag("--estimate", "Also print a Monte Carlo estimate: an interval, not a proof."),
    "samples": _text("estimate: at most this many samples.", "N"),
    "width": _text("estimate: stop at this relative width of the interval.", "NUMBER"),
    "confidence": _text(
        "estimate: the chance that the interval covers the truth; audit: that the bound holds.",
        "NUMBER",
    ),
    "seed": _text("estimate, audit: random numbers start here.", "N"),
    "runs": _text("audit: runs with the canary, and as many without.", "N"),
    "decoder": _text("audit, trees: honaker (default) or online.", "NAME"),
    "stream": _text(
        "audit: the noise stream that is played: torch, the one of training (default where torch "
        "is installed), or numpy.",
        "NAME",
    ),
    "generator": _text("audit: random numbers of the noise: philox (default) or chacha.", "NAME"),
    "claimed": (
        Annotated[
            str | None,
            typer.Option(
                "--epsilon", help="Hold the runs to this epsilon, not the certified.", metavar="E"
            ),
        ],
        None,
    ),
    "rate": _text("Share of the examples in a batch, such as 1/100.", "NUMBER"),
    "strategies": _text(
        "Strategies to compare, such as identity,continual-counting:16,tuned-blt; left out, a "
        "choice for this length and rate.",
        "LIST",
    ),
    "schemes": _text(
        "Schemes to compare: poisson, cyclic-poisson (at its best separation), balls-in-bins, "
        "fixed-order, shuffle.",
        "LIST",
    ),
    "only_wins": _flag("--only-wins", "Ask only who wins: one evaluation a row."),
    "estimates": _flag("--estimates", "Simulated rows where no amplification is proven."),
    "seconds": _text(
        "compare: leave a row without an answer after about this time; report: time for the curve "
        "besides the point asked for.",
        "NUMBER",
    ),
    "checkpoint": _text("Report on the run of a checkpoint; its strategy is found there.", "FILE"),
    "ledger": _text("Report on all runs of a ledger.", "FILE"),
    "title": _text("Title of the report.", "TEXT"),
    "unit": _text(
        "What the training treats as one example: one training example, one user.", "TEXT"
    ),
    "data": _text("Name of the data set; ledger: report on this one only.", "NAME"),
    "clip_norm": _text("Clip norm of the training, to be told.", "NUMBER"),
    "format": _text("html or markdown; left out, the ending of --out says it.", "NAME"),
    "out": _text("File to write.", "FILE"),
    "plot": _text("Draw a picture: .png .svg .pdf.", "FILE"),
    "as_json": _flag("--json", "Print one JSON object."),
}
STRATEGY = (
    "steps",
    "height",
    "bands",
    "coefficients",
    "buffers",
    "decay",
    "scale",
    "objective",
)
SCHEME = ("prob", "separation", "bins", "epoch_steps")
MECHANISM = ("strategy", "sampling", *STRATEGY, *SCHEME, "non_adaptive")
BOUND = ("method", "order")
SIMULATION = ("samples", "width", "confidence", "seed")


def command(
    app: typer.Typer, *names: str, optional: Sequence[str] = ()
) -> Callable[[Callable[[Options], None]], Callable[[Options], None]]:
    """Make a command of a function of `Options`; it has the options with these names.

    Those in `optional` may be left out although other commands need them.
    """
    unset = Options()

    def register(body: Callable[[Options], None]) -> Callable[[Options], None]:
        def run(**given: Any) -> None:
            body(Options(**given))

        keyword = inspect.Parameter.KEYWORD_ONLY
        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                inspect.Parameter(
                    name,
                    keyword,
                    annotation=OPTIONS[name][0],
                    default=getattr(unset, name) if name in optional else OPTIONS[name][1],
                )
                for name in OPTIONS
                if name in names
            ]
        )
        app.command(name=body.__name__.replace("_", "-"), help=body.__doc__)(run)
        return body

    return register
