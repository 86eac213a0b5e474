"""Tiny random models of transformers, and what peft makes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from cases.zoo.case import (
    CLASSES,
    LENGTH,
    VOCABULARY,
    Batch,
    Case,
    class_losses,
    next_token_losses,
    sequences,
    vectors,
)

NEEDS = ("transformers",)
SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}


def gpt2(**options: Any) -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    none = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    config = GPT2Config(
        n_layer=1,
        n_head=2,
        n_embd=16,
        vocab_size=VOCABULARY,
        n_positions=8,
        bos_token_id=0,
        eos_token_id=0,
        use_cache=False,
        **{**none, **options},
    )
    return GPT2LMHeadModel(config)


def llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            intermediate_size=24,
            max_position_embeddings=8,
            bos_token_id=0,
            eos_token_id=0,
            use_cache=False,
            **SIZES,
        )
    )


def bert() -> nn.Module:
    from transformers import BertConfig, BertForSequenceClassification

    return BertForSequenceClassification(
        BertConfig(
            vocab_size=VOCABULARY,
            intermediate_size=24,
            max_position_embeddings=8,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            num_labels=CLASSES,
            **SIZES,
        )
    )


def t5() -> nn.Module:
    from transformers import T5Config, T5ForConditionalGeneration

    return T5ForConditionalGeneration(
        T5Config(
            vocab_size=VOCABULARY,
            d_model=16,
            d_kv=8,
            d_ff=24,
            num_layers=1,
            num_heads=2,
            dropout_rate=0.0,
            decoder_start_token_id=0,
            use_cache=False,
        )
    )


def mixtral() -> nn.Module:
    from transformers import MixtralConfig, MixtralForCausalLM

    return MixtralForCausalLM(
        MixtralConfig(
            vocab_size=VOCABULARY,
            intermediate_size=24,
            max_position_embeddings=8,
            num_key_value_heads=2,
            num_local_experts=3,
            num_experts_per_tok=1,
            use_cache=False,
            **SIZES,
        )
    )


def opt() -> nn.Module:
    from transformers import OPTConfig, OPTForCausalLM

    return OPTForCausalLM(
        OPTConfig(
            vocab_size=VOCABULARY,
            ffn_dim=24,
            word_embed_proj_dim=16,
            max_position_embeddings=8,
            dropout=0.0,
            use_cache=False,
            **SIZES,
        )
    )


def roberta() -> nn.Module:
    from transformers import RobertaConfig, RobertaForSequenceClassification

    return RobertaForSequenceClassification(
        RobertaConfig(
            vocab_size=VOCABULARY,
            intermediate_size=24,
            max_position_embeddings=10,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            pad_token_id=0,
            num_labels=CLASSES,
            **SIZES,
        )
    )


def distilbert() -> nn.Module:
    from transformers import DistilBertConfig, DistilBertForSequenceClassification

    return DistilBertForSequenceClassification(
        DistilBertConfig(
            vocab_size=VOCABULARY,
            dim=16,
            hidden_dim=24,
            n_layers=1,
            n_heads=2,
            max_position_embeddings=8,
            dropout=0.0,
            attention_dropout=0.0,
            seq_classif_dropout=0.0,
            num_labels=CLASSES,
        )
    )


def vit() -> nn.Module:
    from transformers import ViTConfig, ViTForImageClassification

    return ViTForImageClassification(
        ViTConfig(
            image_size=4,
            patch_size=2,
            num_channels=1,
            intermediate_size=24,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            num_labels=CLASSES,
            **SIZES,
        )
    )


# ---------------------------------------------------------------- losses


def language(module: nn.Module, batch: Batch) -> Tensor:
    """Called as everybody does; the loss is from the scores, example by example."""
    out = module(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])
    return next_token_losses(out.logits[:, -batch["input_ids"].shape[1] :], batch)


def language_with_positions(module: nn.Module, batch: Batch) -> Tensor:
    tokens = batch["input_ids"]
    places = torch.arange(tokens.shape[1]).expand_as(tokens)
    mask = batch["attention_mask"]
    out = module(input_ids=tokens, attention_mask=mask, position_ids=places)
    return next_token_losses(out.logits, batch)


def classification(module: nn.Module, batch: Batch) -> Tensor:
    out = module(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])
    return class_losses(out.logits, batch)


def image_classification(module: nn.Module, batch: Batch) -> Tensor:
    return class_losses(module(pixel_values=batch["inputs"]).logits, batch)


def translation(module: nn.Module, batch: Batch) -> Tensor:
    """To the same tokens, with those before them as the decoder's input."""
    tokens, mask = batch["input_ids"], batch["attention_mask"]
    out = module(input_ids=tokens, attention_mask=mask, decoder_input_ids=tokens)
    return next_token_losses(out.logits, batch)


