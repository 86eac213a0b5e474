"""Claim: certified, verified and estimated numbers are never mixed up, in types or in print."""

from __future__ import annotations

import copy
import pickle

import pytest
from cases.ledgers import bodies, guarantee, write

import mmcc
from mmcc import report, sampling, strategies
from mmcc.accounting._guarantee import Bracket, assumes_more
from mmcc.errors import MethodError, NotVerifiedError, ParameterError
from mmcc.ledger import Ledger, LedgerError, Planned

MECHANISM = strategies.identity(6), sampling.Poisson(0.2)
AT = {"sigma": 1.0, "delta": 0.05}


def verified(epsilon=1.0, delta=1e-6, failure=1e-9, **changed):
    return guarantee(
        epsilon, delta, kind="verified", failure=failure, method="verify", bound="sim", **changed
    )


@pytest.fixture(scope="module")
def bracketed() -> mmcc.Bracket:
    return mmcc.bracket(*MECHANISM, **AT, verify={"failure": 1e-4})


def test_a_bracket_has_what_was_verified_beside_its_certified_ends(bracketed):
    found = bracketed
    assert found.guarantee.kind == "certified"
    assert found.verified.kind == "verified"
    assert found.lower < found.verified.epsilon < 1.2 * found.upper
    assert found.upper == mmcc.epsilon(*MECHANISM, **AT).epsilon
    text = str(found)
    assert text.index("both certified") < text.index("beside it") < text.index("verified by sim")
    assert found.to_dict()["certified"] is True
    assert found.to_dict()["verified"]["certified"] is False
    with pytest.raises(MethodError, match="certified"):
        Bracket(lower=0.0, guarantee=found.verified)
    with pytest.raises(MethodError, match="beside"):
        Bracket(lower=0.0, guarantee=found.guarantee, verified=found.guarantee)


def test_a_refused_verdict_leaves_the_certified_bracket_and_is_no_number(bracketed):
    found = mmcc.bracket(*MECHANISM, **AT, verify={"failure": 1e-4, "samples": 300})
    assert (found.lower, found.upper) == (bracketed.lower, bracketed.upper)
    assert found.verified is None
    assert "verdicts were refused" in found.refused
    assert "more than samples = 300" in found.refused
    assert str(found).endswith(f"; nothing is verified beside it: {found.refused}")
    told = found.to_dict()
    assert (told["certified"], told["verified"], told["refused"]) == (True, None, found.refused)
    assert (bracketed.refused, bracketed.to_dict()["refused"]) == (None, None)
    with pytest.raises(MethodError, match="not both"):
        Bracket(0.0, found.guarantee, verified=bracketed.verified, refused="no")


def test_bad_options_of_a_verdict_are_no_refusal():
    wrong = (
        {"failure": 0.04},
        {"failure": "1e-4"},
        {"samples": 0},
        {"epsilon": 3.0},
        {"low": 1},
        3,
    )
    for options in wrong:
        with pytest.raises(ParameterError):
            mmcc.bracket(*MECHANISM, **AT, verify=options)
    with pytest.raises(ParameterError, match="no option 'sigma'"):
        mmcc.sigma(*MECHANISM, epsilon=1.0, delta=0.05, method="verify", verify={"sigma": 3.0})


def test_kinds_travel(bracketed):
    for moved in (pickle.loads(pickle.dumps(bracketed)), copy.deepcopy(bracketed)):
        assert moved.verified == bracketed.verified
        assert moved.verified.failure == 1e-4
        assert moved.guarantee.kind == "certified"


def test_what_may_err_assumes_more():
    assert assumes_more(verified(), guarantee())
    assert not assumes_more(guarantee(), verified())


def test_the_noise_for_a_target_is_verified():
    asked = {"epsilon": 0.8, "delta": 0.05, "method": "verify", "verify": {"failure": 1e-4}}
    found = mmcc.sigma(*MECHANISM, **asked)
    again = mmcc.sigma(*MECHANISM, **asked)
    least = mmcc.sigma(*MECHANISM, epsilon=0.8, delta=0.05).details["sigma_lower"]
    assert found.kind == "verified"
    assert (found.epsilon, found.sigma) == (0.8, again.sigma)  # a run taken up again needs it
    assert least < found.sigma < 1.15 * least
    assert again.details["attempt"] > found.details["attempt"]


def test_noise_that_no_verdict_passes_is_refused_in_one_sentence():
    with pytest.raises(NotVerifiedError, match="refused, the last at sigma = ") as refusal:
        mmcc.sigma(
            *MECHANISM,
            epsilon=0.8,
            delta=0.05,
            method="verify",
            verify={"failure": 1e-4, "samples": 300},
        )
    assert "there is no sigma to use" in str(refusal.value)


def test_only_a_target_can_be_verified():
    with pytest.raises(MethodError, match=r"mmcc\.verify"):
        mmcc.epsilon(*MECHANISM, **AT, method="verify")
    with pytest.raises(MethodError, match=r"mmcc\.verify"):
        mmcc.delta(*MECHANISM, sigma=2.0, epsilon=1.0, method="verify")
    with pytest.raises(ParameterError, match="options for method"):
        mmcc.sigma(*MECHANISM, epsilon=1.0, delta=0.05, verify={"failure": 1e-3})
    with pytest.raises(MethodError, match="seed"):
        mmcc.bracket(*MECHANISM, **AT, verify={"seed": 3})


