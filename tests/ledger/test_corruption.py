"""Claim: a line that is not right is an error with its number; none is skipped."""

from __future__ import annotations

import json
import re

import pytest
from cases.ledgers import begin, bodies, changed, guarantee, write
from cases.samples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from mmcc._cli.app import main
from mmcc.ledger import Ledger, LedgerError, Planned
from mmcc.ledger._history import read_history


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    """Plan, begin, end, begin, resume, begin: six lines."""
    ledger = Ledger(tmp_path_factory.mktemp("valid") / "ledger.jsonl")
    ledger.declare([Planned("m", "f", guarantee(0.5, 1e-7))], data="other")
    ledger.end(begin(ledger, 1.0), position=8)
    ledger.resume(begin(ledger, 0.5), {"strategy": "tree"})
    begin(ledger, 0.25)
    return ledger.path.read_bytes()


@pytest.fixture
def file(tmp_path, content):
    """A ledger with these lines."""
    made = tmp_path / "ledger.jsonl"
    made.write_bytes(content)
    return made


def line_of(problem: LedgerError) -> int:
    return int(re.match(r"line (\d+) of ", str(problem))[1])


def refused_at(file) -> int:
    """The number of the line that is refused, by the library and by the command line."""
    with pytest.raises(LedgerError) as caught:
        Ledger(file).history()
    assert main(["ledger", str(file)]) == 2
    for write_too in (begin, lambda ledger: ledger.end("x", position=1)):
        with pytest.raises(LedgerError, match=re.escape(str(caught.value))):
            write_too(Ledger(file))
    return line_of(caught.value)


def test_the_file_is_right_and_a_person_can_read_it(file):
    assert [body["kind"] for body in bodies(file)] == [
        *("plan", "begin", "end", "begin", "resume", "begin")
    ]
    for line in file.read_text().splitlines():
        assert list(json.loads(line)) == sorted(json.loads(line))
    assert Ledger(file).total("d").epsilon == 1.75
    write(file, bodies(file))  # the helper of the tests below makes right checks
    assert Ledger(file).total("d").epsilon == 1.75


def set_to(*path, value):
    def change(body):
        for name in path[:-1]:
            body = body[name]
        body[path[-1]] = value

    return change


def without(*path):
    def change(body):
        for name in path[:-1]:
            body = body[name]
        del body[path[-1]]

    return change


@pytest.mark.parametrize(
    ("number", "change", "said"),
    [
        (2, set_to("guarantee", "epsilon", value=-1.0), "epsilon"),
        (2, set_to("guarantee", "epsilon", value="1.0"), "epsilon"),
        (2, set_to("guarantee", "epsilon", value=True), "epsilon"),
        (2, set_to("guarantee", "epsilon", value=1e200), "epsilon"),
        (2, set_to("guarantee", "delta", value=-1e-9), "delta"),
        (2, set_to("guarantee", "delta", value=1.5), "delta"),
        (2, set_to("guarantee", "sigma", value=0.0), "sigma"),
        (2, set_to("guarantee", "adaptive", value=1), "adaptive"),
        (2, set_to("guarantee", "adjacency", value=""), "adjacency"),
        (2, set_to("guarantee", value=None), "object"),
        (2, set_to("guarantee", "certified", value=False), "certified"),
        (2, set_to("steps", value=0), "steps"),
        (2, set_to("fingerprint", value={}), "fingerprint"),
        (2, set_to("fingerprint", value={"a": 1}), "fingerprint"),
        (2, set_to("data", value=7), "data"),
        (2, set_to("kind", value="pause"), "unknown kind"),
        (2, set_to("kind", value=["begin"]), "unknown kind"),
        (2, set_to("kind", value="end"), "lacks"),
        (2, set_to("version", value=2), "version 2"),
        (2, set_to("version", value=True), "version True"),
        (2, set_to("version", value=1.0), "version 1.0"),
        (2, set_to("data", value="a\nb: (0.1, 1e-09)-DP, certified"), "one line"),
        (2, set_to("mechanism", value="\x1b[2J"), "one line"),
        (2, set_to("guarantee", "strategy", value="tree\u2028"), "one line"),
        (1, set_to("data", value="\ud800"), "one line"),
        (1, set_to("runs", 0, "mechanism", value="m\r"), "one line"),
        (2, set_to("extra", value=1), "unknown field 'extra'"),
        (2, without("steps"), "lacks 'steps'"),
        (2, without("kind"), "unknown kind None"),
        (2, without("version"), "version None"),
        (2, without("guarantee", "delta"), "lacks 'delta'"),
        (3, set_to("run", value="0123456789abcdef"), "unknown"),
        (3, set_to("position", value=9), "more steps"),
        (3, set_to("position", value=-1), "position"),
        (5, set_to("fingerprint", value="another"), "another mechanism"),
        (5, set_to("run", value="0123456789abcdef"), "unknown"),
        (1, set_to("runs", value=[]), "at least one run"),
        (1, set_to("runs", value={}), "list"),
        (1, set_to("runs", 0, "curve", value=[[1.0, 0.5]]), "two deltas"),
        (1, set_to("runs", 0, "curve", value=[[1.0, 0.5, 1.5]]), "add"),
        (1, set_to("runs", 0, "guarantee", "epsilon", value=-0.5), "epsilon"),
        (6, set_to("guarantee", "adjacency", value="replace one"), "adjacency"),
    ],
)
def test_every_wrong_line_is_reported_with_its_number(file, capsys, number, change, said):
    changed(file, number, change)
    assert refused_at(file) == number
    assert said in capsys.readouterr().err


