"""Hugging Face's Trainer, whose training is one run of an accounted mechanism.

    python examples/with_trainer.py
    torchrun --nproc_per_node 2 examples/with_trainer.py

In: made-up reviews, a tokenizer and a small untrained BERT, all made here.  Out: the accuracy
on other reviews and what the run guarantees.
With `PrivateTrainer` the batch size, the epochs, the learning rate and its schedule are where they
always are; everything new is in `privacy`.
"""

from __future__ import annotations

import random
import tempfile
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    PreTrainedTokenizerFast,
    TrainingArguments,
    set_seed,
)

from mmcc import Guarantee
from mmcc.training import PrivateTrainer

EXAMPLES, BATCH_SIZE = 2000, 200
EPSILON, DELTA = 8.0, 1e-5
GOOD = ["good", "great", "lovely", "fine", "brilliant"]
BAD = ["bad", "awful", "boring", "poor", "dreadful"]
OTHER = ["the", "a", "film", "plot", "it", "was", "and", "I", "found", "very", "really", "actor"]
SPECIAL = ["[PAD]", "[UNK]"]


@dataclass(frozen=True)
class Result:
    """The result, on reviews that the run has not seen."""

    guarantee: Guarantee
    accuracy_before: float
    accuracy: float


def tokenizer() -> PreTrainedTokenizerFast:
    """One token a word."""
    words = {word: place for place, word in enumerate([*SPECIAL, *GOOD, *BAD, *OTHER])}
    made = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]")


def reviews(count: int, seed: int, tokens: PreTrainedTokenizerFast) -> list[dict[str, Any]]:
    """Sentences of 4 to 12 words, one or two of which express an opinion."""
    draw = random.Random(seed)
    made = []
    for _ in range(count):
        label = draw.randrange(2)
        words = draw.choices((BAD, GOOD)[label], k=draw.randint(1, 2))
        words += draw.choices(OTHER, k=draw.randint(3, 10))
        draw.shuffle(words)
        made.append({**tokens(" ".join(words), return_token_type_ids=False), "label": label})
    return made


def model(tokens: PreTrainedTokenizerFast) -> BertForSequenceClassification:
    """A small BERT with random weights."""
    return BertForSequenceClassification(
        BertConfig(
            vocab_size=len(tokens),
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            initializer_range=0.2,
            max_position_embeddings=16,
            num_labels=2,
        )
    )


def accuracy(predicted: Any) -> dict[str, float]:
    """Share of the reviews classified correctly."""
    return {"accuracy": float(np.mean(predicted.predictions.argmax(-1) == predicted.label_ids))}


def main(epochs: int = 5, folder: str | None = None) -> Result:
    """Train, and print the guarantee."""
    # Opacus hooks a first layer whose inputs need no gradient: torch's warning is harmless.
    warnings.filterwarnings("ignore", message="Full backward hook")
    set_seed(0)
    tokens = tokenizer()
    with tempfile.TemporaryDirectory() as temporary:
        trainer = PrivateTrainer(
            model(tokens),
            TrainingArguments(
                folder or temporary,
                per_device_train_batch_size=BATCH_SIZE,
                per_device_eval_batch_size=250,
                num_train_epochs=epochs,
                optim="sgd",
                learning_rate=3.0,
                lr_scheduler_type="cosine",
                max_grad_norm=0,  # Trainer's own, of whole batches
                logging_steps=10,
                save_strategy="no" if folder is None else "epoch",
                report_to="none",
                dataloader_pin_memory=torch.accelerator.is_available(),
            ),
            train_dataset=reviews(EXAMPLES, 1, tokens),
            eval_dataset=reviews(500, 2, tokens),
            processing_class=tokens,
            compute_metrics=accuracy,
            privacy={
                "strategy": "banded-toeplitz:4",
                "sampling": "cyclic-poisson:4",
                "max_grad_norm": 1.0,
                "epsilon": EPSILON,
                "delta": DELTA,
                "physical_batch_size": 128,
            },
        )
        before = trainer.evaluate()["eval_accuracy"]
        trainer.train()
        result = Result(trainer.guarantee, before, trainer.evaluate()["eval_accuracy"])
    if trainer.is_world_process_zero():
        print(f"{result.guarantee}.")
        print(f"accuracy {result.accuracy_before:.3f} before, {result.accuracy:.3f} after")
    return result


if __name__ == "__main__":
    main()
