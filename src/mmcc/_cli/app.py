"""The command line: parse, ask the library one question, print the answer.

In: words.  Out: a table or one JSON object on stdout; progress and errors on stderr.
Exit codes: 0 answered; 1 an audit found a violation, a verdict was refused, a record does not agree
or the installation is broken; 2 bad input (one line on stderr says what to do); 130 stopped by the
user.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from mmcc._cli.command import FLAG, OUTPUT, Commands, Option
from mmcc._cli.commands import (
    audit,
    bracket,
    compare,
    delta,
    doctor,
    epsilon,
    estimate,
    explore,
    group,
    last_iterate,
    ledger,
    recommend,
    report,
    sigma,
    verify,
)
from mmcc._cli.completion import COMPLETION, PROGRAM, complete, install, script
from mmcc._cli.mistakes import one_line
from mmcc._cli.standard_streams import lasting_streams
from mmcc.errors import MmccError, suggestion

BAD_INPUT, STOPPED = 2, 130


def _version(ctx: click.Context, _: Any, wanted: bool) -> None:
    if wanted:
        import mmcc

        print(f"mmcc {mmcc.__version__}")
        ctx.exit()


def _install(ctx: click.Context, _: Any, wanted: bool) -> None:
    if wanted:
        print(install(cli))
        ctx.exit()


def _script(ctx: click.Context, _: Any, wanted: bool) -> None:
    if wanted:
        print(script(cli))
        ctx.exit()


def _switch(name: str, callback: Any, help: str) -> Option:
    """An option that is a whole command by itself."""
    return Option(name, FLAG, OUTPUT, help, callback=callback, is_eager=True, expose_value=False)


cli = Commands(
    {
        "How private is it": (
            epsilon.COMMAND,
            delta.COMMAND,
            sigma.COMMAND,
            bracket.COMMAND,
            verify.COMMAND,
            estimate.COMMAND,
            group.COMMAND,
            last_iterate.COMMAND,
        ),
        "Which mechanism to use": (recommend.COMMAND, compare.COMMAND, explore.COMMAND),
        "What was run": (ledger.COMMAND, audit.COMMAND, report.COMMAND),
        "This software": (doctor.COMMAND,),
    },
    _switch("--version", _version, "Print the version."),
    _switch("--install-completion", _install, "Complete commands and options in this shell."),
    _switch("--show-completion", _script, "Print the completion script, to keep it elsewhere."),
    help="Certified privacy of correlated-noise (matrix) mechanisms under sampling.",
)
COMMANDS = tuple(cli.commands)
SWITCHES = tuple(name for option in cli.params for name in option.opts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    with lasting_streams():
        return _exit_code(words)


def _exit_code(words: list[str]) -> int:
    """Answer the question, or print what is wrong."""
    try:
        asked = os.environ.get(COMPLETION)
        if asked:
            print(complete(cli, asked))
            return 0
        code = _answer(words)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return _complain("stopped.", STOPPED)
    except Exception as problem:
        if isinstance(problem.__cause__, KeyboardInterrupt):  # raised inside a compiled kernel
            return _complain("stopped.", STOPPED)
        message = one_line(problem)
        if message is None:
            raise
        return _complain(message, BAD_INPUT)
    return code


def _answer(words: list[str]) -> int:
    if not words:
        raise MmccError(f"a command is missing; {suggestion('', COMMANDS)} See mmcc --help.")
    if words[0] in SWITCHES and len(words) > 1:
        raise MmccError(f"{words[0]} stands alone; leave out {' '.join(words[1:])!r}.")
    if not words[0].startswith("-") and words[0] not in COMMANDS:
        raise MmccError(f"unknown command {words[0]!r}; {suggestion(words[0], COMMANDS)}")
    try:
        with cli.make_context(PROGRAM, words) as context:
            cli.invoke(context)
    except click.exceptions.Exit as ended:
        return ended.exit_code
    return 0


def _complain(message: str, code: int) -> int:
    print(f"mmcc: {message}", file=sys.stderr)
    return code
