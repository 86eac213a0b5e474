"""Lightning's Trainer over one run of an accounted mechanism.

    python examples/with_lightning.py

In: small made-up images of horizontal and vertical bars.  Out: the accuracy on others and what the
run guarantees.
The LightningModule is an ordinary one: it calls the module that `make_private` returned, and its
optimizer is the one that `make_private` returned.
"""

from __future__ import annotations

import tempfile
import warnings
from dataclasses import dataclass
from typing import Any

import lightning
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from mmcc import Guarantee
from mmcc.training import PrivacyCallback, make_private

EXAMPLES, BATCH_SIZE, SIDE = 2000, 200, 8
EPSILON, DELTA = 4.0, 1e-5


@dataclass(frozen=True)
class Result:
    """The result, on images that the run has not seen."""

    guarantee: Guarantee
    accuracy: float


class Classifier(lightning.LightningModule):
    """A module and its optimizer, both made private."""

    def __init__(self, module: nn.Module, optimizer: Any) -> None:
        super().__init__()
        self.module, self.private_optimizer = module, optimizer

    def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
        """An ordinary loss."""
        images, kinds = batch
        return nn.functional.cross_entropy(self.module(images), kinds)

    def validation_step(self, batch: tuple[Tensor, Tensor], _: int) -> None:
        """The accuracy on other images, which releases nothing about the training data."""
        images, kinds = batch
        right = (self.module(images).argmax(dim=1) == kinds).float().mean()
        self.log("accuracy", right, prog_bar=True)

    def configure_optimizers(self) -> Any:
        """The optimizer that clips and adds noise."""
        return self.private_optimizer


def images(count: int, seed: int) -> TensorDataset:
    """A horizontal or vertical bar in noise."""
    generator = torch.Generator().manual_seed(seed)
    kinds = torch.arange(count) % 2
    made = 0.5 * torch.randn(count, 1, SIDE, SIDE, generator=generator)
    places = torch.randint(SIDE, (count,), generator=generator)
    for image, kind, place in zip(made[:, 0], kinds, places, strict=True):
        (image if kind else image.T)[place] += 1.5
    return TensorDataset(made, kinds)


def network() -> nn.Module:
    """A few filters."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(8 * 9, 2)
    )


def main(epochs: int = 6) -> Result:
    """Train, and print the guarantee."""
    # Opacus hooks a first layer whose inputs need no gradient: torch's warning is harmless.
    warnings.filterwarnings("ignore", message="Full backward hook")
    torch.manual_seed(0)
    plain = network()
    module, optimizer, loader = make_private(
        plain,
        torch.optim.SGD(plain.parameters(), lr=1.0),
        DataLoader(images(EXAMPLES, seed=1), batch_size=BATCH_SIZE, shuffle=True),
        strategy="banded-toeplitz:2",
        sampling="cyclic-poisson:2",
        epochs=epochs,
        max_grad_norm=1.0,
        epsilon=EPSILON,
        delta=DELTA,
    )
    with tempfile.TemporaryDirectory() as folder:
        privacy = PrivacyCallback(optimizer, loader, folder)
        trainer = lightning.Trainer(
            accelerator="cpu",
            max_epochs=epochs,
            callbacks=[privacy],
            logger=False,
            enable_checkpointing=False,
            enable_model_summary=False,
            enable_progress_bar=False,
        )
        others = DataLoader(images(500, seed=2), batch_size=250)
        trainer.fit(Classifier(module, optimizer), privacy.batches, others)
    result = Result(optimizer.guarantee, float(trainer.callback_metrics["accuracy"]))
    print(f"{result.guarantee}.")
    print(f"accuracy {result.accuracy:.3f}, by chance 0.5")
    return result


if __name__ == "__main__":
    main()
