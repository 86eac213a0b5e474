"""LoRA fine-tuning of a small causal language model with peft, and a report at the end.

    python examples/lora.py                       # a minute of one core
    python examples/lora.py --quick               # seconds: fewer passages and steps
    python examples/lora.py --model gpt2          # pretrained weights, which are downloaded

In: the texts of Python's own manual (`pydoc_data.topics`), cut into passages.  Out: the loss on
held-out passages, before and after, what the run guarantees, and a report of it.
Without `--model` nothing is downloaded: the model has the architecture of Llama, its tokens are
letters, and its frozen weights are random, so all it learns is in the adapters.
The learning rate was chosen on the same data by eye; that choice is not part of the guarantee.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from mmcc import Guarantee, report
from mmcc.training import ProgressLine, make_private, per_example_loss, save_checkpoint

LETTERS = "abcdefghijklmnopqrstuvwxyz "
SET_ASIDE = 10
"""One passage in this many is held out."""


@dataclass(frozen=True)
class Setting:
    """What is trained, for how long, and within which target."""

    model: str | None = None
    length: int = 32
    """Length of a passage, in tokens: what is protected is one passage."""
    passages: int | None = None
    """How many passages are used; all of them by default."""
    epochs: int = 8
    batch_size: int = 512
    rank: int = 8
    learning_rate: float = 0.02
    epsilon: float = 4.0
    delta: float = 1e-5


QUICK = Setting(passages=2000, epochs=2, batch_size=200, epsilon=8.0)


@dataclass(frozen=True)
class Result:
    """The result; losses are per token of the held-out passages, in nats."""

    guarantee: Guarantee
    loss_before: float
    loss: float


def letters() -> list[int]:
    """The manual with everything but letters and spaces removed."""
    text = " ".join(topics[name] for name in sorted(topics)).lower()
    return [LETTERS.index(letter) for letter in text if letter in LETTERS]


def small_model(length: int) -> LlamaForCausalLM:
    """Two layers with random weights."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(LETTERS),
            max_position_embeddings=length,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=2,
            initializer_range=0.2,
            bos_token_id=None,
            eos_token_id=None,
        )
    )


def prepared(setting: Setting) -> tuple[nn.Module, Tensor]:
    """A model with adapters, and passages: a row of tokens each."""
    if setting.model is None:
        plain: Any = small_model(setting.length)
        tokens = letters()
    else:
        plain = AutoModelForCausalLM.from_pretrained(setting.model)
        text = "\n\n".join(topics[name] for name in sorted(topics))
        tokens = AutoTokenizer.from_pretrained(setting.model)(text)["input_ids"]
    count = min(len(tokens) // setting.length, setting.passages or len(tokens))
    rows = torch.tensor(tokens[: count * setting.length]).view(count, setting.length)
    adapters = LoraConfig(r=setting.rank, lora_alpha=2 * setting.rank, target_modules="all-linear")
    return get_peft_model(plain, adapters), rows


def losses(module: nn.Module, tokens: Tensor) -> Tensor:
    """The mean loss of each passage: in a mean over all tokens passages would interact."""
    logits = module(input_ids=tokens).logits
    return per_example_loss(logits[:, :-1], tokens[:, 1:])


@torch.no_grad()
def mean_loss(module: nn.Module, tokens: Tensor) -> float:
    """The loss on held-out passages, which releases nothing about those that are trained on."""
    module.eval()
    found = torch.cat([losses(module, part) for part in tokens.split(256)])
    module.train()
    return float(found.mean())


def main(setting: Setting, page: Path, folder: Path | None = None) -> Result:
    """Train, print the guarantee, and write the report; the adapters go to `folder`."""
    torch.manual_seed(0)
    model, passages = prepared(setting)
    aside = torch.arange(len(passages)) % SET_ASIDE == 0
    before = mean_loss(model, passages[aside])
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    module, optimizer, loader = make_private(
        model.train(),
        torch.optim.Adam(trained, lr=setting.learning_rate),
        DataLoader(list(passages[~aside]), batch_size=setting.batch_size, shuffle=True),
        strategy="banded-toeplitz:4",
        sampling="cyclic-poisson:4",
        epochs=setting.epochs,
        max_grad_norm=1.0,
        epsilon=setting.epsilon,
        delta=setting.delta,
        clipping="ghost",  # per-example gradients are never formed
    )
    with ProgressLine(optimizer) as line:
        for _ in range(setting.epochs):
            for tokens in loader:
                optimizer.zero_grad()
                loss = losses(module, tokens).mean()
                loss.backward()
                optimizer.step()
                line(loss)
    result = Result(optimizer.guarantee, before, mean_loss(model, passages[aside]))
    print(f"{result.guarantee}.")
    print(f"loss {result.loss_before:.3f} before, {result.loss:.3f} after")
    write_report(optimizer, setting, page)
    if folder is not None:
        model.save_pretrained(folder)
    return result


def write_report(optimizer: Any, setting: Setting, page: Path) -> None:
    """Write the report from a checkpoint, which is as secret as the data and then deleted."""
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "run.mmcc"
        save_checkpoint(checkpoint, optimizer)
        found = report.of_checkpoint(
            checkpoint,
            delta=setting.delta,
            title="Adapters trained on Python's manual",
            unit=f"one passage of {setting.length} tokens",
            data="pydoc_data.topics",
            seconds=2,
        )
    found.save(page)
    print(f"report: {page}")


def asked() -> tuple[Setting, Path, Path | None]:
    """The setting and files from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer passages and steps")
    parser.add_argument("--model", help="Hugging Face model, by name or folder")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--epsilon", type=float)
    parser.add_argument("--learning-rate", type=float)
    parser.add_argument("--report", type=Path, default=Path("privacy-report.html"))
    parser.add_argument("--adapters", type=Path, help="folder for what was trained")
    found = vars(parser.parse_args())
    page, folder = found.pop("report"), found.pop("adapters")
    setting = QUICK if found.pop("quick") else Setting()
    given = {name: value for name, value in found.items() if value is not None}
    return replace(setting, **given), page, folder


if __name__ == "__main__":
    # Opacus hooks a first layer whose inputs need no gradient: torch's warning is harmless.
    warnings.filterwarnings("ignore", message="Full backward hook")
    main(*asked())
