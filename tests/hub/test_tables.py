"""Family tables: transformers loads our folders, we load its folders, and mismatches are refused."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.testing import assert_close

from regard.hub.family_map import FamilyMap, IdentityMap
from regard.hub.folder import find_family_map, read_config, read_weights, write_config, write_weights
from regard.hub.match_state_dict import unique_state_dict
from regard.hub.tables import HF_FAMILIES
from regard.models import MODELS
from regard.parts.heads import Body, Classifier, Model, TokenClassifier
from regard.parts.pooling import POOLINGS

B, T, V, CLASSES, SEP = 2, 7, 19, 5, 3
LENGTHS = [T, 4]
TEXT = {"vocab": V, "context": 11, "layers": 2, "hidden": 20}
SMALL: dict[str, dict[str, Any]] = {  # all sizes differ, also those of heads, images and patches
    "transformer": {
        "vocab": V, "context": 11, "dim": 12, "encoder_layers": 2, "decoder_layers": 1, "heads": 3, "hidden": 20,
    },
    "gpt": TEXT | {"dim": 12, "heads": 3, "pad": 1},
    "llama": TEXT
    | {"dim": 24, "heads": 6, "kv_heads": 2, "pad": 1, "rope_theta": 500.0, "norm_eps": 1e-3, "dropout": 0.25},
    "nanochat": TEXT | {"dim": 24, "heads": 6, "kv_heads": 2, "pad": 1, "dropout": 0.25},
    "bert": TEXT | {"dim": 12, "heads": 3, "pad": 0, "segments": 4, "sep": SEP},
    "vit": {"image_size": 12, "channels": 2, "patch_size": 4, "dim": 18, "layers": 1, "heads": 3, "hidden": 10},
    "clip": {
        "vocab": V, "context": 11, "dim": 12, "layers": 2, "heads": 3, "pad": 0,
        "image_size": 8, "channels": 1, "patch_size": 4, "image_dim": 16, "image_layers": 1, "image_heads": 4,
        "projection_dim": 6,
    },
    "pooled": {"vocab": V, "context": 11, "dim": 12, "hidden": 20},
    "recurrent": {"vocab": V, "context": 11, "dim": 12, "layers": 2},
    "resnet": {"channels": 2, "dim": 12, "stages": 2, "layers": 1},
}  # fmt: skip
OWN_FAMILIES = ["pooled", "recurrent", "resnet"]


def vocabulary(body: Any) -> Model:
    return Model(body, body.lm_head())


def per_token(body: Any) -> Model:
    return Model(body, TokenClassifier(body.config.dim, CLASSES))


def pooled(kind: str) -> Callable[[Any], Model]:
    return lambda body: Model(body, Classifier(body.config.dim, CLASSES, POOLINGS[kind](body.config.dim)))


def no_head(body: Any) -> Model:
    return Model(body, nn.Identity())


def perturb(model: Any) -> Any:
    """Adds noise, so that no weight keeps its initial zero or one."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator) * 0.2)
    return model.eval()


def make_model(name: str, head: Callable[[Any], Model], **overrides: Any) -> Model:
    torch.manual_seed(1)
    family = MODELS[name]
    return perturb(head(next(iter(family.bodies.values()))(family.config(**SMALL[name] | overrides))))


