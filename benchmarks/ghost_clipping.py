"""What clipping costs at realistic sizes: memory and time, compared with Opacus's ghost mode.

    python benchmarks/ghost_clipping.py [--ways plain opacus-ghost ghost] [--model linear]

A transformer of GPT-2's small size with random weights, sequences of 64 tokens, batches of 8, SGD.
Every way runs in its own process, one after another in one run.  Peak memory is the process's
ru_maxrss, inspected batches included; time is processor seconds per step, user and system, of the
steps after those.  Ours have the noise of a two-buffer BLT, of which the stream keeps two vectors
and hands out one; Opacus has plain Gaussian noise.

`--model linear`: linear layers, head and embeddings apart, for which Opacus has all its rules;
25 000 words make 124 million parameters.  `conv1d`: transformers' GPT2LMHeadModel, head and
embeddings apart.  `tied`: the same with both in one, as GPT-2 is, which Opacus's ghost mode
refuses.  `lora`: peft's LoRA of rank 8 on all layers of that one, everything else frozen.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

LENGTH, BATCH, WIDTH, HEADS = 64, 8, 768, 12
POSITIONS = 1024
GROUPS = 2
WAYS = (
    "plain",
    "opacus-ghost",
    "opacus-rows",
    "flat",
    "ghost",
    "per-layer",
    "automatic",
    "ghost, no correlation",
)
MODELS = ("linear", "conv1d", "tied", "lora")
CLOSE = 3
"""Steps whose batches are inspected."""
NOISE_VECTORS, MARGIN, SLOWER = 3, 1.2, 1.25
"""Limits relative to Opacus's ghost mode: vectors, total memory, and time."""
GHOSTLY = ("ghost", "per-layer", "automatic", "ghost, no correlation")


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.parts, self.joined = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        shape = (*x.shape[:2], HEADS, WIDTH // HEADS)
        parts = self.parts(self.first(x)).chunk(3, dim=-1)
        query, key, value = (part.view(shape).transpose(1, 2) for part in parts)
        seen = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.joined(seen.transpose(1, 2).reshape(x.shape))
        return x + self.down(nn.functional.gelu(self.up(self.second(x))))


class Transformer(nn.Module):
    def __init__(self, layers: int, words: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, WIDTH), nn.Embedding(POSITIONS, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(layers)))
        self.last, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, words, bias=False)

    def forward(self, input_ids: Tensor, position_ids: Tensor) -> Tensor:
        x = self.words(input_ids) + self.places(position_ids)
        return self.head(self.last(self.blocks(x)))


class Logits(nn.Module):
    """A model of transformers that returns only scores."""

    def __init__(self, inside: nn.Module) -> None:
        super().__init__()
        self.inside = inside

    def forward(self, input_ids: Tensor, position_ids: Tensor) -> Tensor:
        return self.inside(input_ids=input_ids, position_ids=position_ids).logits


def built(model: str, layers: int, words: int) -> nn.Module:
    torch.manual_seed(0)
    if model == "linear":
        return Transformer(layers, words)
    from transformers import GPT2Config, GPT2LMHeadModel

    none = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    tied = model in ("tied", "lora")
    config = GPT2Config(
        n_layer=layers, vocab_size=words, use_cache=False, tie_word_embeddings=tied, **none
    )
    inside: nn.Module = GPT2LMHeadModel(config)
    if model == "lora":
        import peft

        targets = ["c_attn", "c_proj", "c_fc"]
        inside = peft.get_peft_model(
            inside, peft.LoraConfig(r=8, target_modules=targets, fan_in_fan_out=True)
        )
    return Logits(inside)


