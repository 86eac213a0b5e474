"""Claim: noise that is remembered is the noise that was found, and is never believed unproven."""

from __future__ import annotations

import json
import os

import pytest

from mmcc import __version__, sampling, strategies
from mmcc._cache import file_of, write
from mmcc.training import _calibration as calibration
from mmcc.training._calibration import cache_folder, calibrate

STRATEGY, SCHEME = strategies.toeplitz([1.0, 0.5], 16), sampling.CyclicPoisson(0.5, 2)
TARGET = {"epsilon": 2.0, "delta": 1e-5, "method": "tight"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MMCC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def asked(monkeypatch):
    """What the accounting was asked for: a noise level, or a target."""
    questions = []

    def noted(*mechanism, **options):
        questions.append("sigma" if options.get("sigma") is None else "epsilon")
        return plain(*mechanism, **options)

    plain = calibration.certify
    monkeypatch.setattr(calibration, "certify", noted)
    return questions


def once(**changed):
    return calibrate(STRATEGY, SCHEME, **{**TARGET, **changed})


def the_file(folder):
    (file,) = folder.iterdir()
    return file


def rewritten(file, **changes):
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def test_the_second_time_it_is_certified_and_not_searched(folder, asked):
    first, second = once(), once()
    assert asked == ["sigma", "epsilon"]
    assert (second.sigma, second.epsilon, second.bound) == (first.sigma, first.epsilon, first.bound)


@pytest.mark.parametrize("factor", [0.5, 0.9999, 1.01, 100.0])
def test_a_file_that_was_changed_makes_no_epsilon_too_small(folder, asked, factor):
    first = once()
    rewritten(the_file(folder), sigma=first.sigma * factor)
    again = once()
    assert again.sigma == first.sigma
    assert again.epsilon <= TARGET["epsilon"]
    assert asked == ["sigma", "epsilon", "sigma"]
    once()
    assert asked[3:] == ["epsilon"]  # the file is right again


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[" * 10**5,
        b"[]",
        b'{"sigma": 1.0}',
        b"null",
        "sigma: NaN",
        "sigma: -1",
        'sigma: "1"',
        "sigma: true",
        "sigma: 1e-300",
        "sigma: 1e300",
        "sigma: null",
    ],
)
def test_a_damaged_file_is_no_file(folder, asked, content):
    first = once()
    file = the_file(folder)
    if isinstance(content, str):
        value = content.removeprefix("sigma: ")
        content = file.read_text().replace(repr(first.sigma), value).encode()
    file.write_bytes(content)
    assert once().sigma == first.sigma
    assert asked.count("sigma") == 2


@pytest.mark.parametrize(
    "other",
    [
        {"epsilon": 2.1},
        {"delta": 1e-6},
        {"method": "unamplified"},
    ],
)
def test_another_target_is_another_question(folder, asked, other):
    once()
    once(**other)
    assert asked == ["sigma", "sigma"]


def test_another_mechanism_or_version_is_another_question(folder, asked, monkeypatch):
    once()
    calibrate(strategies.identity(16), SCHEME, **TARGET)
    calibrate(STRATEGY, sampling.CyclicPoisson(0.4, 2), **TARGET)
    monkeypatch.setattr(calibration, "__version__", f"{__version__}+1")
    once()
    assert asked == ["sigma"] * 4
    assert len(list(folder.iterdir())) == 4


def test_a_file_under_the_name_of_another_is_not_used(folder, asked):
    """Whose digest was made to fit: what the noise is for is written inside."""
    once()
    rewritten(the_file(folder), of={"epsilon": 3.0})
    once()
    assert asked == ["sigma", "sigma"]


def test_it_can_be_switched_off(tmp_path, monkeypatch, asked):
    monkeypatch.setenv("MMCC_CACHE", "off")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    once()
    monkeypatch.setenv("MMCC_CACHE", str(tmp_path))
    once(remembered=False)
    assert asked == ["sigma", "sigma"]
    assert not list(tmp_path.iterdir())


def test_it_lies_where_the_convention_says(tmp_path, monkeypatch):
    monkeypatch.delenv("MMCC_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    assert cache_folder() == tmp_path / "elsewhere" / "mmcc"
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    assert cache_folder() == tmp_path / ".cache" / "mmcc"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == tmp_path / ".cache" / "mmcc"


def test_a_place_that_cannot_be_written_to_stops_nothing(tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    monkeypatch.setenv("MMCC_CACHE", str(blocked))
    assert once().epsilon <= TARGET["epsilon"]
    assert os.listdir(tmp_path) == ["file"]


def test_where_nothing_needs_noise_a_file_does_not_change_that(folder):
    """A chance to take part below delta: refused, also if a file offers some noise for it."""
    rare = {**TARGET, "delta": 0.5}
    scheme = sampling.CyclicPoisson(1e-3, 2)
    with pytest.raises(ValueError, match="any noise satisfies"):
        calibrate(STRATEGY, scheme, **rare)
    assert not folder.exists()
    facts = {
        "mmcc": __version__,
        "strategy": calibration.strategy_digest(STRATEGY),
        "sampling": calibration.identity_of(scheme),
        **rare,
    }
    write(file_of(folder, "noise", facts), {"of": facts, "sigma": 1e-6})
    with pytest.raises(ValueError, match="any noise satisfies"):
        calibrate(STRATEGY, scheme, **rare)


def test_progress_is_told(folder):
    told = []
    once(progress=lambda what, done: told.append(what))
    assert told