def write(folder: Path, model: Model, task_keys: Mapping[str, Any] | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    write_config(folder, model, task_keys)
    write_weights(folder / "model.safetensors", model)
    return folder


def read(folder: Path, head: Callable[[Any], Model], only: str = "") -> Model:
    names, config = read_config(folder)
    torch.manual_seed(2)
    model = head(next(iter(MODELS[names.model].bodies.values()))(config))
    read_weights(folder, names, model, only)
    return model.eval()


def texts(name: str) -> tuple[Tensor, Tensor]:
    """Token ids that end with SEP and random padding, and the mask of real tokens. BERT gets two segments."""
    real = torch.arange(T) < torch.tensor(LENGTHS)[:, None]
    ids = torch.randint(SEP + 1, V, (B, T), generator=torch.Generator().manual_seed(3))
    ids[torch.arange(B), torch.tensor(LENGTHS) - 1] = SEP
    if name == "bert":
        ids[:, 1] = SEP
    return ids, real


def images(name: str) -> Tensor:
    side, channels = SMALL[name]["image_size"], SMALL[name]["channels"]
    return torch.randn(B + 1, channels, side, side, generator=torch.Generator().manual_seed(4))


@torch.inference_mode()
def our_output(name: str, model: nn.Module) -> Tensor:
    ids, real = texts(name)
    if name == "vit":
        return model(images(name))
    if name == "clip":
        return model(images(name), ids, real[:, None, None])
    return model(ids, mask=real[:, None, None])[real]


@torch.inference_mode()
def hf_output(name: str, model: Any) -> Tensor:
    ids, real = texts(name)
    if name == "vit":
        outputs = model(pixel_values=images(name))
    elif name == "clip":
        return model(pixel_values=images(name), input_ids=ids, attention_mask=real.long()).logits_per_image
    else:
        before = (ids == SEP).cumsum(1) - (ids == SEP).long()
        kinds = {"token_type_ids": before.clamp(max=1)} if name == "bert" else {}
        outputs = model(input_ids=ids, attention_mask=real.long(), **kinds)
    outputs = outputs.logits if "logits" in outputs else outputs.last_hidden_state
    return outputs if name == "vit" else outputs[real]


def assert_outputs_close(output: Tensor, hf_output: Tensor) -> None:
    assert output.abs().max() > 0.1
    assert_close(output, hf_output, rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="module")
def transformers():
    return pytest.importorskip("transformers", reason="parity needs the dev extra")


@dataclass
class Case:
    name: str
    head: Callable[[Any], Model]
    architecture: str


CASES = {
    "gpt": Case("gpt", vocabulary, "GPT2LMHeadModel"),
    "llama": Case("llama", vocabulary, "LlamaForCausalLM"),
    "nanochat": Case("nanochat", vocabulary, "NanoChatForCausalLM"),
    "bert": Case("bert", vocabulary, "BertForMaskedLM"),
    "bert that tags": Case("bert", per_token, "BertForTokenClassification"),
    "vit": Case("vit", pooled("first"), "ViTForImageClassification"),
    "clip": Case("clip", no_head, "CLIPModel"),
}
every = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@every
def test_transformers_loads_our_folder_with_equal_outputs(case: Case, tmp_path: Path, transformers) -> None:
    ours = make_model(case.name, case.head)
    folder = write(tmp_path, ours)
    assert json.loads((folder / "config.json").read_text())["architectures"] == [case.architecture]
    kind = getattr(transformers, case.architecture)
    theirs, loading_info = kind.from_pretrained(folder, output_loading_info=True)
    assert not any(loading_info[what] for what in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert_outputs_close(our_output(case.name, ours), hf_output(case.name, theirs.eval()))


@pytest.mark.parametrize("pooling", ["mean", "attention"])
@pytest.mark.parametrize(
    ("name", "base"),
    [("gpt", "GPT2"), ("llama", "Llama"), ("nanochat", "NanoChat"), ("bert", "Bert"), ("vit", "ViT")],
)
def test_transformers_loads_the_body_under_a_head_of_ours(
    name: str, base: str, pooling: str, tmp_path: Path, transformers
) -> None:
    ours = make_model(name, pooled(pooling))
    folder = write(tmp_path, ours)
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == [f"{base}Model"]
    theirs, loading_info = transformers.AutoModel.from_pretrained(folder, output_loading_info=True)
    assert set(loading_info["unexpected_keys"]) == {n for n, _ in ours.named_parameters() if n.startswith("head.")}
    assert all(name.startswith("pooler.") for name in loading_info["missing_keys"])
    assert_outputs_close(our_output(name, ours.body), hf_output(name, theirs.eval()))
    assert not (folder / "generation_config.json").exists()


def hf_config(name: str, transformers: Any) -> Any:
    c = SMALL[name]
    stack = {
        "hidden_size": c["dim"], "num_hidden_layers": c["layers"], "num_attention_heads": c["heads"],
        "intermediate_size": c.get("hidden"),
    }  # fmt: skip
    text = {"vocab_size": V, "max_position_embeddings": 11, "bos_token_id": 2, "eos_token_id": SEP}
    image = {key: c.get(ours) for key, ours in (("image_size", "image_size"), ("patch_size", "patch_size"))}
    if name == "gpt":
        sizes = {"vocab_size": V, "n_positions": 11, "n_embd": 12, "n_layer": 2, "n_head": 3, "n_inner": 20}
        return transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)
    if name == "llama":
        rope = {"rope_type": "default", "rope_theta": 500.0}
        return transformers.LlamaConfig(**stack, **text, num_key_value_heads=2, rope_parameters=rope, rms_norm_eps=1e-3)
    if name == "nanochat":
        return transformers.NanoChatConfig(**stack, **text, num_key_value_heads=2, final_logit_softcapping=None)
    if name == "bert":
        return transformers.BertConfig(**stack, **text, type_vocab_size=2, num_labels=CLASSES, sep_token_id=SEP)
    if name == "vit":
        return transformers.ViTConfig(**stack, **image, num_channels=c["channels"], num_labels=CLASSES)
    vision = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64}
    return transformers.CLIPConfig(
        text_config=stack | text | {"intermediate_size": 48},
        vision_config=vision | image | {"num_channels": c["channels"]},
        projection_dim=c["projection_dim"],
    )