@dataclass
class Steps:
    """Steps of training in one of the ways."""

    way: str
    module: nn.Module
    words: int
    count: int

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(1)
        shape = (GROUPS * BATCH, LENGTH + 1)
        self.tokens = torch.randint(self.words, shape, generator=generator)
        trained = [p for p in self.module.parameters() if p.requires_grad]
        self.optimizer: Any = torch.optim.SGD(trained, lr=1e-3)

    def batches(self) -> Iterator[Tensor]:
        for step in range(self.count):
            start = step % GROUPS * BATCH
            yield self.tokens[start : start + BATCH]

    def scores(self, module: nn.Module, tokens: Tensor) -> Tensor:
        places = torch.arange(LENGTH).expand(len(tokens), -1)
        return module(tokens[:, :-1].contiguous(), places.contiguous())

    def run(self) -> Iterator[None]:
        if self.way == "plain":
            yield from self.plain()
        elif self.way.startswith("opacus"):
            yield from self.opacus(ghost=self.way == "opacus-ghost")
        else:
            yield from self.ours()

    def plain(self) -> Iterator[None]:
        for tokens in self.batches():
            self.optimizer.zero_grad()
            scores = self.scores(self.module, tokens)
            nn.functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten()).backward()
            self.optimizer.step()
            yield

    def opacus(self, *, ghost: bool) -> Iterator[None]:
        from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
        from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
        from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

        kind = GradSampleModuleFastGradientClipping if ghost else GradSampleModule
        module = kind(self.module, **({"max_grad_norm": 1.0} if ghost else {}))
        stepping = DPOptimizerFastGradientClipping if ghost else DPOptimizer
        optimizer = stepping(
            self.optimizer, noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=BATCH
        )
        loss_of: Callable[..., Any] = nn.CrossEntropyLoss()
        if ghost:
            loss_of = DPLossFastGradientClipping(module, optimizer, nn.CrossEntropyLoss())
        for tokens in self.batches():
            optimizer.zero_grad(set_to_none=True)
            scores = self.scores(module, tokens)
            shape = {"shape": scores.shape} if ghost else {}
            loss_of(scores.flatten(0, 1), tokens[:, 1:].flatten(), **shape).backward()
            optimizer.step()
            yield

    def ours(self) -> Iterator[None]:
        from mmcc import strategies
        from mmcc.sampling import CyclicPoisson
        from mmcc.training import make_private, per_example_loss

        clipping, _, alone = self.way.partition(", ")
        steps = 2 * self.count
        module, optimizer, loader = make_private(
            self.module,
            self.optimizer,
            list(self.tokens),
            strategy=strategies.identity(steps) if alone else strategies.blt(steps, 2),
            sampling=CyclicPoisson(1.0, GROUPS),  # exactly `BATCH` examples a step
            max_grad_norm=1.0,
            sigma=1.0,
            delta=1e-5,
            clipping=clipping,
        )
        for tokens in loader:
            optimizer.zero_grad()
            scores = self.scores(module, tokens)
            per_example_loss(scores, tokens[:, 1:]).mean().backward()
            optimizer.step()
            yield
            if optimizer.position == self.count:
                return


def measured(options: argparse.Namespace) -> dict[str, float]:
    """Peak memory and processor seconds of this process, which uses one way."""
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    module = built(options.model, options.layers, options.words)
    count = sum(p.numel() for p in module.parameters() if p.requires_grad)
    begin = 0.0
    for done, _ in enumerate(
        Steps(options.way, module, options.words, CLOSE + options.steps).run()
    ):
        if done == CLOSE - 1:
            begin = processor_seconds()
    return {
        "parameters": count,
        "seconds": (processor_seconds() - begin) / options.steps,
        "gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9,
    }


def processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def of_child(options: argparse.Namespace, way: str) -> dict[str, float] | str:
    """The figures of a way, or why there are none."""
    given = ("model", "layers", "words", "steps", "threads")
    arguments = [part for name in given for part in (f"--{name}", str(getattr(options, name)))]
    done = subprocess.run(
        [sys.executable, __file__, "--way", way, *arguments], capture_output=True, text=True
    )
    if done.returncode:
        return done.stderr.strip().rpartition("\n")[2]
    return json.loads(done.stdout.strip().rpartition("\n")[2])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--ways", nargs="+", choices=WAYS, default=["plain", "opacus-ghost", "ghost"]
    )
    parser.add_argument("--way", choices=WAYS, help="run this way in this process, print figures")
    parser.add_argument("--model", choices=MODELS, default="linear")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--words", type=int, default=25_000)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    if options.way:
        print(json.dumps(measured(options)))
        return
    found = {way: of_child(options, way) for way in options.ways}
    peer = found.get("opacus-ghost")
    first = next(figures for figures in found.values() if isinstance(figures, dict))
    vector = first["parameters"] * 4 / 1e9
    print(f"{options.model}, {first['parameters']:.0f} parameters, a vector is {vector:.2f} GB\n")
    print("| way | peak memory (GB) | processor seconds a step | memory | time |")
    print("|---|---|---|---|---|")
    for way, figures in found.items():
        if isinstance(figures, str):
            print(f"| {way} | {figures} | | | |")
            continue
        ratios = " | "
        if isinstance(peer, dict) and way in GHOSTLY:
            beside = peer["gigabytes"] + NOISE_VECTORS * vector
            memory, time = figures["gigabytes"] / beside, figures["seconds"] / peer["seconds"]
            ratios = f"{memory:.2f} | {time:.2f}"
        print(f"| {way} | {figures['gigabytes']:.2f} | {figures['seconds']:.1f} | {ratios} |")
    if isinstance(peer, dict):
        print(
            f"\nmemory: as a ratio to that of opacus-ghost and {NOISE_VECTORS} vectors, at most "
            f"{MARGIN}; time: as a ratio to opacus-ghost, at most {SLOWER}"
        )


if __name__ == "__main__":
    main()
