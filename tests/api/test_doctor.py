"""Claim: `mmcc doctor` says what works, what is missing and what is broken, and what to do."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

import mmcc
from mmcc import _doctor as doctor
from mmcc import sampling, strategies
from mmcc._cli.app import main

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    """Nothing large is imported for every test: a slow test of the help does so once."""
    monkeypatch.setattr(doctor, "IMPORTS", dict.fromkeys(doctor.IMPORTS, "pass"))


@pytest.fixture
def checked(capsys):
    """Run the command; its exit code and its checks by name."""

    def run() -> tuple[int, dict[str, dict[str, str]]]:
        code = main(["doctor", "--json"])
        printed = capsys.readouterr()
        assert printed.err == ""
        found = json.loads(printed.out)
        assert set(found) == {"version", "works", "checks", "seconds"}
        assert found["version"] == mmcc.__version__
        assert found["works"] is (code == 0)
        return code, {check["name"]: check for check in found["checks"]}

    return run


def answering(epsilon: float):
    class Answer:
        def __init__(self, *_, **__):
            self.epsilon = epsilon

    return Answer


@pytest.fixture
def rightly(monkeypatch):
    """The known epsilon is answered at once."""

    def answer(*_, method, **__):
        return answering(doctor.KNOWN[method])()

    monkeypatch.setattr(mmcc, "epsilon", answer, raising=False)


def without(monkeypatch, *names: str) -> None:
    """As if these packages were not installed."""
    installed = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: None if name in names else installed(name))


def test_a_sound_installation(checked):
    code, checks = checked()
    assert code == 0
    for name in ("Python", "numpy", "numba", "known epsilon, tight", "known epsilon, mmcc"):
        assert checks[name]["state"] == "ok"
        assert checks[name]["remedy"] == ""
    kernels = checks["compiled kernels"]["seen"]
    assert re.search(r"\d+ (read from the cache|compiled just now); first use .* second ", kernels)
    assert Path(kernels.rpartition("; ")[2]).is_dir()


def test_the_known_epsilon_is_what_the_library_certifies():
    """The lower bound is one: nobody can prove less."""
    tree, scheme = strategies.binary_tree(doctor.STEPS), sampling.Poisson(doctor.CHANCE)
    found = mmcc.bracket(tree, scheme, sigma=doctor.SIGMA, delta=doctor.DELTA)
    assert pytest.approx(found.lower, rel=1e-4) == doctor.LOWER
    assert found.lower < doctor.KNOWN["tight"] < doctor.KNOWN["mmcc"]


@pytest.mark.parametrize(
    ("epsilon", "said"),
    [
        (doctor.LOWER * 0.999, "below the lower bound"),
        (doctor.KNOWN["tight"] * 1.01, "but should be"),
        (float("nan"), "below the lower bound"),
    ],
)
def test_a_wrong_epsilon_is_broken(checked, monkeypatch, epsilon, said):
    monkeypatch.setattr(mmcc, "epsilon", answering(epsilon), raising=False)
    code, checks = checked()
    assert code == 1
    check = checks["known epsilon, tight"]
    assert check["state"] == "broken"
    assert said in check["seen"]
    assert "Do not trust any number" in check["remedy"]


def test_a_crash_is_broken_and_not_a_traceback(checked, monkeypatch):
    def crash(*_, **__):
        raise RuntimeError("cannot cache function 'wave':\n no locator available")

    monkeypatch.setattr(mmcc, "epsilon", crash, raising=False)
    code, checks = checked()
    assert code == 1
    assert "no locator" in checks["known epsilon"]["seen"]
    assert "NUMBA_CACHE_DIR" in checks["known epsilon"]["remedy"]


@pytest.mark.usefixtures("rightly")
def test_missing_torch_is_said_and_no_fault(checked, monkeypatch):
    without(monkeypatch, "torch")
    code, checks = checked()
    assert code == 0
    assert checks["extra train"]["state"] == "not installed"
    assert checks["extra train"]["remedy"] == "pip install 'mmcc[train]'."


@pytest.mark.usefixtures("rightly")
def test_no_extra_at_all_is_no_fault(checked, monkeypatch):
    names = [doctor._parse(each)[0] for extra in doctor.EXTRAS.values() for each in extra]
    without(monkeypatch, *names)
    code, checks = checked()
    assert code == 0
    for extra in doctor.EXTRAS:
        assert checks[f"extra {extra}"]["state"] == "not installed"
        assert checks[f"extra {extra}"]["remedy"] == f"pip install 'mmcc[{extra}]'."


@pytest.mark.usefixtures("rightly")
def test_training_that_cannot_be_imported_is_broken(checked, monkeypatch):
    monkeypatch.setattr(doctor, "_version", lambda name: {"opacus": "1.6.0"}.get(name, "9999"))
    monkeypatch.setitem(doctor.IMPORTS, "train", "raise ImportError('libtorch.so: no such file')")
    code, checks = checked()
    assert code == 1
    assert "libtorch.so: no such file" in checks["extra train"]["seen"]
    assert "Traceback" not in checks["extra train"]["seen"]


@pytest.fixture
def everything(monkeypatch):
    """As if all extras were installed, in versions that fit."""
    monkeypatch.setattr(doctor, "_version", lambda name: {"opacus": "1.6.0"}.get(name, "9999"))


@pytest.mark.usefixtures("rightly", "everything")
@pytest.mark.parametrize("extra", sorted(doctor.EXTRAS))
def test_an_extra_that_cannot_be_imported_is_broken(checked, monkeypatch, extra):
    failure = "print('noise'); raise OSError('libpng.so:\\n no such file')"
    monkeypatch.setitem(doctor.IMPORTS, extra, failure)
    code, checks = checked()
    assert code == 1
    found = checks.pop(f"extra {extra}")
    assert found["state"] == "broken"
    assert found["seen"].endswith("cannot be imported: OSError: libpng.so: no such file")
    assert found["remedy"] == f"pip install --force-reinstall 'mmcc[{extra}]'."
    assert {check["state"] for check in checks.values()} <= {"ok", "note"}


@pytest.mark.usefixtures("rightly", "everything")
def test_an_import_that_ends_the_process_is_broken_and_hides_no_verdict_before_it(
    checked, monkeypatch
):
    monkeypatch.setitem(doctor.IMPORTS, "explore", "import os; os._exit(7)")
    code, checks = checked()
    assert code == 1
    assert checks["extra plot"]["state"] == "ok"
    assert "the process ended with 7" in checks["extra explore"]["seen"]
    assert checks["extra train"]["state"] == "note"
    assert "was not imported" in checks["extra train"]["seen"]


@pytest.mark.usefixtures("rightly", "everything")
def test_an_import_that_takes_too_long_is_noted(checked, monkeypatch):
    monkeypatch.setitem(doctor.IMPORTS, "train", "import time; time.sleep(1000)")
    monkeypatch.setattr(doctor, "PATIENCE", 0.5)
    code, checks = checked()
    assert code == 0
    assert checks["extra train"]["state"] == "note"


@pytest.mark.usefixtures("rightly")
def test_a_package_that_is_installed_and_damaged_is_broken(checked, monkeypatch, tmp_path):
    """Its metadata is in order; what is found first is not a package."""
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    (tmp_path / "jinja2.py").write_text("import a_module_that_is_not_there")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(doctor.IMPORTS, "report", "import jinja2")
    code, checks = checked()
    assert code == 1
    assert "No module named 'a_module_that_is_not_there'" in checks["extra report"]["seen"]


def test_every_extra_is_imported():
    assert set(doctor.IMPORTS) == set(doctor.EXTRAS)


@pytest.mark.usefixtures("rightly")
@pytest.mark.parametrize(("version", "said"), [(None, "not installed"), ("1.20.1", ">=1.26")])
def test_a_required_package_that_is_missing_or_old_is_broken(checked, monkeypatch, version, said):
    installed = doctor._version
    monkeypatch.setattr(
        doctor, "_version", lambda name: version if name == "numpy" else installed(name)
    )
    code, checks = checked()
    assert code == 1
    assert checks["numpy"]["state"] == "broken"
    assert said in checks["numpy"]["seen"]
    assert checks["numpy"]["remedy"] == "pip install 'numpy>=1.26'."


@pytest.mark.usefixtures("rightly")
def test_the_table_says_the_same(capsys, monkeypatch):
    without(monkeypatch, "torch", "dash")
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    for words in ("known epsilon, tight", "pip install 'mmcc[explore]'.", "all that is needed"):
        assert words in printed
    monkeypatch.setattr(mmcc, "epsilon", answering(0.5), raising=False)
    assert main(["doctor"]) == 1
    assert "SOMETHING IS BROKEN" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("version", "wanted", "fits"),
    [
        ("1.26", ">=1.26", True),
        ("1.26.0", ">=1.26", True),
        ("1.3", ">=1.26", False),
        ("2.13.0+cpu", ">=2.6", True),
        ("1.6.3", ">=1.6,<1.7", True),
        ("1.7.0", ">=1.6,<1.7", False),
        ("10.0rc1", ">=9.5", True),
        ("unknown", ">=1", False),
    ],
)
def test_versions(version, wanted, fits):
    assert doctor._fits(version, wanted) is fits


@pytest.mark.skipif(sys.version_info < (3, 11), reason="needs tomllib")
def test_what_is_required_is_what_pyproject_requires():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert tuple(project["dependencies"]) == doctor.REQUIRED
    assert project["requires-python"] == ">=" + ".".join(map(str, doctor.PYTHON))
    optional = project["optional-dependencies"]
    for extra, requirements in doctor.EXTRAS.items():
        assert requirements == tuple(optional[extra])
    assert set(optional) - set(doctor.EXTRAS) == {"docs", "jax", "test", "test-core"}