@pytest.fixture
def save_hf_model(tmp_path: Path, transformers):
    def save(case: Case) -> tuple[Path, Any]:
        torch.manual_seed(1)
        theirs = perturb(getattr(transformers, case.architecture)(hf_config(case.name, transformers)))
        theirs.save_pretrained(tmp_path / "theirs")
        return tmp_path / "theirs", theirs

    return save


@every
def test_we_load_a_transformers_folder_with_equal_outputs(case: Case, save_hf_model) -> None:
    folder, theirs = save_hf_model(case)
    assert_outputs_close(our_output(case.name, read(folder, case.head)), hf_output(case.name, theirs))


@pytest.mark.parametrize("name", ["gpt", "llama", "nanochat", "bert", "vit"])
def test_the_body_of_a_transformers_folder_loads_under_any_head(name: str, save_hf_model, transformers) -> None:
    """With any head in the file, and with or without the prefix."""
    case = CASES[name]
    folder, theirs = save_hf_model(case)
    whole = read(folder, pooled("mean"), only="body.")
    body = theirs.base_model
    assert_outputs_close(our_output(name, whole.body), hf_output(name, body))
    body.save_pretrained(folder)
    assert not any(
        n.startswith(HF_FAMILIES[find_family_map(whole.body).family].prefix) for n in load_file(weights(folder))
    )
    assert_outputs_close(our_output(name, read(folder, case.head, only="body.").body), hf_output(name, body))
    if name != "gpt":  # its LM head is tied to the body
        with pytest.raises(ValueError, match="lacks .* weights of this model: head"):
            read(folder, case.head)


def weights(folder: Path) -> Path:
    return folder / "model.safetensors"


HEADS = {name: case.head for name, case in CASES.items()} | dict.fromkeys(OWN_FAMILIES, pooled("mean"))


@pytest.mark.parametrize("name", [*CASES, *OWN_FAMILIES, "transformer"])
def test_load_and_save_round_trip_is_exact(name: str, tmp_path: Path) -> None:
    head = HEADS.get(name, vocabulary)
    ours = make_model(name.split()[0], head)
    first = write(tmp_path / "first", ours)
    loaded = read(first, head)
    assert loaded.body.config == ours.body.config
    assert all(torch.equal(tensor, unique_state_dict(loaded)[name]) for name, tensor in unique_state_dict(ours).items())
    second = write(tmp_path / "second", loaded)
    assert {f.name: f.read_bytes() for f in first.iterdir()} == {f.name: f.read_bytes() for f in second.iterdir()}