# ---------------------------------------------------------------- peft


def adapted(base: Callable[[], nn.Module], config: str, **options: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        import peft

        return peft.get_peft_model(base(), getattr(peft, config)(**options))

    return build


def lora(base: Callable[[], nn.Module], *targets: str, **options: Any) -> Callable[[], nn.Module]:
    settings = {"r": 2, "lora_alpha": 4, "target_modules": list(targets)}
    return adapted(base, "LoraConfig", **settings, **options)


def checkpointed() -> nn.Module:
    module = gpt2()
    module.gradient_checkpointing_enable({"use_reentrant": False})
    return module


def images() -> list[Batch]:
    return vectors(shape=(1, 4, 4))


def as_many() -> list[Batch]:
    """As many examples as tokens: rows that are positions cannot be told by their number."""
    return sequences(LENGTH)


def _case(name: str, build: Callable[[], nn.Module], **options: Any) -> Case:
    usual = {"data": sequences, "losses": language, "modes": ("hooks",), "needs": NEEDS}
    return Case(name, build, **{**usual, **options})


def _peft(name: str, build: Callable[[], nn.Module], **options: Any) -> Case:
    return _case(name, build, needs=(*NEEDS, "peft"), **options)


BOTH = ("hooks", "functorch")
MANY = {"data": as_many, "rate": 1.0}
TRAINED = {"task_type": "CAUSAL_LM"}
CASES = [
    _case("gpt2", gpt2, modes=BOTH),
    _case("gpt2, as many examples as positions", gpt2, **MANY),
    _case("gpt2 with positions for each example", gpt2, losses=language_with_positions, modes=BOTH),
    _case("gpt2 with dropout", lambda: gpt2(embd_pdrop=0.2, resid_pdrop=0.2), random=True),
    _case("gpt2 with activation checkpointing", checkpointed),
    _case("llama", llama, modes=BOTH),
    _case("bert", bert, losses=classification, modes=BOTH),
    _case("bert, as many examples as positions", bert, losses=classification, **MANY),
    _case("t5", t5, losses=translation),
    _case("t5, as many examples as positions", t5, losses=translation, **MANY),
    _case("mixtral", mixtral),
    _case("opt", opt),
    _case("roberta", roberta, losses=classification),
    _case("distilbert", distilbert, losses=classification),
    _case("vit", vit, data=images, losses=image_classification),
    _peft("lora on gpt2", lora(gpt2, "c_attn", fan_in_fan_out=True), modes=BOTH),
    _peft("lora on llama", lora(llama, "q_proj", "v_proj"), modes=BOTH),
    _peft("lora on bert", lora(bert, "query", "value"), losses=classification, modes=BOTH),
    _peft(
        "lora on bert and its head", lora(bert, "query", task_type="SEQ_CLS"), losses=classification
    ),
    _peft("lora with dropout", lora(llama, "q_proj", lora_dropout=0.3), random=True),
    _peft("lora on embeddings", lora(gpt2, "wte")),
    _peft("dora", lora(llama, "q_proj", "v_proj", use_dora=True)),
    _peft(
        "ia3",
        adapted(llama, "IA3Config", target_modules=["k_proj", "v_proj"], feedforward_modules=[]),
    ),
    _peft("prompt tuning", adapted(gpt2, "PromptTuningConfig", num_virtual_tokens=3, **TRAINED)),
    _peft("prefix tuning", adapted(gpt2, "PrefixTuningConfig", num_virtual_tokens=3, **TRAINED)),
    _peft(
        "p-tuning",
        adapted(
            gpt2,
            "PromptEncoderConfig",
            num_virtual_tokens=3,
            **TRAINED,
            encoder_hidden_size=8,
        ),
    ),
]
