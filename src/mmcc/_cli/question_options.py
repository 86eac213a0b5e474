"""Options that several commands share besides the mechanism's: what to compute and how to print."""

from __future__ import annotations

from typing import Any

from mmcc._cli.command import FILE, FLAG, NUMBER, OUTPUT, QUESTION, WHOLE, Option

JSON = Option(("--json", "as_json"), FLAG, OUTPUT, "Print one JSON object.")
UNITS = Option(
    "--units",
    FLAG,
    QUESTION,
    "Also print mu of Gaussian DP, rho of zCDP and what attacks can achieve.",
)
SIMULATION = (
    Option("--samples", WHOLE, QUESTION, "Estimate: draw at most this many samples."),
    Option("--width", NUMBER, QUESTION, "Estimate: stop at this relative width of the interval."),
    CONFIDENCE := Option(
        "--confidence",
        NUMBER,
        QUESTION,
        "Chance that the interval, or the audit's bound, is right.",
    ),
    SEED := Option("--seed", WHOLE, QUESTION, "Seed of the random numbers."),
)
VERDICT = (
    Option(
        "--failure",
        NUMBER,
        QUESTION,
        "Verify: the chance of a wrong verdict, part of delta; default 1e-9.",
    ),
    Option(
        "--record",
        FILE,
        QUESTION,
        "Verify: record all attempts in this file, and resume one that was interrupted.",
    ),
    WORKERS := Option("--workers", WHOLE, QUESTION, "Verify: number of processes."),
)
PLOT = Option("--plot", FILE, OUTPUT, "Draw a picture: a .png, .svg or .pdf file.")


def said(**given: Any) -> dict[str, Any]:
    """The options that were given, without those that were left out."""
    return {name: value for name, value in given.items() if value is not None}