@settings(max_examples=4)
@given(layers=st.sampled_from([1, 11]), heads=st.integers(1, 3), width=st.sampled_from([2, 4]))
@pytest.mark.parametrize("name", SMALL)
def test_renaming_tensors_round_trips(name: str, layers: int, heads: int, width: int) -> None:
    overrides = dict.fromkeys((f for f in SMALL[name] if f.endswith("layers")), layers)
    overrides |= {"dim": heads * width, "heads": heads, "kv_heads": 1}
    body = make_model(
        name, no_head, **{field: value for field, value in overrides.items() if field in SMALL[name]}
    ).body
    has_lm_head = type(body).lm_head is not Body.lm_head
    for head in (no_head, per_token, pooled("attention"), pooled("first"), *[vocabulary] * has_lm_head):
        model = head(body)
        names, ours = find_family_map(body).with_head(model.head), unique_state_dict(model)
        back = names.tensors_from_hf(names.tensors_to_hf(ours))
        assert back.keys() == ours.keys()
        assert all(torch.equal(back[name], tensor) for name, tensor in ours.items())


@pytest.mark.parametrize("change", [{"conv_stem": True}, {"class_token": False}])
def test_a_vit_unknown_to_transformers_keeps_our_names(change: dict[str, bool], tmp_path: Path) -> None:
    ours = make_model("vit", pooled("mean"), **change)
    assert isinstance(find_family_map(ours.body), IdentityMap)
    folder = write(tmp_path, ours)
    assert json.loads((folder / "config.json").read_text())["model_type"] == "regard-vit"
    assert torch.equal(our_output("vit", read(folder, pooled("mean"))), our_output("vit", ours))


@pytest.mark.parametrize("name", SMALL)
def test_families_of_transformers_are_written_as_such(name: str) -> None:
    assert isinstance(
        find_family_map(make_model(name, no_head).body), IdentityMap if name in OWN_FAMILIES else FamilyMap
    )


@pytest.mark.parametrize("name", ["gpt", "llama", "nanochat"])
def test_causal_models_write_a_generation_config(name: str, tmp_path: Path) -> None:
    folder = write(tmp_path, make_model(name, vocabulary))
    generation = json.loads((folder / "generation_config.json").read_text())
    assert generation == {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 0, "do_sample": False}
    write(folder, make_model(name, vocabulary), {"eos_token_id": 9})
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == 9
    write(folder, make_model(name, pooled("last")))
    assert not (folder / "generation_config.json").exists()


def test_the_labels_of_a_task_are_written_to_config(tmp_path: Path, transformers) -> None:
    labels = ["a", "b", "c", "d", "e"]
    folder = write(tmp_path, make_model("bert", per_token))
    assert transformers.AutoConfig.from_pretrained(folder).id2label == {i: f"LABEL_{i}" for i in range(CLASSES)}
    task_keys = {"id2label": dict(enumerate(labels)), "label2id": {label: i for i, label in enumerate(labels)}}
    write(folder, make_model("bert", per_token), task_keys)
    config = transformers.AutoConfig.from_pretrained(folder)
    assert config.id2label == dict(enumerate(labels))
    assert config.label2id == task_keys["label2id"]


def test_a_missing_separator_is_not_written(tmp_path: Path) -> None:
    folder = write(tmp_path, make_model("bert", vocabulary, sep=-1))
    assert "sep_token_id" not in json.loads((folder / "config.json").read_text())
    assert read(folder, vocabulary).body.config.sep == -1


