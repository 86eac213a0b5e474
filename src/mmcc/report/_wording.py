"""What a reader has to check by other means, in plain words.

In: schemes and facts of a mechanism.  Out: sentences.  They state what docs/guarantees.md,
docs/training.md and docs/ledger.md prove or require, and nothing more.
"""

from __future__ import annotations

from mmcc.report._facts import UNIT, Assumption, named
from mmcc.sampling import Scheme

TUNING = Assumption(
    "Tuning is not counted.",
    "Learning rates, architectures or stopping times that were chosen by looking at other runs on "
    "the same data have their own privacy cost, which is not in this number.",
)
SECRET = Assumption(
    "Who took part stays secret.",
    "Batches, their sizes, seeds and keys of noise and sampling are not published. A seed that can "
    "be guessed, or that two runs share, voids the guarantee.",
)
NOISE_SECRET = Assumption(
    "Noise stays secret.",
    "Seeds and keys of the noise are not published. A seed that can be guessed, or that two runs "
    "share, voids the guarantee. Who took part may be known.",
)
REAL_NUMBERS = Assumption(
    "Noise is Gaussian as far as floating point goes.",
    "The proof is about exact Gaussian noise and exact independent coin flips. Software draws "
    "floating-point numbers from a generator: attacks on their lowest bits, and on a generator "
    "that is not cryptographic, are not covered.",
)


VERDICTS = Assumption(
    "Verdicts were not picked.",
    "A verified number rests on random numbers that were drawn after everything else was fixed. "
    "Every attempt to verify the mechanism is in the record, or was made by the same process; a "
    "hidden attempt, or a choice among several verified mechanisms that was not paid for, makes a "
    "wrong verdict likelier than stated.",
)


def of_training(
    scheme: Scheme,
    *,
    unit: str,
    adaptive: bool,
    settings: tuple[str, ...],
    steps: int,
    group_size: int = 1,
    verified: bool = False,
) -> tuple[Assumption, ...]:
    """What the guarantee of one mechanism assumes, most important first."""
    differ = f"the contributions of {named(unit, group_size)}"
    return (
        *_reservations(adaptive, settings),
        _sampled(scheme),
        SECRET if scheme.random else NOISE_SECRET,
        Assumption(
            "Contributions are clipped.",
            f"In every step the contribution of {unit} has norm at most the clip norm, "
            "all parameters together. Sigma is in units of that norm, and C is used as given: "
            "noise that is meant relative to the sensitivity of C must be multiplied by it first.",
        ),
        _one_unit(unit, group_size),
        Assumption(
            "Nothing else is released.",
            "Only the noisy releases C x + z, and what is computed from them without the data. "
            "Losses and accuracies on the training data, statistics used for normalisation, and "
            "the data's part in pretraining are not covered.",
        ),
        Assumption(
            "All other runs count too.",
            "Every run on the same data is part of what was released, including one that was "
            "killed or whose model nobody uses. A ledger (mmcc ledger) adds them up.",
        ),
        TUNING,
        Assumption(
            "The number of steps was fixed beforehand.",
            f"The guarantee is that of all {steps:,} steps. A run that was stopped earlier because "
            "of what it had shown has the same guarantee, not a smaller one.",
        ),
        Assumption(
            "The data's size is public.",
            f"Neighbours differ in {differ}, which are replaced by zero. The number "
            "of examples, and with it the expected batch size, is the same for both.",
        ),
        *([VERDICTS] if verified else []),
        REAL_NUMBERS,
    )


def of_loops() -> tuple[Assumption, ...]:
    """What a training loop of mmcc.training cannot detect by itself."""
    return (
        Assumption(
            "Examples do not interact.",
            "No layer, loss or collate function mixes the examples of a batch (BatchNorm, MixUp, "
            "contrastive losses), and each example is used through the loader only.",
        ),
        Assumption(
            "Repeated steps were repeated exactly.",
            "If the run was resumed, only one version of each step was published: releasing the "
            "same noise with other gradients as well reveals their difference.",
        ),
    )


def of_runs(
    adaptive: bool,
    settings: tuple[str, ...],
    resumed: bool,
    unit: str,
    verified: bool = False,
) -> tuple[Assumption, ...]:
    """What a total over runs assumes."""
    again = (
        "Runs that were resumed from a checkpoint repeated bit for bit what they had done after "
        "it: same code, same data, same learning rate. A ledger cannot detect that."
    )
    return (
        *_reservations(adaptive, settings),
        Assumption(
            "Every run is in the ledger, under one name.",
            "A run on the same data that was made elsewhere, or entered under another name, is "
            "missing from the total.",
        ),
        Assumption(
            "Runs have independent noise.",
            "Noise and sampling of different runs are independent. Two runs with the same seed do "
            "not count as two.",
        ),
        *([Assumption("Resumed runs were repeated exactly.", again)] if resumed else []),
        Assumption(
            "The assumptions of each run hold.",
            "Its sampling is what the training did, its contributions were clipped, its batches, "
            "seeds and keys stay secret, and its noise was what its guarantee says.",
        ),
        _one_unit(unit),
        Assumption(
            "Nothing else is released.",
            "Losses and accuracies on the training data, statistics used for normalisation, and "
            "the data's part in pretraining are not covered.",
        ),
        TUNING,
        *([VERDICTS] if verified else []),
        REAL_NUMBERS,
    )


def _reservations(adaptive: bool, settings: tuple[str, ...]) -> list[Assumption]:
    """Why a number is no guarantee for training, if it is not."""
    found = [
        Assumption("This is not a guarantee for training.", f"The number holds only in {setting}.")
        for setting in settings
    ]
    if not adaptive and not settings:
        text = (
            "The number holds only if all inputs were fixed in advance. Gradients depend on what "
            "was released before them."
        )
        found.append(Assumption("This is not a guarantee for training.", text))
    return found


def _sampled(scheme: Scheme) -> Assumption:
    if not scheme.random:
        return Assumption(
            "Participation stays within its limits.",
            f"These are described under Sampling. {scheme.caution} For anyone beyond the limits "
            "the number does not hold.",
        )
    return Assumption(
        "Sampling is what the training does.",
        f"The batches were drawn as described under Sampling. {scheme.caution} For any other "
        "way of making batches the number does not hold.",
    )


def _one_unit(unit: str, group_size: int = 1) -> Assumption:
    if unit == UNIT and group_size == 1:
        text = (
            "The guarantee protects one training example. Someone with several examples in the "
            "data is protected less; duplicates count as several."
        )
    elif unit == UNIT:
        text = (
            f"The guarantee protects any {group_size:,} examples together. Someone with more "
            "examples in the data is protected less; duplicates count as several."
        )
    else:
        text = (
            f"Everything that belongs to {unit} is one example for the training: it is sampled "
            "together and its contribution is clipped as a whole."
        )
        if group_size > 1:
            text += f" The guarantee protects any {named(unit, group_size)} together."
    return Assumption("The unit of privacy is what the training treats as an example.", text)
