"""Claim: questions are answered once, and pages neither disturb nor wait for each other."""

from __future__ import annotations

import threading
import time

import pytest

from mmcc.errors import ParameterError
from mmcc.explore import _desk as desks
from mmcc.explore._desk import Desk


@pytest.fixture
def make_desk():
    made = []

    def make(answer):
        made.append(Desk(answer))
        return made[-1]

    yield make
    for desk in made:
        desk.close()


def test_answers_are_computed_once(make_desk):
    seen = []

    def answer(question, progress):
        seen.append(question)
        return 2 * question

    desk = make_desk(answer)
    assert desk.ask([1, 2, 3], 1800) == {1: 2, 2: 4, 3: 6}
    assert desk.ask([3, 1], 1800) == {1: 2, 3: 6}
    assert sorted(seen) == [1, 2, 3]


def test_what_is_known_is_told_before_the_rest(make_desk):
    go = threading.Event()
    desk = make_desk(lambda question, _: question if question == "quick" else go.wait(1800))
    assert desk.ask(["quick"], 1800) == {"quick": "quick"}
    assert desk.ask(["quick", "slow"], 0.05) == {"quick": "quick"}
    go.set()
    assert desk.ask(["quick", "slow"], 1800) == {"quick": "quick", "slow": True}


def test_first_questions_of_every_page_come_before_second_ones(make_desk):
    go, order = threading.Event(), []

    def answer(question, progress):
        go.wait(1800)
        order.append(question)

    desk = make_desk(answer)
    desk.ask(["busy"], 0.05)
    desk.ask(["a", "a's curve", "a's end"], 0)
    desk.ask(["b", "b's curve"], 0)
    go.set()
    desk.ask(["busy", "a", "a's curve", "a's end"], 1800)
    desk.ask(["b", "b's curve"], 1800)
    assert set(order[:3]) == {"busy", "a", "b"}


def test_what_nobody_asks_for_any_more_is_dropped(make_desk, monkeypatch):
    monkeypatch.setattr(desks, "LEASE", 0.2)
    go, seen = threading.Event(), []

    def answer(question, progress):
        seen.append(question)
        if question == "busy":
            go.wait(1800)
        return question

    desk = make_desk(answer)
    desk.ask(["busy"], 0.05)
    desk.ask(["forgotten"], 0)
    time.sleep(0.3)
    go.set()
    assert desk.ask(["wanted"], 1800) == {"wanted": "wanted"}
    assert "forgotten" not in seen


def test_a_running_question_is_given_up_when_nobody_waits(make_desk, monkeypatch):
    monkeypatch.setattr(desks, "LEASE", 0.2)
    ended = threading.Event()

    def answer(question, progress):
        if question == "next":
            return "answered"
        try:
            while True:
                progress("step", 1)
                time.sleep(0.01)
        finally:
            ended.set()

    desk = make_desk(answer)
    desk.ask(["endless"], 0.05)
    assert ended.wait(1800)
    assert desk.ask(["next"], 1800) == {"next": "answered"}


@pytest.mark.parametrize("fault", [ParameterError("a sentence."), ZeroDivisionError("secret")])
def test_errors_are_answers_and_the_next_question_is_served(make_desk, fault):
    def answer(question, progress):
        if question == "bad":
            raise fault
        return question

    desk = make_desk(answer)
    said = str(desk.ask(["bad"], 1800)["bad"])
    assert said == "a sentence." or "ZeroDivisionError" in said
    assert "secret" not in said
    assert desk.ask(["good"], 1800) == {"good": "good"}


def test_a_passing_fault_is_told_and_then_tried_again(make_desk, monkeypatch):
    monkeypatch.setattr(desks, "RETRIED", 0.2)
    faults = [MemoryError()]

    def answer(question, progress):
        if faults:
            raise faults.pop()
        return "answered"

    desk = make_desk(answer)
    assert "MemoryError" in str(desk.ask(["once short of memory"], 1800)["once short of memory"])
    time.sleep(0.3)
    assert desk.ask(["once short of memory"], 1800) == {"once short of memory": "answered"}


def test_a_refusal_is_kept(make_desk, monkeypatch):
    monkeypatch.setattr(desks, "RETRIED", 0.0)
    seen = []

    def answer(question, progress):
        seen.append(question)
        raise ParameterError("a sentence.")

    desk = make_desk(answer)
    for _ in range(2):
        assert str(desk.ask(["bad"], 1800)["bad"]) == "a sentence."
    assert seen == ["bad"]
