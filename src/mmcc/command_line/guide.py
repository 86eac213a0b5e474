"""What each command is for, with an example: shown by `--help`, and run by the tests.

A new command needs two things: a function registered with the app, and a line here.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

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
        "reproduce": "mmcc reproduce last-iterate --quick --out figures",
        "doctor": "mmcc doctor",
    },
}
"""Commands by purpose, in the order of the help; each with its example."""
FIRST = "epsilon"
"""The command whose example stands in the help of `mmcc` itself."""
OUTPUT = "Output"
"""Title above the options that say how the answer is shown."""
WIDTH = 80
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
    """A command whose help ends with its example, which can be copied as it stands."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _tidied(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, formatter)
        formatter.write(_shown(example(str(self.name))))


class Group(TyperGroup):
    """All commands; the help ends with one example."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _tidied(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, formatter)
        formatter.write(_shown(example(FIRST)))
        formatter.write("\n Every command has its own: mmcc COMMAND --help\n")


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
        WIDTH - len(" \\"),
        initial_indent="   ",
        subsequent_indent="     ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return (" Example:\n\n" + " \\\n".join(parts) + "\n").replace(NEVER, " ")
