"""Claim: PrivateTrainer's training is one run of the accounted mechanism, or it is refused."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")
pytest.importorskip("accelerate")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
transformers = pytest.importorskip("transformers")

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import with_trainer as example  # noqa: E402
from accelerate.state import AcceleratorState, GradientState  # noqa: E402
from cases.private import parameters  # noqa: E402
from cases.samples import first  # noqa: E402
from torch.utils.data import Subset  # noqa: E402
from transformers import (  # noqa: E402
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    TrainingArguments,
)

from mmcc import MmccError, strategies  # noqa: E402
from mmcc.sampling import Poisson  # noqa: E402
from mmcc.training import (  # noqa: E402
    CheckpointError,
    PrivateTrainer,
    RunError,
    make_private,
    per_example_loss,
)

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook")

WORDS, LONGEST, EXAMPLES, BATCH = 20, 7, 24, 8
PRIVACY = {
    "strategy": "banded-toeplitz:2",
    "sampling": "cyclic-poisson:2",
    "max_grad_norm": 1.0,
    "sigma": 1.0,
    "delta": 1e-5,
    "method": "unamplified",  # in no time
    "seed": 5,
    "progress": False,
}


@pytest.fixture(autouse=True)
def fresh_state():
    """What accelerate keeps for the whole process, and arguments in the environment."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


def language_model(dropout: float = 0.0):
    torch.manual_seed(2)
    rates = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), dropout)
    sizes = {"n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 8, "vocab_size": WORDS}
    return GPT2LMHeadModel(GPT2Config(**sizes, **rates, bos_token_id=0, eos_token_id=0))


def sentences(count: int = EXAMPLES):
    """Of different lengths, so that batches are padded."""
    generator = torch.Generator().manual_seed(3)
    lengths = torch.randint(2, LONGEST + 1, (count,), generator=generator).tolist()
    return [torch.randint(1, WORDS, (n,), generator=generator).tolist() for n in lengths]


def padded(examples):
    longest = max(map(len, examples))
    rows = [[*one, *[0] * (longest - len(one))] for one in examples]
    masks = [[1] * len(one) + [0] * (longest - len(one)) for one in examples]
    ids, mask = torch.tensor(rows), torch.tensor(masks)
    labels = ids.masked_fill(mask == 0, -100)
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def arguments(folder, **changed):
    usual = {
        "per_device_train_batch_size": BATCH,
        "num_train_epochs": 2,
        "learning_rate": 0.5,
        "optim": "sgd",
        "lr_scheduler_type": "linear",
        "max_grad_norm": 0,
        "save_strategy": "no",
        "logging_steps": 1,
        "report_to": "none",
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
    }
    return TrainingArguments(str(folder), **{**usual, **changed})


def trainer(folder, model=None, *, privacy=None, arguments_=None, **options):
    given = {"train_dataset": sentences(), "data_collator": padded, **options}
    return PrivateTrainer(
        language_model() if model is None else model,
        arguments(folder, **(arguments_ or {})),
        privacy={**PRIVACY, **(privacy or {})},
        **given,
    )


def by_hand(steps: int = 6):
    """The same run in a loop of one's own."""
    model = language_model()
    inner = torch.optim.SGD(model.parameters(), lr=0.5)
    module, optimizer, loader = make_private(
        model,
        inner,
        torch.utils.data.DataLoader(sentences(), batch_size=BATCH, collate_fn=padded),
        epochs=2,
        **PRIVACY,
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(inner, lambda step: 1 - step / steps)
    while not optimizer.finished:
        for batch in loader:
            labels = batch.pop("labels")
            if len(labels):
                scores = module(**batch).logits
                per_example_loss(scores[:, :-1], labels[:, 1:]).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
    return model


def plain_optimizer(model):
    """With parameters in the order of the model, as the loop by hand has them."""
    return {"optimizers": (torch.optim.SGD(model.parameters(), lr=0.5), None)}


@pytest.mark.parametrize("physical", [None, 3])
def test_it_is_the_run_of_a_loop_by_hand(tmp_path, physical):
    model = language_model()
    made = trainer(
        tmp_path, model, privacy={"physical_batch_size": physical}, **plain_optimizer(model)
    )
    assert made.get_train_dataloader().dataset == sentences()
    made.train()
    assert made.optimizer.finished
    assert made.state.global_step == 6
    assert made.guarantee == made.optimizer.guarantee
    close = 0.0 if physical is None else 2e-6
    for found, truth in zip(parameters(made.model), parameters(by_hand()), strict=True):
        torch.testing.assert_close(found, truth, rtol=close, atol=close)


def test_steps_of_an_object_and_of_max_steps(tmp_path):
    made = trainer(tmp_path, privacy={"strategy": strategies.identity(6)})
    assert made.optimizer.mechanism.steps == 6
    made = trainer(tmp_path, arguments_={"max_steps": 5}, privacy={"sampling": "poisson"})
    assert made.optimizer.mechanism.steps == 5
    made.train()
    assert (made.state.global_step, made.optimizer.finished) == (5, True)


def test_empty_batches_are_steps_and_no_passes(tmp_path):
    model, sizes = language_model(), []
    model.register_forward_pre_hook(
        lambda _m, _a, given: sizes.append(len(given["input_ids"])), with_kwargs=True
    )
    made = trainer(
        tmp_path,
        model,
        arguments_={"per_device_train_batch_size": 1, "max_steps": 40},
        privacy={"strategy": "identity", "sampling": "poisson"},
    )
    made.train()
    assert made.optimizer.finished
    assert 0 not in sizes


def test_a_classifier_has_its_own_loss(tmp_path):
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=WORDS,
            hidden_size=8,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=8,
            max_position_embeddings=8,
        )
    )
    data = [{"input_ids": one, "label": len(one) % 2} for one in sentences()]

    def collated(examples):
        batch = padded([one["input_ids"] for one in examples])
        batch["labels"] = torch.tensor([one["label"] for one in examples])
        return batch

    made = trainer(tmp_path, model, train_dataset=data, data_collator=collated)
    assert made.compute_loss_func is None
    made.train()
    assert made.optimizer.finished