def test_nan_and_infinity_are_no_numbers(file):
    for word in ("NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1" + "0" * 5000):
        good = file.read_text()
        file.write_text(good.replace('"epsilon": 0.25', f'"epsilon": {word}'))
        assert refused_at(file) == 6
        file.write_text(good)


def test_an_integer_that_no_float_equals_is_refused(file):
    """Read as a float, 2^53 + 1 is 2^53, and the total would be of less than what was written."""
    changed(file, 6, lambda body: body["guarantee"].update(epsilon=2**53))
    assert Ledger(file).total("d").epsilon >= 2**53 + 1.5
    changed(file, 6, lambda body: body["guarantee"].update(epsilon=2**53 + 1))
    assert refused_at(file) == 6


def test_what_is_nested_too_deep_is_corrupt_at_every_depth(content):
    """The depth at which Python gives up differs between reading, writing and printing."""
    for depth in (*range(20, 1100, 3), 3000, 10**4, 10**5):
        for nested in (b"[" * depth + b"]" * depth, b'{"a":' * depth + b"1" + b"}" * depth):
            with pytest.raises(LedgerError) as caught:
                read_history(content.replace(b'"a tree"', nested, 1), "x")
            assert line_of(caught.value) == 2


def test_lines_that_repeat_contradict_or_come_too_late(file):
    good = bodies(file)
    for number, objects in (
        (7, [*good, good[1]]),  # the same run begins twice
        (4, [*good[:3], good[2]]),  # it ends twice
        (3, [good[0], good[1], good[0]]),  # a second plan
        (3, [good[1], good[2], good[0] | {"data": "d"}]),  # a plan after the first run
        (1, good[2:]),  # an end without a beginning
    ):
        write(file, objects)
        assert refused_at(file) == number


@pytest.mark.parametrize(
    ("content", "number"),
    [
        (b"\n", 1),
        (b"[]\n", 1),
        (b"7\n", 1),
        (b"null\n", 1),
        (b"\xff\xfe\n", 1),
        (b"[" * 10**5 + b"\n", 1),
        (b'{"version": ' + b"9" * 5000 + b"}\n", 1),
    ],
)
def test_what_was_never_a_ledger(file, content, number):
    file.write_bytes(content)
    assert refused_at(file) == number


def test_half_lines_and_lines_taken_out_are_found(file):
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines)[:-1])
    assert refused_at(file) == 6
    for taken in range(5):
        file.write_bytes(b"".join(lines[:taken] + lines[taken + 1 :]))
        assert refused_at(file) == taken + 1


@st.composite
def faults(draw):
    """A function of a file's content that damages it somewhere."""
    kind = draw(st.sampled_from(["replace", "insert", "delete", "cut", "swap", "repeat", "digit"]))
    place, other = draw(st.floats(0, 1)), draw(st.floats(0, 1))
    piece = draw(st.binary(min_size=1, max_size=6) | st.sampled_from([b"\n", b"0", b"}", b" "]))

    def damage(content: bytes) -> bytes:
        at, end = sorted(int(part * len(content)) for part in (place, other))
        lines = content.splitlines(keepends=True)
        i, j = (min(int(part * len(lines)), len(lines) - 1) for part in (place, other))
        if kind == "replace":
            return content[:at] + piece + content[at + len(piece) :]
        if kind == "insert":
            return content[:at] + piece + content[at:]
        if kind == "delete":
            return content[:at] + content[end:]
        if kind == "cut":
            return content[:at]
        if kind == "swap":
            lines[i], lines[j] = lines[j], lines[i]
        elif kind == "repeat":
            lines.insert(j, lines[i])
        else:
            digits = [k for k, byte in enumerate(content) if chr(byte).isdigit()]
            k = digits[min(int(place * len(digits)), len(digits) - 1)]
            return content[:k] + str((content[k] - 47) % 10).encode() + content[k + 1 :]
        return b"".join(lines)

    return damage


@settings(max_examples=examples(500))
@given(damage=faults())
def test_damage_is_an_error_at_the_first_line_that_differs(content, damage):
    """But for whole lines missing at the end: nothing in the file can tell."""
    damaged = damage(content)
    was, now = content.split(b"\n")[:-1], damaged.split(b"\n")[:-1]
    same = 0
    while same < min(len(was), len(now)) and was[same] == now[same]:
        same += 1
    if damaged == b"".join(line + b"\n" for line in was[:same]):
        assert read_history(damaged, "x").lines == same
        return
    with pytest.raises(LedgerError) as caught:
        read_history(damaged, "x")
    assert line_of(caught.value) == same + 1
