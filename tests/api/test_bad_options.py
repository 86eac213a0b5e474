"""Claim: whatever is typed for any option of any command, what cannot be is one line on stderr."""

from __future__ import annotations

import io
import re
import shlex
from contextlib import redirect_stderr, redirect_stdout

import pytest
from cases.ledgers import begin
from cases.samples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from mmcc._cli.app import COMMANDS, cli, main
from mmcc.ledger import Ledger

BAD = {
    "NUMBER": ("x", "nan", ""),
    "N": ("x", "1.5", "-1", ""),
    "K": ("x", "0"),
    "LIST": ("x", ","),
    "NAME": ("qqqq",),
    "NAME|FILE": ("qqqq", "qqqq.npy"),
    "NAME|all": ("qqqq",),
}
"""Values that are bad for whatever has this metavar; files and folders may have any name."""
OPTIONS = [
    (name, param.opts[-1], param.metavar)
    for name, command in cli.commands.items()
    for param in command.params
    if param.metavar in BAD and param.opts[-1].startswith("--")
]


@pytest.fixture(autouse=True, scope="module")
def here(tmp_path_factory):
    """A folder with the ledger of the example."""
    folder = tmp_path_factory.mktemp("bad")
    begin(Ledger(folder / "runs.jsonl"), data="patients")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield


def changed(name: str, option: str, value: str) -> list[str]:
    """The example of a command with one option set to a value."""
    words = shlex.split(cli.commands[name].example)[1:]
    if option in words:
        words[words.index(option) + 1] = value
        return words
    return [*words, option, value]


def run(words: list[str]) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(words)
    return code, out.getvalue(), err.getvalue()


def refused(words: list[str]) -> str:
    code, out, err = run(words)
    assert (code, out) == (2, ""), words
    assert err.startswith("mmcc: ")
    assert err.endswith("\n")
    assert len(err.splitlines()) == 1, "one line, by any reader's idea of a line"
    assert err[:-1].isprintable()
    assert len(err) < 1000
    assert "Traceback" not in err
    return err


def bad_values():
    """Every option with one of its bad values in turn; all others are slow."""
    for i, (name, option, metavar) in enumerate(OPTIONS):
        for j, value in enumerate(BAD[metavar]):
            now = j == i % len(BAD[metavar])
            yield pytest.param(name, option, value, marks=() if now else pytest.mark.slow)


@pytest.mark.parametrize(
    ("name", "option", "value"),
    list(bad_values()),
)
def test_a_bad_value_is_one_line_that_names_the_option(name, option, value):
    said = refused(changed(name, option, value))
    assert option[2:].replace("-", " ") in said.replace("-", " ").replace("_", " ") or value in said


def test_every_command_with_values_was_tried():
    assert {name for name, _, _ in OPTIONS} == set(COMMANDS) - {"doctor"}
    assert len(OPTIONS) > 100


nonsense = st.text(max_size=20).filter(lambda text: not re.search(r"\d|^(mean|max)$", text))
"""Without a digit it is no number, however it is read."""


@settings(max_examples=examples(150))
@given(chosen=st.sampled_from(OPTIONS), text=nonsense)
def test_nonsense_for_a_value(chosen, text):
    name, option, _ = chosen
    refused(changed(name, option, text))


@settings(max_examples=examples(60))
@given(name=st.sampled_from(COMMANDS), text=nonsense)
def test_nonsense_for_an_option(name, text):
    refused([*shlex.split(cli.commands[name].example)[1:], f"--q{text}"])


@settings(max_examples=examples(60))
@given(text=nonsense)
def test_nonsense_for_a_command(text):
    refused([f"q{text}"])


@pytest.mark.parametrize(
    "text", ["a\nb", "a\x1b[31mb", "a\u2028b", "a\udcffb", "é", "[bold]", "%s"]
)
def test_what_was_typed_is_shown_harmlessly(text):
    refused([text])
    refused(["epsilon", f"--{text}"])
    refused(changed("epsilon", "--strategy", text))
    refused(changed("epsilon", "--sigma", text))