def test_the_count_of_labels_of_a_batch_reaches_nobody(tmp_path):
    """With it one example's length would change the gradients of all."""
    counts = []

    def loss(outputs, labels, num_items_in_batch=None):
        counts.append(num_items_in_batch)
        return per_example_loss(outputs["logits"][:, :-1], labels[:, 1:]).mean()

    model = language_model()
    made = trainer(
        tmp_path,
        model,
        compute_loss_func=loss,
        eval_dataset=sentences(5),
        **plain_optimizer(model),
    )
    made.train()
    made.evaluate()
    assert set(counts) == {None}
    for found, truth in zip(parameters(made.model), parameters(by_hand()), strict=True):
        assert torch.equal(found, truth)


def test_a_loss_of_the_model_in_which_examples_meet_is_refused(tmp_path):
    made = trainer(tmp_path)
    made.compute_loss_func = None  # and Trainer leaves the labels to the model
    with pytest.raises(RunError, match="examples interact in the loss"):
        made.train()


# ---------------------------------------------------------------- checkpoints


@pytest.mark.parametrize("at", first([3, 2, 4], 2))
def test_a_run_is_taken_up_bit_by_bit(tmp_path, at):
    """At the end of an epoch (3) and in the middle of one; dropout and momentum included."""
    saving = {"save_strategy": "steps", "save_steps": 1, "optim": "adamw_torch"}
    whole = trainer(tmp_path / "a", language_model(0.2), arguments_=saving)
    whole.train()
    again = trainer(tmp_path / "a", language_model(0.2), arguments_=saving, privacy={"seed": 77})
    again.train(resume_from_checkpoint=str(tmp_path / "a" / f"checkpoint-{at}"))
    assert again.optimizer.finished
    assert again.state.global_step == 6
    for found, truth in zip(parameters(again.model), parameters(whole.model), strict=True):
        assert torch.equal(found, truth)
    assert again.lr_scheduler.get_last_lr() == whole.lr_scheduler.get_last_lr()


