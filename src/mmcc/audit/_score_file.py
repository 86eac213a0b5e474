"""Scores of canaries in a file, for `mmcc audit --canaries FILE`.

In: scores and coins.  Out: a CSV file with the columns `score` and `included` (0 or 1), and back.
"""

from __future__ import annotations

import csv
import math
import os
from pathlib import Path

from numpy.typing import ArrayLike

from mmcc._arrays import BoolArray, FloatArray
from mmcc.audit._canaries import checked_scores
from mmcc.errors import ParameterError, shown

HEADER = ["score", "included"]
COINS = {"0": False, "1": True}


def save_scores(path: str | os.PathLike[str], scores: ArrayLike, included: ArrayLike) -> None:
    """Write the score and the coin of each canary to a file: one line each, with all digits."""
    values, coins = checked_scores(scores, included)
    if not isinstance(path, (str, os.PathLike)):  # a number would be a file that is already open
        raise ParameterError(f"scores need the path of a file, got {shown(path)}.")
    try:
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(HEADER)
            writer.writerows([repr(float(v)), int(c)] for v, c in zip(values, coins, strict=True))
    except OSError as problem:
        raise ParameterError(f"the scores cannot be written: {problem}.") from None


def load_scores(path: str | os.PathLike[str]) -> tuple[FloatArray, BoolArray]:
    """Scores and coins from a file that `save_scores` wrote, or one of the same form."""
    try:
        lines = list(csv.reader(Path(path).read_text(encoding="utf-8-sig").splitlines()))
    except (OSError, ValueError, csv.Error) as problem:
        raise ParameterError(
            f"the scores in {os.fspath(path)} cannot be read: {problem}."
        ) from None
    if not lines or [word.strip() for word in lines[0]] != HEADER:
        raise ParameterError(
            f"{os.fspath(path)} must begin with the line {','.join(HEADER)}, followed by one line "
            "for each canary, such as 1.25,0."
        )
    name = os.fspath(path)
    rows = [_row(line, number, name) for number, line in enumerate(lines[1:], 2) if line]
    return checked_scores([score for score, _ in rows], [coin for _, coin in rows])


def _row(line: list[str], number: int, path: str) -> tuple[float, bool]:
    try:
        score, coin = line
        value, included = float(score), COINS[coin.strip()]
    except (ValueError, KeyError):
        value = math.nan
    if math.isnan(value):
        raise ParameterError(
            f"line {number} of {path} must be a number and 0 or 1, such as 1.25,0, got "
            f"{shown(','.join(line))}."
        )
    return value, included
