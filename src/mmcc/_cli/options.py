"""Every option of the command line, described once; a command is a list of their names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer

from mmcc._cli.completion import one_of, several_of
from mmcc._cli.guide import OUTPUT
from mmcc._cli.words import (
    A_FILE,
    COMPARED_SCHEMES,
    COMPARED_STRATEGIES,
    DECODERS,
    FORMATS,
    GENERATORS,
    METHODS,
    ORDERS,
    SCHEMES,
    STRATEGIES,
    STREAMS,
    Options,
)
from mmcc.strategies._registry import OBJECTIVES

NOTHING = inspect.Parameter.empty


@dataclass(frozen=True)
class Option:
    """How an option is described, completed and shown; without a default it is needed."""

    help: str
    metavar: str | None
    default: object = None
    name: str = ""
    kind: Any = str | None
    values: Callable[[str], list[str]] | None = None
    panel: str = ""

    def parameter(self, name: str, *, optional: bool = False) -> inspect.Parameter:
        """What typer makes the option of; optional: a command can do without it."""
        described = typer.Option(
            *([self.name] if self.name else []),
            help=self.help,
            metavar=self.metavar,
            autocompletion=self.values,
            rich_help_panel=self.panel,
        )
        return inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=Annotated[str | None if optional else self.kind, described],
            default=getattr(Options(), name) if optional else self.default,
        )


def _needed(help: str, metavar: str, **more: Any) -> Option:
    return Option(help, metavar, NOTHING, kind=str, **more)


def _flag(name: str, help: str) -> Option:
    return Option(help, None, False, name=name, kind=bool)


def _named(help: str, names: Sequence[str], default: object = None) -> Option:
    return Option(help, "NAME", default, values=one_of(names))


def _panel(title: str, /, **options: Option) -> dict[str, Option]:
    return {name: replace(option, panel=title) for name, option in options.items()}


OPTIONS: dict[str, Option] = {
    **_panel(
        "Strategy: what is released",
        strategy=_needed(
            f"{', '.join(STRATEGIES)}, or {A_FILE}.",
            "NAME|FILE",
            values=one_of(STRATEGIES),
        ),
        strategies=Option(
            "Strategies to compare, such as identity,continual-counting:16,tuned-blt; left out, a "
            "choice for this length and rate.",
            "LIST",
            values=several_of(name.removesuffix("N") for name in COMPARED_STRATEGIES),
        ),
        steps=Option("Training steps: columns of the strategy.", "N"),
        height=Option("tree-restart: levels of each tree.", "N"),
        bands=Option("banded, banded-toeplitz: bands of C; banded-inverse: of C^-1.", "N"),
        coefficients=Option("toeplitz: the first column, such as 1,0.5,0.25.", "LIST"),
        buffers=Option("blt: buffers, optimised for prefix sums.", "N"),
        decay=Option("blt: decay of each buffer, such as 0.9,0.5; not optimised then.", "LIST"),
        scale=Option("blt: scale of each buffer, such as 0.2,0.1; with --decay.", "LIST"),
        objective=_named("blt: the error to reduce, mean (default) or max.", OBJECTIVES),
        non_adaptive=_flag("--non-adaptive", "File: accept rows that are not in causal order."),
    ),
    **_panel(
        "Sampling: who takes part when",
        sampling=_needed(f"{', '.join(SCHEMES)}.", "NAME", values=one_of(SCHEMES)),
        schemes=Option(
            "Schemes to compare: poisson, cyclic-poisson (at its best separation), balls-in-bins, "
            "fixed-order, shuffle, min-separation:4; left out, those that amplify at this rate.",
            "LIST",
            values=several_of(name.removesuffix("N") for name in COMPARED_SCHEMES),
        ),
        rate=Option("Share of the examples in a batch, such as 1/100.", "NUMBER"),
        prob=Option(
            "Chance to take part in a step (cyclic-poisson: in a round; min-separation: when "
            "eligible): 1/2048, 0.01.",
            "NUMBER",
        ),
        separation=Option(
            "cyclic-poisson: steps from one round of a group to the next; min-separation: the "
            "least number of steps from one participation to the next.",
            "N",
        ),
        bins=Option("balls-in-bins: steps of an epoch; an example has one of them.", "N"),
        epoch_steps=Option("shuffle: steps of an epoch; left out, one pass.", "N"),
        group=Option("Examples that are protected together.", "K"),
        examples=Option("Fixed batches: examples in the data set.", "N"),
        batch=Option("Fixed batches: examples in each batch, drawn without replacement.", "N"),
        zero_one=_flag(
            "--zero-one",
            "Fixed batches: the paper's 0-1 setting, in which no other example contributes.",
        ),
    ),
    **_panel(
        "Noise and guarantee",
        sigma=_needed("Noise standard deviation in units of the clip norm.", "NUMBER"),
        epsilon=_needed("Epsilon of the guarantee.", "NUMBER"),
        epsilons=_needed("Epsilon, or several: 1,2,4.", "LIST", name="--epsilon"),
        claimed=Option(
            "Hold the runs to this epsilon, not the certified.", "NUMBER", name="--epsilon"
        ),
        delta=_needed("Delta of the guarantee, such as 1e-6.", "NUMBER"),
        method=_named(f"Which bound: {', '.join(METHODS)}.", METHODS, "tight"),
        order=_named(f"mmcc: the order of analysis: {', '.join(ORDERS)}.", ORDERS),
    ),
    **_panel(
        "What to compute",
        compare=_flag("--compare", "Also print what other certified bounds give."),
        only_wins=_flag("--only-wins", "Ask only who wins: one evaluation a row."),
        estimates=_flag("--estimates", "Simulated rows where no amplification is proven."),
        checkpoint=Option(
            "Report on the run of a checkpoint; its strategy is found there.", "FILE"
        ),
        ledger=Option("Report on all runs of a ledger.", "FILE"),
        seconds=Option(
            "compare: leave a row without an answer after about this time; report: time for the "
            "curve besides the point asked for.",
            "NUMBER",
        ),
        estimate=_flag(
            "--estimate", "Also print a Monte Carlo estimate: an interval, not a proof."
        ),
        samples=Option("Estimate: at most this many samples.", "N"),
        width=Option("Estimate: stop at this relative width of the interval.", "NUMBER"),
        runs=Option("Runs with the canary, and as many without.", "N"),
        confidence=Option("Chance that the interval, or the audit's bound, is right.", "NUMBER"),
        seed=Option("Random numbers start here.", "N"),
        decoder=_named(f"Trees: {' or '.join(DECODERS)} (default {DECODERS[0]}).", DECODERS),
        stream=_named(
            "The noise that is played: torch, as in training (default where torch is installed), "
            "or numpy.",
            STREAMS,
        ),
        generator=_named("Random numbers of the noise: philox (default) or chacha.", GENERATORS),
    ),
    **_panel(
        OUTPUT,
        title=Option("Title of the report.", "TEXT"),
        unit=Option(
            "What the training treats as one example: one training example, one user.", "TEXT"
        ),
        data=Option("Name of the data set; with --ledger: report on this one only.", "TEXT"),
        clip_norm=Option("Clip norm of the training, to be told.", "NUMBER"),
        format=_named("html or markdown; left out, the ending of --out says it.", FORMATS),
        out=Option("File to write; - is stdout.", "FILE"),
        plot=Option("Draw a picture: .png .svg .pdf.", "FILE"),
        as_json=_flag("--json", "Print one JSON object."),
    ),
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

    def register(body: Callable[[Options], None]) -> Callable[[Options], None]:
        def run(**given: Any) -> None:
            body(Options(**given))

        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                option.parameter(name, optional=name in optional)
                for name, option in OPTIONS.items()
                if name in names
            ]
        )
        app.command(name=body.__name__.replace("_", "-"), help=body.__doc__)(run)
        return body

    return register