def change_config(folder: Path, key: str, value: Any) -> None:
    """Set a key of config.json; ... deletes it."""
    config = json.loads((folder / "config.json").read_text())
    *path, last = key.split(".")
    inside = config
    for part in path:
        inside = inside.setdefault(part, {})
    inside.pop(last, None)
    if value is not ...:
        inside[last] = value
    (folder / "config.json").write_text(json.dumps(config))


REFUSED = [
    ("gpt", "activation_function", "tanh", "activation_function is 'tanh', but only 'gelu_new' or"),
    ("gpt", "scale_attn_weights", False, "scale_attn_weights is False, but only True"),
    ("gpt", "n_embd", ..., "has no n_embd, which a gpt2 model needs"),
    ("gpt", "n_embd", "wide", "dim must be a int, not 'wide'"),
    ("gpt", "n_embd", {"n": 12}, "dim must be a int, not {'n': 12}"),
    ("gpt", "n_inner", 21, r"shape \(20,.*\), but config.json asks for \(21,"),
    ("gpt", "n_layer", 3, "lacks 16 weights of this model"),
    ("gpt", "n_layer", 1, "has no place in a model of these sizes"),
    ("llama", "attention_bias", True, "lacks 8 weights of this model"),
    ("llama", "tie_word_embeddings", True, "lm_head.weight .* one weight in this model, but differ in the file"),
    ("llama", "head_dim", 8, r"key.weight has shape \(8, 24\), but config.json asks for \(16, 24\)"),
    ("llama", "num_attention_heads", 0, "heads must be at least 1, not 0"),
    ("llama", "rope_parameters.rope_type", "llama3", "no rope_parameters.factor, which rope_type llama3 needs"),
    ("nanochat", "final_logit_softcapping", "15", "softcap must be a float, not '15'"),
    ("nanochat", "hidden_act", "gelu", "hidden_act is 'gelu', but only 'relu2'"),
    ("nanochat", "rope_parameters.rope_type", "linear", "rope_parameters.rope_type is 'linear', but only 'default'"),
    ("bert", "layer_norm_eps", "1e-5", "norm_eps must be a float, not '1e-5'"),
    ("bert", "hidden_act", "mish", "hidden_act is 'mish', but only"),
    ("bert", "is_decoder", True, "is_decoder is True, but only False"),
    ("vit", "qkv_bias", False, "has no place in a model of these sizes"),
    ("vit", "image_size", [12, 8], r"image_size must be a int, not \[12, 8\]"),
    ("vit", "patch_size", [4, 2], r"patch_size must be a int, not \[4, 2\]"),
    ("clip", "vision_config.intermediate_size", 10, r"shape \(64,.*\), but config.json asks for \(10,"),
    ("clip", "text_config", 7, "text_config"),
]


@pytest.mark.parametrize(("name", "key", "value", "message"), REFUSED)
def test_an_unsupported_config_is_refused_by_key_and_value(
    name: str, key: str, value: Any, message: str, tmp_path: Path
) -> None:
    folder = write(tmp_path, make_model(name, HEADS[name]))
    change_config(folder, key, value)
    if key == "n_embd":
        change_config(folder, "n_inner", None)
    with pytest.raises(ValueError, match=message):
        read(folder, HEADS[name])


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("transformer.h.1.attn.c_attn.bias", None, "lacks 3 weights of this model: .*1.mixer.inner.query"),
        ("transformer.h.1.attn.extra", torch.ones(2), "1 unexpected weights: transformer.h.1.attn.extra"),
        ("qa_outputs.bias", torch.ones(2), "head.qa_outputs.bias has no place"),
        ("wte.weight", torch.ones(2), "wte.weight occurs twice"),
        ("transformer.h.0.attn.c_attn.weight", torch.ones(12, 35), r"value.weight has shape \(11, 12\)"),
        ("transformer.h.0.attn.c_attn.weight", torch.ones(()), r"query.weight has shape \(1,\)"),
        ("transformer.h.0.mlp.c_fc.weight", torch.ones(20, 12), r"up.weight has shape \(12, 20\)"),
    ],
)
def test_tensors_that_do_not_fit_are_refused_by_name(
    name: str, tensor: Tensor | None, message: str, tmp_path: Path
) -> None:
    folder = write(tmp_path, make_model("gpt", vocabulary))
    tensors = load_file(weights(folder))
    tensors.pop(name, None)
    save_file(tensors if tensor is None else tensors | {name: tensor}, weights(folder))
    with pytest.raises(ValueError, match=message):
        read(folder, vocabulary)