def test_the_model_of_a_checkpoint_is_an_ordinary_one(tmp_path):
    made = trainer(tmp_path, arguments_={"save_strategy": "epoch"})
    made.train()
    found = GPT2LMHeadModel.from_pretrained(tmp_path / "checkpoint-6")
    assert all(map(torch.equal, parameters(found), parameters(made.model)))
    assert (tmp_path / "checkpoint-6" / "run.mmcc").stat().st_mode & 0o077 == 0


def test_a_checkpoint_without_its_run_is_refused(tmp_path):
    saving = {"save_strategy": "steps", "save_steps": 2, "save_only_model": True}
    trainer(tmp_path, arguments_=saving).train()
    with pytest.raises(CheckpointError, match="cannot read"):
        trainer(tmp_path).train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))


def test_a_second_training_is_another_run(tmp_path):
    made = trainer(tmp_path)
    made.train()
    with pytest.raises(RunError, match="has already made 6 steps of its run"):
        made.train()


# ---------------------------------------------------------------- what is said of the data


def test_nothing_is_said_of_the_training_data(tmp_path):
    made = trainer(tmp_path, arguments_={"save_strategy": "epoch"}, eval_dataset=sentences(5))
    found = made.train()
    made.evaluate()
    said = {name for logs in made.state.log_history for name in logs}
    assert not said & {"loss", "train_loss", "grad_norm", "total_flos"}
    assert {"epsilon", "learning_rate", "eval_loss"} <= said
    assert math.isnan(found.training_loss)
    assert "train_loss" not in found.metrics
    written = json.loads((tmp_path / "checkpoint-6" / "trainer_state.json").read_text())
    assert written["total_flos"] == 0
    assert not any("loss" in logs for logs in written["log_history"])


def test_unless_it_is_asked_for(tmp_path):
    data = sentences()
    made = trainer(tmp_path, train_dataset=data, eval_dataset=data, unprotected_logs=True)
    found = made.train()
    assert all("loss" in logs for logs in made.state.log_history[:6])
    assert found.training_loss > 0
    assert made.evaluate()["eval_loss"] > 0