# Ledgers ----------------------------------------------------------------------------------------


@pytest.fixture
def ledger(tmp_path) -> Ledger:
    return Ledger(tmp_path / "ledger.jsonl")


def begin(ledger, found, fingerprint="f"):
    return ledger.begin(data="d", mechanism="m", steps=6, fingerprint=fingerprint, guarantee=found)


def test_a_ledger_adds_verified_pairs_and_says_so(ledger):
    begin(ledger, guarantee(1.0, 1e-6))
    total = ledger.total("d")
    assert (total.kind, total.failure, total.verified) == ("certified", 0.0, 0)
    assert "-DP, certified; " in str(total)
    begin(ledger, verified(0.5, 1e-5, 1e-9))
    begin(ledger, verified(0.25, 1e-5, 2e-9))
    total = ledger.total("d")
    assert total.epsilon == 1.75
    assert total.delta >= 2.1e-5  # failures are inside, and added with the deltas
    assert total.delta == pytest.approx(2.1e-5)
    assert total.failure == pytest.approx(3e-9)
    assert (total.kind, total.verified) == ("verified", 2)
    assert "certified" not in str(total)
    assert "2 guarantees by simulation; the chance of a wrong verdict among them, 3" in str(total)
    assert total.to_dict()["certified"] is False
    kept = [run.begin.guarantee for run in total.runs]
    assert [one.kind for one in kept] == ["certified", "verified", "verified"]
    assert "verified by simulation" in str(kept[1])


def test_what_older_ledgers_say_is_certified(ledger):
    """Nothing new is written about a certified run, so that files stay as they were."""
    begin(ledger, guarantee())
    (body,) = bodies(ledger.path)
    assert not {"kind", "failure"} & set(body["guarantee"])
    begin(ledger, verified())
    body = bodies(ledger.path)[-1]
    assert (body["guarantee"]["kind"], body["guarantee"]["failure"]) == ("verified", 1e-9)


@pytest.mark.parametrize(
    "changed",
    [
        {"kind": "certified"},
        {"kind": "proven"},
        {"kind": 3},
        {"failure": 0.0},
        {"failure": "small"},
        {"failure": 0.5},
        {"failure": None},
    ],
)
def test_kinds_that_cannot_be_are_corrupt(ledger, changed):
    begin(ledger, verified())
    objects = bodies(ledger.path)
    objects[0]["guarantee"] |= changed
    write(ledger.path, objects)
    with pytest.raises(LedgerError, match="line 1"):
        ledger.history()


def test_an_estimate_is_refused(ledger):
    found = mmcc.verify(*MECHANISM, **AT, epsilon=0.9, failure=1e-3, seed=1)
    with pytest.raises(LedgerError, match="Estimate is not one"):
        begin(ledger, found)


def test_a_plan_with_verified_runs_adds_pairs(ledger):
    runs = [Planned("m", f"f{k}", verified(0.5, 1e-5)) for k in range(2)]
    ledger.declare(runs, data="d")
    total = ledger.total("d")
    assert (total.epsilon, total.plan.method) == (1.0, "sum of pairs")
    assert total.failure == pytest.approx(2e-9)
    assert ledger.total("d", delta=1e-4).epsilon == 1.0
    with pytest.raises(mmcc.MmccError, match="verified by simulation are pairs"):
        ledger.total("d", delta=1e-6)


# Reports ----------------------------------------------------------------------------------------


def test_a_report_tells_what_was_verified_beside_what_is_certified(bracketed):
    made = report.of_mechanism(*MECHANISM, **AT, verified=bracketed.verified, seconds=0)
    for page in (made.html(), made.markdown()):
        assert "certified by: " in page
        assert "verified by simulation, not certified" in page
        assert "the chance of a wrong verdict, 0.0001, is part of δ" in page
        assert "Verdicts were not picked." in page
        assert "Each number is" not in page
    plain = report.of_mechanism(*MECHANISM, **AT, seconds=0).markdown()
    assert "Each number is *certified*" in plain
    assert "verified" not in plain
    with pytest.raises(ParameterError, match=r"returned by mmcc\.verify"):
        report.of_mechanism(*MECHANISM, **AT, verified=bracketed.guarantee, seconds=0)
    with pytest.raises(ParameterError, match="another mechanism"):
        report.of_mechanism(
            *MECHANISM, sigma=3.0, delta=0.05, verified=bracketed.verified, seconds=0
        )


def test_the_report_of_a_ledger_says_which_numbers_are_verified(ledger):
    begin(ledger, guarantee(1.0, 1e-6))
    assert "verified" not in report.of_ledger(ledger.path).markdown()
    begin(ledger, verified(0.5, 1e-5, 1e-9))
    page = report.of_ledger(ledger.path).markdown()
    assert "verified by simulation, not certified" in page
    assert "Verdicts were not picked." in page