def test_a_weight_without_an_hf_name_is_not_written() -> None:
    model = make_model("bert", vocabulary)
    names = find_family_map(model.body).with_head(model.head)
    for name in ("head.extra", "body.extra"):
        with pytest.raises(ValueError, match=f"1 unexpected weights: {name}"):
            names.tensors_to_hf(unique_state_dict(model) | {name: torch.ones(2)})


def test_positions_in_a_batch_of_two_are_refused(tmp_path: Path) -> None:
    folder = write(tmp_path, make_model("vit", pooled("first")))
    tensors = load_file(weights(folder))
    name = "vit.embeddings.position_embeddings"
    save_file(tensors | {name: tensors[name].repeat(2, 1, 1)}, weights(folder))
    with pytest.raises(ValueError, match=r"body.positions.weight has shape \(2, 10, 18\)"):
        read(folder, pooled("first"))


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("gpt", {"n_inner": None, "pad_token_id": None, "attn_pdrop": 0.3, "embd_pdrop": 0.3}),
        ("llama", {"num_key_value_heads": None, "head_dim": None, "rope_parameters": ..., "rope_theta": 500.0}),
        ("llama", {"num_key_value_heads": ..., "head_dim": ..., "rope_scaling": None, "dropout": ...}),
        ("bert", {"position_embedding_type": ..., "attention_probs_dropout_prob": 0.4, "unheard_of": [1]}),
    ],
)
def test_absent_and_null_keys_get_the_defaults_of_transformers(
    name: str, changes: dict[str, Any], tmp_path: Path, transformers
) -> None:
    whole = {"gpt": {"hidden": 48}, "llama": {"kv_heads": 6}}.get(name, {})
    folder = write(tmp_path, make_model(name, vocabulary, **whole))
    for key, value in changes.items():
        change_config(folder, key, value)
    theirs = getattr(transformers, CASES[name].architecture).from_pretrained(folder).eval()
    assert_outputs_close(our_output(name, read(folder, vocabulary)), hf_output(name, theirs))


def test_rope_scaling_of_older_folders_is_read(tmp_path: Path) -> None:
    folder = write(tmp_path, make_model("llama", vocabulary))
    change_config(folder, "rope_parameters", ...)
    change_config(folder, "rope_theta", 500.0)
    assert read_config(folder)[1].rope_theta == 500.0
    change_config(folder, "rope_scaling", {"type": "linear", "factor": 2.0})
    assert read_config(folder)[1].rope_factor == 2.0
    change_config(folder, "rope_scaling", {"type": "yarn", "factor": 2.0})
    with pytest.raises(ValueError, match="rope_type is 'yarn', but only 'default' or 'linear' or 'llama3'"):
        read_config(folder)


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("gpt", {"transformer.h.0.attn.bias": (1, 1, 11, 11), "transformer.h.1.attn.masked_bias": ()}),
        ("llama", {"model.layers.1.self_attn.rotary_emb.inv_freq": (2,)}),
        ("bert", {"bert.embeddings.position_ids": (1, 11), "bert.pooler.dense.weight": (12, 12)}),
        ("bert", {"cls.seq_relationship.weight": (2, 12), "cls.seq_relationship.bias": (2,)}),
        ("vit", {"vit.pooler.dense.weight": (18, 18), "vit.pooler.dense.bias": (18,)}),
        ("clip", {"text_model.embeddings.position_ids": (1, 11), "vision_model.embeddings.position_ids": (1, 5)}),
    ],
)
def test_tensors_that_follow_from_config_are_ignored(
    name: str, more: dict[str, tuple[int, ...]], tmp_path: Path
) -> None:
    ours = make_model(name, HEADS[name])
    folder = write(tmp_path, ours)
    save_file(load_file(weights(folder)) | {key: torch.ones(shape) for key, shape in more.items()}, weights(folder))
    assert torch.equal(our_output(name, read(folder, HEADS[name])), our_output(name, ours))


