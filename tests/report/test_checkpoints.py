"""Claim: the report of a checkpoint is about its run, tells no secret, and says what holds when."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from cases.private import backward, private  # noqa: E402

import mmcc  # noqa: E402
from mmcc import MmccError, report, strategies  # noqa: E402
from mmcc._cli.app import main  # noqa: E402
from mmcc.sampling import BallsInBins, Poisson, Shuffle  # noqa: E402
from mmcc.training import save_checkpoint  # noqa: E402
from mmcc.training._checkpoint_file import DIGEST, MAGIC  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook")

DELTA = 1e-5
FAST = {"delta": DELTA, "seconds": 0.0}


def saved(path, after: int, **options):
    """A run stopped after so many steps; returns what it was."""
    module, optimizer, loader = private(**{"max_grad_norm": 0.75, **options})
    while optimizer.position < after:
        for batch in loader:
            optimizer.zero_grad()
            backward(module, batch)
            optimizer.step()
            if optimizer.position == after:
                break
    save_checkpoint(path, module, optimizer, loader)
    return optimizer


def test_a_run_stopped_midway_has_two_guarantees_and_says_which_counts(tmp_path):
    tree = strategies.binary_tree(4)
    run = saved(tmp_path / "run", 2, strategy=tree)
    found = report.of_checkpoint(tmp_path / "run", **FAST)
    whole, part = found.claims
    assert whole.epsilon == run.guarantee.epsilon
    declared = mmcc.epsilon(tree.prefix(2), Poisson(0.3), sigma=1.0, delta=DELTA)
    assert part.epsilon == declared.epsilon < whole.epsilon
    assert "stop_after=2" in part.remark
    text = found.markdown()
    assert text.index("All 4 steps") < text.index("The 2 steps made so far")
    assert "has made 2 of 4 steps" in text
    for words in (
        "| Clip norm | 0.75 |",
        "| Examples | 30 |",
        "Expected batch size | 9",
        "honaker",
        "| Noise generator | device (ChaCha20, a key of 256 bits) |",
    ):
        assert words in text


@pytest.mark.parametrize(
    ("after", "words"), [(0, "not made a step yet"), (7, "all of its 7 steps")]
)
def test_a_run_before_its_first_step_and_after_its_last(tmp_path, after, words):
    run = saved(tmp_path / "run", after)
    found = report.of_checkpoint(tmp_path / "run", **FAST)
    assert [claim.epsilon for claim in found.claims] == [run.guarantee.epsilon]
    assert words in found.markdown()


def test_steps_that_are_no_whole_epochs_have_no_guarantee_of_their_own(tmp_path):
    saved(tmp_path / "run", 3, strategy=strategies.identity(8), sampling=BallsInBins(4))
    found = report.of_checkpoint(tmp_path / "run", **FAST)
    assert len(found.claims) == 1
    assert "no guarantee of their own" in found.markdown()


@pytest.mark.parametrize("scheme", [Shuffle(4), Shuffle()], ids=repr)
def test_schemes_without_amplification_have_the_number_of_training(tmp_path, scheme):
    run = saved(tmp_path / "run", 4, strategy=strategies.identity(8), sampling=scheme)
    found = report.of_checkpoint(tmp_path / "run", **FAST)
    assert found.claims[0].epsilon == run.guarantee.epsilon
    assert not found.claims[0].reserved
    assert "No amplification is proven for training" in found.markdown()
    assert "--method unamplified" in found.reproduction.command


@pytest.mark.parametrize(
    "strategy",
    [
        strategies.toeplitz([1.0, 0.6, 0.3], 7),
        strategies.continual_counting(7),
        strategies.banded_inverse(7, 3),
        strategies.banded(7, 3),
        strategies.blt(7, decay=[0.9, 0.5], scale=[0.1, 0.2]),
        strategies.blt(7, decay=[1 - 0.123457, np.nextafter(0.5, 1)], scale=[0.1, 1 / 7]),
        strategies.blt(7, 2),
        strategies.toeplitz([1.0, 1 / 3, np.nextafter(0.2, 1)], 7),
        strategies.tree_restart(7, 2),
    ],
    ids=repr,
)
def test_strategies_are_made_again_from_their_description(tmp_path, strategy):
    saved(tmp_path / "run", 0, strategy=strategy)
    found = report.of_checkpoint(tmp_path / "run", method="unamplified", **FAST)
    asked = {"sigma": 1.0, "delta": DELTA, "method": "unamplified"}
    assert found.claims[0].epsilon == mmcc.epsilon(strategy, Poisson(0.3), **asked).epsilon


def test_a_strategy_with_more_numbers_than_are_shown_must_be_given(tmp_path):
    exact = strategies.toeplitz([1.0, 1 / 3, 0.1, 0.1, 0.1], 7)
    run = saved(tmp_path / "run", 0, strategy=exact, method="unamplified")
    with pytest.raises(MmccError, match=r"cannot be rebuilt.*Give the strategy itself"):
        report.of_checkpoint(tmp_path / "run", **FAST)
    with pytest.raises(MmccError, match="Give the strategy of the run"):
        report.of_checkpoint(
            tmp_path / "run",
            strategy=strategies.toeplitz([1.0, 0.333333, 0.1, 0.1, 0.1], 7),
            **FAST,
        )
    found = report.of_checkpoint(tmp_path / "run", strategy=exact, method="unamplified", **FAST)
    assert found.claims[0].epsilon == run.guarantee.epsilon


def test_a_description_worded_otherwise_is_the_same_strategy(tmp_path):
    """An older version showed fewer digits; the digest says that it is this one."""
    exact = strategies.blt(7, decay=[1 - 0.123457], scale=[1 / 7])
    run = saved(tmp_path / "run", 0, strategy=exact, method="unamplified")
    mechanism = run.mechanism
    fingerprint = mechanism.fingerprint()
    digest = fingerprint["strategy"].rpartition(" ")[2]
    words = "blt(7, decay=[0.876543], scale=[0.142857])"
    assert mechanism.differences({**fingerprint, "strategy": f"{words} with digest {digest}"}) == []
    for other in (words, f"{words} with digest {digest[::-1]}", f"{words} with digest "):
        assert mechanism.differences({**fingerprint, "strategy": other})


def test_a_matrix_must_be_given(tmp_path, capsys):
    matrix = strategies.dense(strategies.continual_counting(7).to_dense())
    saved(tmp_path / "run", 0, strategy=matrix)
    words = ["report", "--checkpoint", str(tmp_path / "run"), "--delta", "1e-5", "--seconds", "0"]
    words += ["--out", str(tmp_path / "r.md")]
    assert main(words) == 2
    assert "cannot be rebuilt" in capsys.readouterr().err
    strategies.save(matrix, tmp_path / "c.npz")
    assert main([*words, "--strategy", str(tmp_path / "c.npz")]) == 0
    assert "c.npz" in (tmp_path / "r.md").read_text()


def content_of(path):
    payload = path.read_bytes()[len(MAGIC) + DIGEST :]
    return torch.load(io.BytesIO(payload), weights_only=True)


def test_keys_and_parameters_stay_secret(tmp_path):
    saved(tmp_path / "run", 2)
    content = content_of(tmp_path / "run")
    text = report.of_checkpoint(tmp_path / "run", **FAST).html()
    for name in ("noise", "participants"):
        key = content[name]["key"]
        assert len(key) >= 32
        assert key not in text
        assert key[:12] not in text
    for tensor in content["module"].values():
        for value in tensor.flatten().tolist():
            assert f"{abs(value):.5f}" not in text


@pytest.mark.parametrize(
    ("entry", "change"),
    [
        ("fingerprint", {"strategy": "exit() with digest 0"}),
        ("fingerprint", {"strategy": "__import__('os').system('x') with digest 0"}),
        ("fingerprint", {"sampling": "Poisson(probability=2)"}),
        ("fingerprint", {"sampling": "Poisson(nonsense=1)"}),
        ("fingerprint", {"sampling": "Poisson({[]: 1})"}),
        ("fingerprint", {"sampling": f"Poisson({'(' * 5000})"}),
        ("fingerprint", {"sampling": "Poisson(-'x')"}),
        ("fingerprint", {"strategy": "identity({[]: 1}) with digest 0"}),
        ("fingerprint", {"sigma": "nan"}),
        ("fingerprint", {"sigma": 1.0}),
        ("fingerprint", {"examples": "-1"}),
        ("fingerprint", {"more": "x"}),
        ("noise", {"position": -1}),
        ("noise", {"position": 10**9}),
        ("noise", {"position": True}),
        ("noise", {"position": "3"}),
    ],
)
def test_an_edited_checkpoint_is_refused_in_one_sentence(tmp_path, entry, change):
    path = tmp_path / "run"
    saved(path, 2)
    content = content_of(path)
    content[entry] |= change
    buffer = io.BytesIO()
    torch.save(content, buffer)
    path.write_bytes(MAGIC + hashlib.sha256(buffer.getvalue()).digest() + buffer.getvalue())
    with pytest.raises(
        MmccError, match=r"no report can be made|does not have the entries"
    ) as caught:
        report.of_checkpoint(path, **FAST)
    assert "\n" not in str(caught.value)


def test_damaged_files_are_refused(tmp_path):
    (tmp_path / "run").write_bytes(b"mmcc checkpoint\nnothing")
    with pytest.raises(MmccError, match="damaged or truncated"):
        report.of_checkpoint(tmp_path / "run", **FAST)
    with pytest.raises(MmccError, match="cannot read"):
        report.of_checkpoint(tmp_path / "none", **FAST)


def test_the_file_is_read_without_opacus(tmp_path):
    code = (
        "import sys; sys.modules['opacus'] = None\n"
        "import mmcc.training._checkpoint_file\n"
        "assert 'torch' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_torch_the_command_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "mmcc.training._checkpoint_file", raising=False)
    words = ["report", "--checkpoint", "x", "--delta", "1e-5", "--out", str(tmp_path / "r.md")]
    assert main(words) == 2
    assert "pip install 'mmcc[train]'" in capsys.readouterr().err


def test_one_digest_ties_the_run_to_its_checkpoint_and_its_ledger(tmp_path):
    book, tree = tmp_path / "book.jsonl", strategies.binary_tree(4)
    saved(tmp_path / "run", 1, strategy=tree, ledger=book, data_name="faces")
    of_run = report.of_checkpoint(tmp_path / "run", **FAST)
    facts = {fact.name: fact.value for fact in of_run.facts}
    given = {"sigma": 1.0, "delta": DELTA, "seconds": 0.0}
    plain = report.of_mechanism(tree, Poisson(0.3), **given)
    [digest] = [fact.value for fact in plain.facts if fact.name == "Digest of the mechanism"]
    assert facts["Digest of the mechanism"] == digest
    content = (tmp_path / "run").read_bytes()
    assert facts["SHA-256 of the checkpoint"] == hashlib.sha256(content).hexdigest()
    of_book = report.of_ledger(book)
    assert [line.digest for line in of_book.claims[0].runs] == [digest]
    for text in (of_book.markdown(), of_book.html(), of_run.html(), plain.markdown()):
        assert digest in text
