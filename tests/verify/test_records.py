"""Claim: a record holds every attempt, resumes, replays, and shows what was changed in it."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import signal
import time
from dataclasses import dataclass

import numpy as np
import pytest

import mmcc
from mmcc import sampling, strategies
from mmcc._simulation import record as records
from mmcc.errors import NotVerifiedError, ParameterError, RecordError
from mmcc.sampling import Participations, Scheme

MECHANISM = strategies.continual_counting(6), sampling.Poisson(0.2)
AT = {"sigma": 2.0, "delta": 0.05, "failure": 1e-4}
PASSING = 0.78


@pytest.fixture
def file(tmp_path):
    return tmp_path / "record.json"


def ask(file, epsilon=PASSING, mechanism=MECHANISM, **changed):
    return mmcc.verify(*mechanism, epsilon=epsilon, record=file, **{**AT, **changed})


def content(file):
    return json.loads(file.read_text())


def rewrite(file, change):
    """The record with a change and a digest that fits it."""
    found = content(file)
    del found["digest"]
    change(found["attempts"][-1])
    file.write_text(json.dumps({**found, "digest": records._digest(found)}))


def test_a_verdict_is_read_from_its_record_and_only_checked(file, monkeypatch):
    first = ask(file)
    before, drawn = file.read_bytes(), []
    monkeypatch.setattr("mmcc._simulation.verify.run", None)  # nothing goes on
    monkeypatch.setattr("mmcc._simulation.replay.CHECKED", 1)
    again = ask(file, progress=lambda what, _: drawn.append(what))
    assert (again, dict(again.details)) == (first, dict(first.details))
    assert file.read_bytes() == before
    assert drawn == 2 * ["verify: blocks drawn again"]  # one of each trial


def improve(attempt):
    """As if no sample had been above epsilon in the first trial: a verdict out of nothing."""
    trial = attempt["trials"][0]
    earned = [trial["block"] * math.log1p(bet * trial["mean"]) for bet in trial["bets"]]
    block = [0.999 * log for log in earned] + [0.0, 0.0]
    grown, need = block[2], -math.log(attempt["level"]) - math.log(trial["weights"][2])
    trial["blocks"] = [block] * math.ceil(need / grown)
    trial["verdict"] = "passed"
    attempt["trials"] = [trial, *attempt["trials"][1:]]


def test_an_edited_record_is_not_believed(file, monkeypatch):
    """Its digest fits, and its verdict follows from its blocks, but its seed does not give them."""
    ask(file)
    rewrite(file, improve)
    records.read(file)
    before, attempts = file.read_bytes(), dict(records._remembered)
    with pytest.raises(RecordError, match="not what its seed gives"):
        ask(file)
    assert file.read_bytes() == before
    assert dict(records._remembered) == attempts
    assert not mmcc.replay(file).agrees


def test_an_edited_record_does_not_go_on(file):
    def stop(what: str, done: float) -> None:
        if what.startswith("verify: samples,") and done > 0:
            raise KeyboardInterrupt

    def scale(attempt):
        assert attempt["trials"][0]["blocks"]
        for block in attempt["trials"][0]["blocks"]:
            block[2] += 0.01 * abs(block[2])
            block[-2] *= 0.5

    with pytest.raises(KeyboardInterrupt):
        ask(file, progress=stop)
    rewrite(file, scale)
    with pytest.raises(RecordError, match="not what its seed gives"):
        ask(file)


def test_blocks_earn_no_more_than_their_samples_can(file):
    ask(file)

    def enrich(attempt):
        trial = attempt["trials"][0]
        trial["blocks"] = [[30.0, 30.0, 30.0, 30.0, 0.0, 0.0]]

    rewrite(file, enrich)
    for read in (lambda: mmcc.replay(file), lambda: ask(file)):
        with pytest.raises(RecordError, match="more wealth than its samples can earn"):
            read()


def test_all_attempts_stay_and_share_one_chance_of_error(file):
    ask(file)
    ask(file, 0.9)
    ask(file, 1.5, (MECHANISM[0], sampling.MinSeparation(0.2, 2)))  # a record is one search
    found = content(file)["attempts"]
    assert [one["number"] for one in found] == [1, 2, 3]
    assert [one["level"] for one in found] == [1e-4 / 2, 1e-4 / 4, 1e-4 / 8]
    assert len({one["seed"] for one in found} | {one["pilot_seed"] for one in found}) == 6
    with pytest.raises(ParameterError, match="at least"):
        ask(file, 0.9, failure=1e-6)


def test_attempts_of_this_process_count_beside_a_record(file):
    mmcc.verify(*MECHANISM, epsilon=PASSING, **AT)
    assert ask(file).details["attempt"] == 2


def test_attempts_of_a_record_count_in_the_process_that_reads_it(file, monkeypatch):
    ask(file)
    monkeypatch.setattr(records, "_remembered", {})
    ask(file)  # read, not drawn
    assert mmcc.verify(*MECHANISM, epsilon=PASSING, **AT).details["attempt"] == 2


def test_an_interrupted_verdict_goes_on_where_it_was(file):
    def stop(what: str, done: float) -> None:
        if what.startswith("verify: samples,") and done >= 1500:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ask(file, progress=stop)
    (begun,) = content(file)["attempts"]
    drawn = len(begun["trials"][0]["blocks"])
    assert begun["verdict"] == "open"
    assert drawn > 0
    found = ask(file)
    (ended,) = content(file)["attempts"]
    assert found.details["attempt"] == 1
    assert ended["verdict"] == "passed"
    assert ended["seed"] == begun["seed"]
    assert ended["trials"][0]["blocks"][:drawn] == begun["trials"][0]["blocks"]
    checked = mmcc.replay(file)
    assert checked.agrees
    assert checked.attempts[0].exact  # as one that was never interrupted


def _verify_slowly(file: str) -> None:
    mmcc.verify(
        strategies.continual_counting(40),
        sampling.Poisson(0.05),
        sigma=2.0,
        epsilon=6.35,
        delta=2e-4,
        failure=1e-6,
        record=file,
    )


@pytest.mark.slow
def test_a_killed_process_leaves_a_record_that_resumes(file):
    child = multiprocessing.get_context("spawn").Process(target=_verify_slowly, args=(str(file),))
    child.start()
    for _ in range(1800):
        time.sleep(0.1)
        if file.exists() and content(file)["attempts"][0]["trials"][0]["blocks"]:
            break
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    (begun,) = content(file)["attempts"]
    assert begun["verdict"] == "open"
    assert begun["trials"][0]["blocks"]
    _verify_slowly(str(file))
    assert [one["verdict"] for one in content(file)["attempts"]] == ["passed"]
    assert mmcc.replay(file, blocks=5).agrees


def test_a_refusal_is_in_the_record_and_the_next_attempt_has_half_its_chance(file, monkeypatch):
    monkeypatch.setattr("mmcc._simulation.trials.Pilot.hopeless", False)
    monkeypatch.setattr("mmcc._simulation.trials.Pilot.size", 0.3)
    monkeypatch.setattr("mmcc._simulation.trials.Pilot.samples", lambda *_: 20_000)
    with pytest.raises(NotVerifiedError, match="attempt 1"):
        ask(file, 0.5)
    with pytest.raises(NotVerifiedError, match="attempt 2"):
        ask(file, 0.5)
    assert [one["verdict"] for one in content(file)["attempts"]] == ["refused", "refused"]
    found = mmcc.replay(file)
    assert found.agrees
    assert [one.verdict for one in found.attempts] == ["refused", "refused"]
    assert all(one.guarantee is None for one in found.attempts)


def test_a_record_in_which_numbers_fall_can_be_checked(file):
    """A process counts what it tried of each mechanism; the second one here was not tried."""
    mmcc.verify(*MECHANISM, epsilon=0.9, **AT)
    mmcc.verify(*MECHANISM, epsilon=0.9, **AT)
    ask(file)
    ask(file, 1.5, (MECHANISM[0], sampling.MinSeparation(0.2, 2)))
    assert [one["number"] for one in content(file)["attempts"]] == [3, 2]
    assert mmcc.replay(file, blocks=1).agrees


def test_a_later_attempt_with_the_number_of_the_first_is_not_believed(file):
    """A lower number would need less wealth."""
    ask(file)
    ask(file, 0.9)
    rewrite(file, lambda one: one.update(number=1, level=AT["failure"] / 2))
    with pytest.raises(RecordError, match="numbered one after the other"):
        ask(file, 0.9)


def test_a_chance_of_error_below_one_of_an_earlier_attempt_shows(file):
    ask(file)
    ask(file, 0.9)
    rewrite(file, lambda one: one["question"].update(failure=1e-6))
    with pytest.raises(RecordError, match="of an earlier attempt"):
        mmcc.replay(file)


def test_replaying_changes_nothing_and_promises_nothing(file):
    ask(file)
    before = file.read_bytes(), dict(records._remembered)
    found = mmcc.replay(file)
    assert (file.read_bytes(), dict(records._remembered)) == before
    assert found.agrees
    assert not isinstance(found, mmcc.Guarantee)
    assert found.to_dict()["verdict"] is None
    assert "no verdict" in str(found)
    assert found.attempts[0].replayed == found.attempts[0].blocks > 4
    assert mmcc.replay(file, blocks=1).attempts[0].replayed == 2  # of each trial


def test_blocks_that_do_not_come_from_the_seed_show(file):
    ask(file)

    def other_seed(attempt):
        attempt["seed"] = f"{int(attempt['seed'], 16) + 1:x}"

    rewrite(file, other_seed)
    found = mmcc.replay(file)
    assert not found.agrees
    assert "NOT" in str(found)
    assert found.attempts[0].guarantee is None


@pytest.mark.parametrize(
    "change",
    [
        lambda one: one.update(verdict="refused"),
        lambda one: one.update(level=0.4),
        lambda one: one["trials"][0].update(mean=0.0504),
        lambda one: one["trials"].pop(),
        lambda one: one["trials"][0]["blocks"].pop(),
        lambda one: one["trials"][0]["blocks"].append(one["trials"][0]["blocks"][0]),
        lambda one: one["trials"][0]["bets"].__setitem__(0, 1.5),
        lambda one: one["trials"][0]["weights"].__setitem__(0, 1.5),
        lambda one: one["trials"][0]["blocks"][0].__setitem__(0, 100.0),
        lambda one: one["trials"][0].update(adjacency="both"),
        lambda one: one["trials"][0].update(experiment="exact"),
        lambda one: one.pop("pilot_seed"),
        lambda one: one["question"].update(epsilon=0.1),
        lambda one: one["trials"][0].update(weights=[0.0625, 0.25, 0.5, 0.1875]),
        lambda one: one["trials"][0]["bets"].__setitem__(3, 0.9 * one["trials"][0]["bets"][3]),
        lambda one: one["trials"][0].update(block=10**30),
        lambda one: one["trials"][0].update(block=-1),
        lambda one: one["trials"][0].update(limit="many"),
        lambda one: one.update(pilot_seed=one["seed"]),
        lambda one: one.update(pilot_samples="x"),
        lambda one: one.update(seed="-5"),
        lambda one: one.update(pilot_seed="-5"),
        lambda one: one["question"].update(failure="x"),
        lambda one: one["trials"][0].update(group=-1),
        lambda one: one["mechanism"]["strategy"].update(arrays={"diagonals": [[1.0], []]}),
    ],
)
def test_what_does_not_follow_is_refused_though_its_digest_fits(file, change):
    ask(file)
    rewrite(file, change)
    try:
        agrees = mmcc.replay(file).agrees
    except RecordError:
        agrees = False
    assert not agrees


def test_a_record_that_was_changed_is_refused(file):
    ask(file)
    text = file.read_text()
    file.write_text(text.replace('"passed"', '"refused"', 1))
    for read in (lambda: mmcc.replay(file), lambda: ask(file, 0.9)):
        with pytest.raises(RecordError, match="digest"):
            read()
    for broken, why in ((text[:-9], "JSON"), ("{}", "say that it is one"), ("[1]", "say")):
        file.write_text(broken)
        with pytest.raises(RecordError, match=why):
            mmcc.replay(file)
    with pytest.raises(RecordError, match="cannot read"):
        mmcc.replay(file.with_name("other.json"))


def test_a_record_that_somebody_else_writes_to_is_left_alone(file):
    def meddle(what: str, done: float) -> None:
        if what.startswith("verify: samples,"):
            rewrite(file, lambda one: one.update(made={"time": str(done)}))

    with pytest.raises(RecordError, match="somebody else"):
        ask(file, progress=meddle)


@dataclass(frozen=True)
class EveryOther(Scheme):
    """Each example is in the even steps or in the odd ones, by a coin."""

    def draw(self, steps, count, generator, group=0):
        first = generator.integers(0, 2, count)
        rows = first[:, None] + 2 * np.arange(steps // 2)
        return Participations.from_rows(rows)

    def expected_batch(self, steps, examples):
        return examples / 2

    def positions(self, steps):
        return 2


def test_mechanisms_that_no_file_holds_are_given_for_the_check(file):
    mechanism = strategies.continual_counting(6), EveryOther()
    ask(file, 4.0, mechanism)
    with pytest.raises(RecordError, match="sampling"):
        mmcc.replay(file)
    assert mmcc.replay(file, *mechanism).agrees
    with pytest.raises(RecordError, match="not about the mechanism"):
        mmcc.replay(file, strategies.identity(6), EveryOther())


def test_dense_matrices_are_kept_to_the_last_bit(file):
    matrix = np.tril(np.random.default_rng(3).random((5, 5))) + np.eye(5)
    ask(file, 4.0, (strategies.dense(matrix), sampling.RandomAllocation(5)))
    assert mmcc.replay(file, blocks=2).attempts[0].exact


def own_scheme(chance):
    """A scheme without fields: its law is in its code alone."""

    @dataclass(frozen=True)
    class Mine(Scheme):
        def draw(self, steps, count, generator, group=0):
            return sampling.Poisson(chance).draw(steps, count, generator, group)

        def expected_batch(self, steps, examples):
            return chance * examples

        def chances(self, steps):
            return sampling.Chances.constant(chance)

    Mine.__qualname__ = "Mine"
    return Mine()


def test_a_scheme_whose_code_was_changed_is_verified_anew(file):
    strategy = strategies.continual_counting(4)
    ask(file, 1.0, (strategy, own_scheme(0.05)))
    with pytest.raises(NotVerifiedError):
        ask(file, 1.0, (strategy, own_scheme(0.9)))


def test_a_link_to_a_record_is_followed(file, tmp_path):
    ask(file)
    link = tmp_path / "link.json"
    link.symlink_to(file)
    ask(link, 0.9)
    assert link.is_symlink()
    assert len(records.read(file)["attempts"]) == 2