def test_the_layer_norm_names_of_the_first_bert_are_read(tmp_path: Path) -> None:
    ours = make_model("bert", vocabulary)
    folder = write(tmp_path, ours)
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    tensors = load_file(weights(folder))
    for new, before in old.items():
        tensors = {name.replace(new, before): tensor for name, tensor in tensors.items()}
    assert "bert.embeddings.LayerNorm.gamma" in tensors
    save_file(tensors, weights(folder))
    assert torch.equal(our_output("bert", read(folder, vocabulary)), our_output("bert", ours))


OTHER_FAMILIES = {"SmolLM3": {}, "Granite": {"attention_multiplier": 0.3}, "Gemma": {"head_dim": 8}, "Cohere": {}}


@pytest.mark.parametrize("family", OTHER_FAMILIES)
def test_a_family_with_the_tensor_names_of_another_is_refused(family: str, tmp_path: Path, transformers) -> None:
    """Their tensors fit LLaMA's table, but the computation differs."""
    sizes = {"hidden_size": 24, "num_hidden_layers": 4, "num_attention_heads": 3, "intermediate_size": 40}
    config = getattr(transformers, f"{family}Config")(
        vocab_size=V,
        num_key_value_heads=3,
        max_position_embeddings=11,
        pad_token_id=0,
        **sizes,
        **OTHER_FAMILIES[family],
    )
    getattr(transformers, f"{family}ForCausalLM")(config).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=f"model_type '{family.lower()}' is not supported yet: regard reads marian"):
        read_config(tmp_path)
    change_config(tmp_path, "model_type", "llama")
    with pytest.raises(
        ValueError, match=f"architectures is '{family}ForCausalLM', which is no class of the family llama"
    ):
        read_config(tmp_path)
    change_config(tmp_path, "architectures", ["LlamaForCausalLM"])
    if family != "Gemma":  # it scales embeddings without a config key
        with pytest.raises(ValueError, match="which a llama does not have and regard does not support yet"):
            read_config(tmp_path)


@pytest.mark.parametrize(
    ("family", "key", "value", "message"),
    [
        ("llama", "no_rope_layers", [1, 1, 0], "no_rope_layers is"),
        ("llama", "logits_scaling", 8.0, "logits_scaling is 8.0"),
        ("llama", "layer_types", ["full_attention", "sliding_attention"], "layer_types is"),
        ("llama", "attn_logit_softcapping", 50.0, "attn_logit_softcapping is 50.0"),
        ("llama", "use_bidirectional_attention", True, "use_bidirectional_attention is True"),
        ("gpt", "alibi", True, "alibi is True"),
        ("bert", "relative_attention", True, "relative_attention is True"),
        ("clip", "text_config.logits_scaling", 2.0, "text_config.logits_scaling is 2.0"),
        ("llama", "no_rope_layers", [1, 1], None),
        ("llama", "logits_scaling", 1.0, None),
        ("llama", "layer_types", ["full_attention", "full_attention"], None),
        ("llama", "attn_logit_softcapping", None, None),
        ("nanochat", "final_logit_softcapping", 12.0, None),
    ],
)
def test_a_key_of_another_family_is_refused_unless_neutral(
    family: str, key: str, value: Any, message: str | None, tmp_path: Path
) -> None:
    folder = write(tmp_path, make_model(family, HEADS[family]))
    change_config(folder, key, value)
    if message is None:
        read_config(folder)
    else:
        with pytest.raises(ValueError, match=f"{message}.*regard does not support yet"):
            read_config(folder)
