"""Claim: make_private trains with noise that was verified, and its ledger knows that."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from mmcc import ledger, sampling, strategies, training
from mmcc.errors import NotVerifiedError, ParameterError

OPTIONS = {
    "strategy": strategies.continual_counting(4),
    "sampling": sampling.MinSeparation(0.25, 2),
    "max_grad_norm": 1.0,
    "delta": 0.05,
    "method": "verify",
    "verify": {"failure": 1e-3},
}


def private(**changed):
    module = nn.Linear(3, 2)
    data = TensorDataset(torch.randn(40, 3), torch.randint(0, 2, (40,)))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    return training.make_private(module, optimizer, data, **{**OPTIONS, **changed})


def test_a_target_is_verified_and_written_down(tmp_path):
    file, record = tmp_path / "ledger.jsonl", tmp_path / "record.json"
    options = {"verify": {"failure": 1e-3, "record": record}, "epsilon": 1.5}
    _, optimizer, loader = private(**options, ledger=file, data_name="d")
    found = optimizer.guarantee
    assert (found.kind, found.epsilon, found.failure) == ("verified", 1.5, 1e-3)
    for inputs, _ in loader:
        assert inputs.shape[1] == 3
        break
    assert ledger.Ledger(file).total("d").kind == "verified"
    _, again, _ = private(**options)  # as a run that is taken up again: the verdict is read
    assert again.guarantee == found


def test_noise_that_is_not_verified_is_not_trained_with(tmp_path):
    file = tmp_path / "ledger.jsonl"
    options = {"verify": {"failure": 1e-3, "samples": 300}, "epsilon": 1.5}
    with pytest.raises(NotVerifiedError, match="there is no sigma to use"):
        private(**options, ledger=file, data_name="d")
    assert not file.exists()


@pytest.mark.parametrize(
    ("changed", "said"),
    [({"sigma": 2.0}, "give epsilon"), ({"epsilon": 1.0, "method": "tight"}, "has options for")],
)
def test_what_cannot_be_verified_is_refused(changed, said):
    with pytest.raises(ParameterError, match=said):
        private(**changed)