@pytest.mark.parametrize("kind", [lambda data: data, lambda data: {"known": data}])
def test_evaluations_of_the_training_data_are_refused(tmp_path, kind):
    data = sentences()
    with pytest.raises(RunError, match="evaluation on the training data is a release"):
        trainer(tmp_path, train_dataset=data, eval_dataset=kind(data))
    made = trainer(tmp_path, train_dataset=data, eval_dataset=sentences(4))
    made.evaluate()
    for some in (data, Subset(data, [1, 2])):
        with pytest.raises(RunError, match="evaluation on the training data"):
            made.evaluate(some)
        with pytest.raises(RunError, match="evaluation on the training data"):
            made.predict(some)


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"gradient_accumulation_steps": 2}, "physical_batch_size in `privacy`"),
        ({"max_grad_norm": 1.0}, "Set it to 0 there; the clip norm of each example"),
        ({"label_smoothing_factor": 0.1}, "label_smoothing_factor"),
        ({"neftune_noise_alpha": 5.0}, "neftune_noise_alpha"),
        ({"dataloader_drop_last": True}, "dataloader_drop_last"),
        ({"auto_find_batch_size": True}, "auto_find_batch_size"),
        ({"optim": "lomo"}, "steps during the backward pass"),
        ({"optim": "galore_adamw_layerwise"}, "steps during the backward pass"),
        ({"include_num_input_tokens_seen": True}, "how large the batches were"),
        ({"torch_compile": True, "torch_compile_backend": "eager"}, "Compile the model before"),
        ({"push_to_hub": True, "hub_strategy": "checkpoint"}, "hold the keys of the noise"),
        ({"push_to_hub": True, "hub_strategy": "all_checkpoints"}, "hold the keys"),
    ],
)
def test_unsafe_arguments_are_refused(tmp_path, changed, match):
    with pytest.raises(MmccError, match=match) as caught:
        trainer(tmp_path, arguments_=changed)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [
        ("fp16", True, "fp16 scales the loss"),
        ("_n_gpu", 2, "DataParallel"),
        ("parallelism_config", object(), "a part of the model"),
    ],
)
def test_what_this_machine_cannot_start_is_refused(tmp_path, name, value, match):
    args = arguments(tmp_path)
    assert args.n_gpu <= 1
    setattr(args, name, value)
    with pytest.raises(MmccError, match=match):
        PrivateTrainer(language_model(), args, privacy=PRIVACY, train_dataset=sentences())


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"privacy": {"epochs": 3}}, "which TrainingArguments determine"),
        ({"privacy": {"batch_size": 3, "distributed": True}}, "`privacy` has distributed, batch_s"),
        ({"privacy": {"strategy": strategies.identity(5)}}, "has 5 steps, but 2 epochs of 3"),
        ({"privacy": {"sampling": Poisson(0.1)}}, "the data loader has batch_size=8"),
        ({"privacy": {"delta": None}}, "delta is missing"),
        ({"model_init": language_model}, "pass the model itself, not model_init"),
        (
            {"train_dataset": (one for one in sentences())},
            "not a map-style data set|does not implement __len__",
        ),
    ],
)
def test_other_misunderstandings_are_refused(tmp_path, options, match):
    with pytest.raises(ValueError, match=match):
        trainer(tmp_path, **options)


def test_samplers_of_its_own_are_refused(tmp_path):
    by_length = (
        {"train_sampling_strategy": "group_by_length"}
        if "train_sampling_strategy" in TrainingArguments.__dataclass_fields__
        else {"group_by_length": True}
    )
    data = [{"input_ids": one} for one in sentences()]
    with pytest.raises(MmccError, match="LengthGroupedSampler is a special sampler"):
        trainer(tmp_path, train_dataset=data, arguments_=by_length)


def test_a_trainer_without_training_data_evaluates_and_no_more(tmp_path):
    made = trainer(tmp_path, train_dataset=None, eval_dataset=sentences(4))
    assert made.evaluate()["eval_loss"] > 0
    with pytest.raises(RunError, match="without a train_dataset"):
        made.train()


def test_steps_in_the_backward_pass_are_noticed(tmp_path):
    """As layerwise optimizers take them, under whatever name."""

    def early(parameter):
        parameter.data -= 0.1 * parameter.grad

    model = language_model()
    made = trainer(tmp_path, model)
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(early)
    with pytest.raises(RunError, match=r"carries no noise|clipping would bound nothing"):
        made.train()


def test_the_example_learns_within_its_target(capsys):
    result = example.main()
    assert result.guarantee.epsilon <= example.EPSILON
    assert result.accuracy_before < 0.7
    assert result.accuracy > 0.85
    assert "-DP, certified by" in capsys.readouterr().out


@pytest.mark.slow
def test_two_processes_make_one_run(tmp_path):
    words = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2"]
    file = Path(example.__file__)
    found = subprocess.run(
        [*words, "--master_port", "0", str(file)],
        env={**os.environ, "ACCELERATE_USE_CPU": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert found.returncode == 0, found.stderr
    # A batch is of both: twice as large, and half as many steps.
    assert "25 steps (5 epochs of 5), 400 of 2000 examples expected" in found.stderr
    (learned,) = re.findall(r"([0-9.]+) after", found.stdout)
    assert float(learned) > 0.75
