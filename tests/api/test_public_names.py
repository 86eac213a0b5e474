"""Claim: public names are found, by keyword too, fail as they should, and are cheap to import.

Which names there are, with their signatures, is in public_api.txt.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

import mmcc
from mmcc import accounting, sampling, strategies
from mmcc.errors import (
    MethodError,
    ParameterError,
    PrecisionError,
    SamplingError,
    StrategyError,
)
from mmcc.strategies._base import ORDERS
from mmcc.strategies._registry import TYPED


def test_what_is_offered_can_be_listed():
    assert set(mmcc.__all__) <= set(dir(mmcc))


def test_sampling():
    assert sampling.Poisson(probability=0.5) == sampling.Poisson(0.5)
    assert sampling.CyclicPoisson(probability=0.5, separation=3) == sampling.CyclicPoisson(0.5, 3)


def test_errors_are_value_errors_of_one_family():
    assert issubclass(mmcc.MmccError, ValueError)
    for error in (MethodError, ParameterError, PrecisionError, SamplingError, StrategyError):
        assert issubclass(error, mmcc.MmccError)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        mmcc.no_such_name  # noqa: B018


def test_the_command_line_knows_the_same_names():
    for name in TYPED:
        assert name.replace("-", "_") in strategies.__all__
    assert set(ORDERS) == {"release", "reversed", "heavy"}
    assert accounting.__doc__


@pytest.mark.parametrize(
    "statement",
    [
        "import mmcc",
        "import mmcc; mmcc.strategies.binary_tree(8); mmcc.sampling.Poisson(0.1)",
        "from mmcc._cli.app import main; main(['--help'])",
        "from mmcc._cli.app import main; main(['epsilon', '--help'])",
        "from mmcc._cli.app import main; main('epsilon --strategy idntity --sampling poisson '"
        "'--prob 0.5 --sigma 1 --delta 1e-5'.split())",
    ],
)
def test_importing_is_cheap(statement):
    """Nothing optional, nothing slow; and the help does not even need numpy."""
    heavy = {"scipy", "numba", "torch", "matplotlib", "dash", "jinja2", "dp_accounting"}
    if "strategies" not in statement:
        heavy |= {"numpy"}
    code = f"{statement}\nimport sys\nprint(sorted({heavy} & set(sys.modules)), file=sys.stderr)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stderr.splitlines()[-1] == "[]"
