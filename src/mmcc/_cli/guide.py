"""What each command is for, with an example: shown by `--help`, and run by the tests.

A new command needs two things: a function registered with the app, and a line here.
"""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from mmcc._cli.output import LEAST_WIDTH, console
from mmcc._cli.words import UsageError

GUIDE: Mapping[str, Mapping[str, str]] = {
    "How private is it": {
        "epsilon": "mmcc epsilon --strategy binary-tree --steps 128 --sampling poisson "
        "--prob 1/128 --sigma 14 --delta 1e-6",
        "delta": "mmcc delta --strategy identity --steps 100 --sampling poisson --prob 0.01 "
        "--sigma 1 --epsilon 2",
        "sigma": "mmcc sigma --strategy continual-counting --steps 32 --sampling poisson "
        "--prob 1/32 --epsilon 1 --delta 1e-6",
        "bracket": "mmcc bracket --strategy binary-tree --steps 64 --sampling balls-in-bins "
        "--bins 16 --sigma 8 --delta 1e-6",
        "estimate": "mmcc estimate --strategy continual-counting --steps 16 "
        "--sampling min-separation --prob 1/4 --separation 4 --sigma 4 --delta 1e-5",
        "group": "mmcc group --group 4 --steps 1000 --prob 0.01 --sigma 4 --delta 1e-6",
        "last-iterate": "mmcc last-iterate --steps 1000 --prob 0.01 --sigma 2 --delta 1e-6",
    },
    "Which mechanism to take": {
        "compare": "mmcc compare --steps 16 --rate 1/4 --epsilon 2 --delta 1e-5 "
        "--strategies identity,continual-counting --schemes poisson",
        "explore": "mmcc explore --port 0",
    },
    "What was run": {
        "ledger": "mmcc ledger runs.jsonl --data patients",
        "audit": "mmcc audit --strategy binary-tree --steps 8 --sampling poisson --prob 1/4 "
        "--sigma 2 --delta 1e-5 --runs 2000",
        "report": "mmcc report --strategy binary-tree --steps 128 --sampling poisson --prob 1/128 "
        "--sigma 14 --delta 1e-6 --out report.html",
    },
    "This software": {
        "doctor": "mmcc doctor",
    },
}
"""Commands by purpose, in the order of the help; each with its example."""
FIRST = "epsilon"
"""The command whose example stands in the help of `mmcc` itself."""
OUTPUT = "Output"
"""Title above the options that say how the answer is shown."""
COLUMNS = "COLUMNS"
"""Where rich, which prints the help, is told the width of the terminal."""
NEVER = "\N{NO-BREAK SPACE}"


def guided(app: typer.Typer) -> tuple[str, ...]:
    """Put the commands in the order of the guide, each under its purpose; return their names.

    A command without a line in the guide comes first, under no purpose.
    """
    purposes = {name: purpose for purpose, commands in GUIDE.items() for name in commands}
    places = {name: place for place, name in enumerate(purposes)}
    for info in app.registered_commands:
        info.name = info.name or str(info.callback and info.callback.__name__).replace("_", "-")
        info.cls = Command
        info.rich_help_panel = purposes.get(info.name)
    app.registered_commands.sort(key=lambda info: places.get(str(info.name), -1))
    return tuple(str(info.name) for info in app.registered_commands)


def example(name: str) -> str:
    """The example of a command as one line; empty if the guide has none."""
    return next((commands[name] for commands in GUIDE.values() if name in commands), "")


class Command(TyperCommand):
    """A command whose help ends with its example, which can be copied as it stands.

    An option that was typed twice, or without its value, is an error: nothing typed is ignored.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:  # the shell asks what could come next
            self._check_words(ctx, args)
        return super().parse_args(ctx, args)

    def _check_words(self, ctx: Any, args: Sequence[str]) -> None:
        values, _, typed = self.make_parser(ctx).parse_args([*args])
        if any(param.is_eager for param in typed):  # --help, whatever else was typed
            return
        names = [name for param in self.get_params(ctx) for name in param.opts]
        for place, param in enumerate(typed):
            if values.get(param.name) in names:
                raise UsageError(f"{param.opts[-1]} needs a value before {values[param.name]}.")
            if param in typed[:place] and not param.multiple:
                raise UsageError(f"{param.opts[-1]} is given twice; give it once.")

    def get_params(self, ctx: Any) -> list[Any]:
        return _tidied(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        with _wide_enough():
            super().format_help(ctx, formatter)
        formatter.write(_shown(example(str(self.name))))


class Group(TyperGroup):
    """All commands; the help ends with one example."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _tidied(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        with _wide_enough():
            super().format_help(ctx, formatter)
        formatter.write(_shown(example(FIRST)))
        formatter.write("\n Every command has its own: mmcc COMMAND --help\n")


@contextmanager
def _wide_enough() -> Iterator[None]:
    """Help as wide as answers, at least: in a narrow terminal rich would leave words out."""
    before = os.environ.get(COLUMNS)
    os.environ[COLUMNS] = str(console().width)
    try:
        yield
    finally:
        os.environ.pop(COLUMNS)
        if before is not None:
            os.environ[COLUMNS] = before


def _tidied(params: list[Any]) -> list[Any]:
    """Flags without a type, and `--help` beside the other options on output."""
    panels = {getattr(param, "rich_help_panel", None) for param in params}
    for param in params:
        if getattr(param, "is_flag", False) and param.metavar is None:
            param.metavar = ""
        if param.name == "help" and OUTPUT in panels:
            param.rich_help_panel = OUTPUT
    return params


def _shown(line: str) -> str:
    """Broken where a shell allows it: typer's own epilog would break it anywhere."""
    if not line:
        return ""
    whole = re.sub(r" (?!--)", NEVER, line)  # a value stays with its option
    parts = textwrap.wrap(
        whole,
        LEAST_WIDTH - len(" \\"),
        initial_indent="   ",
        subsequent_indent="     ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return (" Example:\n\n" + " \\\n".join(parts) + "\n").replace(NEVER, " ")
