"""Commands and options: their help, their completion by the shell, and what they refuse.

In: descriptions.  Out: click commands, whose help groups options under titles and ends with an
example that can be copied as it is.
"""

from __future__ import annotations

import copy
import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from mmcc._cli import parsing as words
from mmcc._cli.parsing import UsageError

WIDTH = 80
"""Characters in a line of help, whatever the terminal's width: nothing is cut off."""
SETTINGS = {"help_option_names": ["-h", "--help"], "terminal_width": WIDTH}
STRATEGY, SCHEME = "What is released", "Who takes part when"
GUARANTEE, QUESTION, OUTPUT = "Noise and guarantee", "What to compute", "Output"
TITLES = (STRATEGY, SCHEME, GUARANTEE, QUESTION, OUTPUT)
"""Titles of groups of options, in the order of the help."""
NEVER, JOINED = "\N{NO-BREAK SPACE}", "\N{NON-BREAKING HYPHEN}"
"""Characters at which no line is broken: within an option with its value, and within a name."""


class Value(click.ParamType):  # type: ignore[type-arg]
    """Text that is parsed by a function of (option, text); `names` are completed."""

    def __init__(
        self, metavar: str, read: Callable[[str, str], Any], names: Iterable[str] = ()
    ) -> None:
        self.name, self._read, self.names = metavar, read, tuple(names)

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        return self._read(param.opts[-1].removeprefix("--"), value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        start = incomplete.rfind(",") + 1 if self.name == "LIST" else 0
        before, last = incomplete[:start], incomplete[start:]
        found = [name for name in self.names if name.startswith(last)]
        if not found and "FILE" in self.name:
            return [CompletionItem(incomplete, type="file")]
        return [CompletionItem(before + name) for name in found]


def _as_typed(_: str, text: str) -> str:
    return text


def one_of(names: Iterable[str], metavar: str = "NAME") -> Value:
    """A name that is completed by the shell; the library refuses unknown ones."""
    return Value(metavar, _as_typed, names)


def several_of(names: Iterable[str]) -> Value:
    """Names separated by commas."""
    return Value("LIST", _as_typed, names)


NUMBER = Value("NUMBER", words.number)
WHOLE = Value("N", words.whole_number)
LIST = Value("LIST", words.numbers)
TEXT = Value("TEXT", _as_typed)
FILE = Value("FILE", _as_typed)
FLAG = None
"""Used in place of a type: the option has no value."""


class Option(click.Option):
    """An option under a title; given a pair of names, they are those of option and variable."""

    def __init__(
        self, name: str | tuple[str, str], type: Value | None, title: str, help: str, **more: Any
    ) -> None:
        declared = [name] if isinstance(name, str) else list(name)
        if type is None:
            more["is_flag"] = True
        else:
            more = {"type": type, "metavar": type.name, **more}
        super().__init__(declared, help=help, **more)
        self.title = title

    def optional(self) -> Option:
        """The same option, for a command that does not require it."""
        other = copy.copy(self)
        other.required = False
        return other


class Argument(click.Argument):
    """A positional argument."""

    def __init__(self, name: str, explained: str, metavar: str) -> None:
        super().__init__([name], metavar=metavar)
        self.help = explained

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        return str(self.metavar), str(self.help)


class Helped(click.Command):
    """Prints help through `sys.stdout`, like everything else; click would bypass it."""

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        option = super().get_help_option(ctx)
        if option is not None:
            option.callback = _print_help
        return option


def _print_help(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        print(ctx.get_help().replace(JOINED, "-"))
        ctx.exit()


class Command(Helped):
    """A command whose help ends with its example.

    Repeating an option or leaving out its value is an error: nothing that was typed is ignored.
    """

    def __init__(
        self, name: str, run: Callable[..., None], *params: click.Parameter, help: str, example: str
    ) -> None:
        super().__init__(
            name, callback=run, params=list(params), help=help, context_settings=SETTINGS
        )
        self.example = example

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:  # the shell asks for completions
            self._check_words(ctx, args)
        return super().parse_args(ctx, args)

    def _check_words(self, ctx: click.Context, args: Sequence[str]) -> None:
        values, _, typed = self.make_parser(ctx).parse_args([*args])
        if any(param.is_eager for param in typed):  # --help, whatever else was typed
            return
        names = [name for param in self.get_params(ctx) for name in param.opts]
        for place, param in enumerate(typed):
            if values.get(str(param.name)) in names:
                value = values[str(param.name)]
                raise UsageError(f"{param.opts[-1]} needs a value before {value}.")
            if param in typed[:place]:
                raise UsageError(f"{param.opts[-1]} is given twice; give it once.")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        titled: dict[str, list[tuple[str, str]]] = {"Arguments": [], **{t: [] for t in TITLES}}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            usual = "Arguments" if isinstance(param, Argument) else OUTPUT
            if record is not None:
                name, explained = record
                titled[getattr(param, "title", usual)].append(
                    (name, explained.replace("-", JOINED))
                )
        for title, records in titled.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write(shown(self.example))


class Commands(Helped, click.Group):
    """All commands by purpose; the help ends with one example."""

    def __init__(self, sections: dict[str, Sequence[Command]], *options: Option, help: str) -> None:
        super().__init__("mmcc", params=list(options), help=help, context_settings=SETTINGS)
        self.sections = sections
        for commands in sections.values():
            for command in commands:
                self.add_command(command)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for purpose, commands in self.sections.items():
            with formatter.section(purpose):
                formatter.write_dl([(str(c.name), str(c.help).split("\n")[0]) for c in commands])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        first = next(iter(self.sections.values()))[0]
        formatter.write(shown(first.example))
        formatter.write("\nEach command has its own help: mmcc COMMAND --help\n")


def shown(line: str) -> str:
    """An example, with line breaks where a shell allows them."""
    whole = re.sub(r" (?!--)", NEVER, line)  # a value stays with its option
    parts = textwrap.wrap(
        whole,
        WIDTH - len(" \\"),
        initial_indent="   ",
        subsequent_indent="     ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return ("\nExample:\n\n" + " \\\n".join(parts) + "\n").replace(NEVER, " ")
