"""Claim: `mmcc verify` says what it costs, what was shown, and checks records without verdicts."""

from __future__ import annotations

import json

import pytest

from mmcc._cli.app import main
from mmcc._simulation import verified_search
from mmcc.errors import NotVerifiedError

OPTIONS = {
    "--strategy": "continual-counting",
    "--steps": "6",
    "--sampling": "poisson",
    "--prob": "0.2",
    "--sigma": "2",
    "--delta": "0.05",
    "--failure": "1e-4",
}
WORDS = [word for pair in OPTIONS.items() for word in pair]


@pytest.fixture
def ask(capsys):
    def asked(*words: str) -> tuple[int, str, str]:
        code = main([*words])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return asked


def test_a_verdict(ask):
    code, out, err = ask("verify", *WORDS, "--epsilon", "0.8")
    assert code == 0
    assert "no: verified by simulation" in out
    assert err.startswith("mmcc verify: about ")
    assert "of one processor" in err


def test_json(ask):
    code, out, _ = ask("verify", *WORDS, "--epsilon", "0.8", "--json")
    found = json.loads(out)
    assert code == 0
    assert (found["kind"], found["certified"], found["failure"]) == ("verified", False, 1e-4)
    needed = "epsilon delta sigma method strategy sampling adjacency seconds"
    assert set(needed.split()) <= set(found)


def test_a_refusal_is_one_line_and_exit_code_1(ask):
    code, out, err = ask("verify", *WORDS, "--epsilon", "0.5")
    assert (code, out) == (1, "")
    assert err.startswith("mmcc: not verified: after ")
    assert err.count("\n") == 1


def test_with_a_seed_it_is_an_estimate(ask):
    code, out, _ = ask("verify", *WORDS, "--epsilon", "0.8", "--seed", "3")
    assert code == 0
    assert "not a proof" in out


def test_a_record_is_kept_and_checked(ask, tmp_path):
    file = str(tmp_path / "record.json")
    assert ask("verify", *WORDS, "--epsilon", "0.8", "--record", file)[0] == 0
    before = (tmp_path / "record.json").read_bytes()
    code, out, _ = ask("verify", "--check", file)
    assert code == 0
    assert "agrees with its seeds; this is a check, no verdict" in out
    code, out, _ = ask("verify", "--check", file, "--blocks", "1", "--json")
    assert json.loads(out)["agrees"] is True
    assert (tmp_path / "record.json").read_bytes() == before
    code, out, err = ask("verify", "--check", file, "--epsilon", "0.8")
    assert code == 2
    assert "leave it out" in err


def test_a_report_tells_what_a_record_has_verified(ask, tmp_path):
    file, page = str(tmp_path / "record.json"), str(tmp_path / "page.md")
    words = ["--strategy", "identity", *WORDS[2:]]
    assert ask("verify", *words, "--epsilon", "0.5", "--record", file)[0] == 0
    mechanism = words[:-2]
    code, out, _ = ask("report", *mechanism, "--record", file, "--seconds", "0", "--out", page)
    assert code == 0
    assert "-DP, certified; " in out
    assert out.endswith("-DP, verified\n")
    other = ["0.04" if word == "0.05" else word for word in mechanism]
    code, _, err = ask("report", *other, "--record", file, "--seconds", "0", "--out", page)
    assert code == 2
    assert "no verdict" in err


def test_bracket_and_sigma(ask):
    words = [word for word in WORDS if word not in ("--failure", "1e-4")]
    code, out, _ = ask("bracket", *words, "--verify", "--failure", "1e-4")
    assert code == 0
    assert "nothing: verified by simulation" in out
    at = words.index("--sigma")
    target = [*words[:at], *words[at + 2 :], "--epsilon", "0.8"]
    code, out, _ = ask("sigma", *target, "--method", "verify", "--failure", "1e-4")
    assert code == 0
    assert "no: verified by simulation" in out


def test_a_bracket_is_printed_though_its_verdict_is_refused(ask, monkeypatch):
    def refuse(*_, **__):
        raise NotVerifiedError("not verified: about epsilon = 0.9 would pass.")

    monkeypatch.setattr(verified_search, "verify", refuse)
    words = ["bracket", *WORDS, "--verify"]
    code, out, _ = ask(*words)
    assert code == 1
    assert "upper" in out
    assert "refused" in out
    code, out, _ = ask(*words, "--json")
    found = json.loads(out)
    assert code == 1
    assert found["lower"] < found["upper"]
    assert (found["verified"], found["certified"]) == (None, True)
    assert found["refused"].endswith("about epsilon = 0.9 would pass.")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["verify", *WORDS], "--epsilon is needed"),
        (["verify", *WORDS, "--epsilon", "1", "--blocks", "3"], "--check only"),
        (["verify", *WORDS, "--epsilon", "1", "--workers", "0"], "--workers"),
        (["verify", *WORDS, "--epsilon", "1", "--seed", "1", "--record", "f.json"], "seed"),
        (["verify", "--check", "no-such-file.json"], "cannot read"),
        (["bracket", *WORDS], "--verify only"),
        (["sigma", "--epsilon", "1", *(w for w in WORDS if w not in ("--sigma", "2"))], "verify"),
        (["epsilon", *WORDS[:-2], "--method", "verify"], "use mmcc verify"),
    ],
)
def test_bad_words(ask, words, said):
    code, out, err = ask(*words)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
