"""Our models as folders of Hugging Face: transformers opens them, we open its own, and what does not fit is refused."""

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
from regard.hub.folder import find_family_map, read_config, read_weights, unique_state_dict, write_config, write_weights
from regard.hub.tables import HF_FAMILIES
from regard.models import MODELS
from regard.parts.heads import Classifier, Model, PerToken
from regard.parts.pooling import POOLINGS

B, T, V, CLASSES, SEP = 2, 7, 19, 5, 3
LENGTHS = [T, 4]
TEXT = {"vocab": V, "context": 11, "layers": 2, "hidden": 20}
SMALL: dict[str, dict[str, Any]] = {  # heads and widths of heads, images and patches: no two sizes are the same
    "transformer": {
        "vocab": V, "context": 11, "dim": 12, "encoder_layers": 2, "decoder_layers": 1, "heads": 3, "hidden": 20,
    },
    "gpt": TEXT | {"dim": 12, "heads": 3, "pad": 1},
    "llama": TEXT | {"dim": 24, "heads": 6, "kv_heads": 2, "pad": 1, "base": 500.0, "eps": 1e-3, "dropout": 0.25},
    "nano": TEXT | {"dim": 24, "heads": 6, "kv_heads": 2, "pad": 1, "dropout": 0.25},
    "bert": TEXT | {"dim": 12, "heads": 3, "pad": 0, "segments": 4, "sep": SEP},
    "vit": {"image": 12, "channels": 2, "patch": 4, "dim": 18, "layers": 1, "heads": 3, "hidden": 10},
    "clip": {
        "vocab": V, "context": 11, "dim": 12, "layers": 2, "heads": 3, "pad": 0,
        "image": 8, "channels": 1, "patch": 4, "image_dim": 16, "image_layers": 1, "image_heads": 4, "joint": 6,
    },
    "pooled": {"vocab": V, "context": 11, "dim": 12, "hidden": 20},
    "recurrent": {"vocab": V, "context": 11, "dim": 12, "layers": 2},
    "convolution": {"channels": 2, "dim": 12, "stages": 2, "layers": 1},
}  # fmt: skip
PLAIN = ["pooled", "recurrent", "convolution"]


def vocabulary(body: Any) -> Model:
    return Model(body, body.vocabulary())


def per_token(body: Any) -> Model:
    return Model(body, PerToken(body.config.dim, CLASSES))


def pooled(kind: str) -> Callable[[Any], Model]:
    return lambda body: Model(body, Classifier(body.config.dim, CLASSES, POOLINGS[kind](body.config.dim)))


def nothing(body: Any) -> Model:
    return Model(body, nn.Identity())


def stirred(model: Any) -> Any:
    """No weight stays the zero or the one that it began as."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator) * 0.2)
    return model.eval()


def made(name: str, head: Callable[[Any], Model], **other: Any) -> Model:
    torch.manual_seed(1)
    family = MODELS[name]
    return stirred(head(next(iter(family.bodies.values()))(family.config(**SMALL[name] | other))))


def write(folder: Path, model: Model, facts: Mapping[str, Any] | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    write_config(folder, model, facts)
    write_weights(folder / "model.safetensors", model)
    return folder


def read(folder: Path, head: Callable[[Any], Model], only: str = "") -> Model:
    names, config = read_config(folder)
    torch.manual_seed(2)
    model = head(next(iter(MODELS[names.model].bodies.values()))(config))
    read_weights(folder, names, model, only)
    return model.eval()


def texts(name: str) -> tuple[Tensor, Tensor]:
    """Rows that end with SEP, then padding of any kind; and which of it is real. Those of BERT are two sentences."""
    real = torch.arange(T) < torch.tensor(LENGTHS)[:, None]
    ids = torch.randint(SEP + 1, V, (B, T), generator=torch.Generator().manual_seed(3))
    ids[torch.arange(B), torch.tensor(LENGTHS) - 1] = SEP
    if name == "bert":
        ids[:, 1] = SEP
    return ids, real


def images(name: str) -> Tensor:
    side, channels = SMALL[name]["image"], SMALL[name]["channels"]
    return torch.randn(B + 1, channels, side, side, generator=torch.Generator().manual_seed(4))


@torch.inference_mode()
def ours_says(name: str, model: nn.Module) -> Tensor:
    ids, real = texts(name)
    if name == "vit":
        return model(images(name))
    if name == "clip":
        return model(images(name), ids, real[:, None, None])
    return model(ids, mask=real[:, None, None])[real]


@torch.inference_mode()
def theirs_says(name: str, model: Any) -> Tensor:
    ids, real = texts(name)
    if name == "vit":
        said = model(pixel_values=images(name))
    elif name == "clip":
        return model(pixel_values=images(name), input_ids=ids, attention_mask=real.long()).logits_per_image
    else:
        before = (ids == SEP).cumsum(1) - (ids == SEP).long()
        kinds = {"token_type_ids": before.clamp(max=1)} if name == "bert" else {}
        said = model(input_ids=ids, attention_mask=real.long(), **kinds)
    found = said.logits if "logits" in said else said.last_hidden_state
    return found if name == "vit" else found[real]


def close(mine: Tensor, said: Tensor) -> None:
    assert mine.abs().max() > 0.1
    assert_close(mine, said, rtol=1e-5, atol=1e-5)


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
    "nano": Case("nano", vocabulary, "NanoChatForCausalLM"),
    "bert": Case("bert", vocabulary, "BertForMaskedLM"),
    "bert that tags": Case("bert", per_token, "BertForTokenClassification"),
    "vit": Case("vit", pooled("first"), "ViTForImageClassification"),
    "clip": Case("clip", nothing, "CLIPModel"),
}
every = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@every
def test_transformers_opens_our_folder_and_says_the_same(case: Case, tmp_path: Path, transformers) -> None:
    ours = made(case.name, case.head)
    folder = write(tmp_path, ours)
    assert json.loads((folder / "config.json").read_text())["architectures"] == [case.architecture]
    kind = getattr(transformers, case.architecture)
    theirs, told = kind.from_pretrained(folder, output_loading_info=True)
    assert not any(told[what] for what in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    close(ours_says(case.name, ours), theirs_says(case.name, theirs.eval()))


@pytest.mark.parametrize("pooling", ["mean", "attention"])
@pytest.mark.parametrize(
    ("name", "base"),
    [("gpt", "GPT2"), ("llama", "Llama"), ("nano", "NanoChat"), ("bert", "Bert"), ("vit", "ViT")],
)
def test_under_a_head_of_ours_transformers_finds_the_body(
    name: str, base: str, pooling: str, tmp_path: Path, transformers
) -> None:
    ours = made(name, pooled(pooling))
    folder = write(tmp_path, ours)
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == [f"{base}Model"]
    theirs, told = transformers.AutoModel.from_pretrained(folder, output_loading_info=True)
    assert set(told["unexpected_keys"]) == {n for n, _ in ours.named_parameters() if n.startswith("head.")}
    assert all(name.startswith("pooler.") for name in told["missing_keys"])
    close(ours_says(name, ours.body), theirs_says(name, theirs.eval()))
    assert not (folder / "generation_config.json").exists()


def their_config(name: str, transformers: Any) -> Any:
    c = SMALL[name]
    stack = {
        "hidden_size": c["dim"], "num_hidden_layers": c["layers"], "num_attention_heads": c["heads"],
        "intermediate_size": c.get("hidden"),
    }  # fmt: skip
    text = {"vocab_size": V, "max_position_embeddings": 11, "bos_token_id": 2, "eos_token_id": SEP}
    seen = {key: c.get(ours) for key, ours in (("image_size", "image"), ("patch_size", "patch"))}
    if name == "gpt":
        sizes = {"vocab_size": V, "n_positions": 11, "n_embd": 12, "n_layer": 2, "n_head": 3, "n_inner": 20}
        return transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)
    if name == "llama":
        rope = {"rope_type": "default", "rope_theta": 500.0}
        return transformers.LlamaConfig(**stack, **text, num_key_value_heads=2, rope_parameters=rope, rms_norm_eps=1e-3)
    if name == "nano":
        return transformers.NanoChatConfig(**stack, **text, num_key_value_heads=2, final_logit_softcapping=None)
    if name == "bert":
        return transformers.BertConfig(**stack, **text, type_vocab_size=2, num_labels=CLASSES, sep_token_id=SEP)
    if name == "vit":
        return transformers.ViTConfig(**stack, **seen, num_channels=c["channels"], num_labels=CLASSES)
    vision = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64}
    return transformers.CLIPConfig(
        text_config=stack | text | {"intermediate_size": 48},
        vision_config=vision | seen | {"num_channels": c["channels"]},
        projection_dim=c["joint"],
    )


@pytest.fixture
def written_by_them(tmp_path: Path, transformers):
    def save(case: Case) -> tuple[Path, Any]:
        torch.manual_seed(1)
        theirs = stirred(getattr(transformers, case.architecture)(their_config(case.name, transformers)))
        theirs.save_pretrained(tmp_path / "theirs")
        return tmp_path / "theirs", theirs

    return save


@every
def test_we_open_a_folder_of_transformers_and_say_the_same(case: Case, written_by_them) -> None:
    folder, theirs = written_by_them(case)
    close(ours_says(case.name, read(folder, case.head)), theirs_says(case.name, theirs))


@pytest.mark.parametrize("name", ["gpt", "llama", "nano", "bert", "vit"])
def test_the_body_of_their_folder_goes_under_any_head(name: str, written_by_them, transformers) -> None:
    """Whatever head stands in the file, and whether the names say so or not."""
    case = CASES[name]
    folder, theirs = written_by_them(case)
    whole = read(folder, pooled("mean"), only="body.")
    body = theirs.base_model
    close(ours_says(name, whole.body), theirs_says(name, body))
    body.save_pretrained(folder)
    assert not any(
        n.startswith(HF_FAMILIES[find_family_map(whole.body).family].prefix) for n in load_file(weights(folder))
    )
    close(ours_says(name, read(folder, case.head, only="body.").body), theirs_says(name, body))
    if name != "gpt":  # whose output layer is in the body
        with pytest.raises(ValueError, match="lacks .* weights of this model: head"):
            read(folder, case.head)


def weights(folder: Path) -> Path:
    return folder / "model.safetensors"


HEADS = {name: case.head for name, case in CASES.items()} | dict.fromkeys(PLAIN, pooled("mean"))


@pytest.mark.parametrize("name", [*CASES, *PLAIN, "transformer"])
def test_what_is_read_is_what_was_written_and_the_second_save_is_the_first(name: str, tmp_path: Path) -> None:
    head = HEADS.get(name, vocabulary)
    ours = made(name.split()[0], head)
    first = write(tmp_path / "first", ours)
    again = read(first, head)
    assert again.body.config == ours.body.config
    assert all(torch.equal(tensor, unique_state_dict(again)[name]) for name, tensor in unique_state_dict(ours).items())
    second = write(tmp_path / "second", again)
    assert {f.name: f.read_bytes() for f in first.iterdir()} == {f.name: f.read_bytes() for f in second.iterdir()}


@settings(max_examples=4)
@given(layers=st.sampled_from([1, 11]), heads=st.integers(1, 3), width=st.sampled_from([2, 4]))
@pytest.mark.parametrize("name", SMALL)
def test_there_and_back_is_the_same(name: str, layers: int, heads: int, width: int) -> None:
    wanted = dict.fromkeys((f for f in SMALL[name] if f.endswith("layers")), layers)
    wanted |= {"dim": heads * width, "heads": heads, "kv_heads": 1}
    body = made(name, nothing, **{field: value for field, value in wanted.items() if field in SMALL[name]}).body
    for head in (nothing, per_token, pooled("attention"), pooled("first"), *[vocabulary] * hasattr(body, "vocabulary")):
        model = head(body)
        names, ours = find_family_map(body).with_head(model.head), unique_state_dict(model)
        back = names.to_ours(names.to_theirs(ours))
        assert back.keys() == ours.keys()
        assert all(torch.equal(back[one], tensor) for one, tensor in ours.items())


@pytest.mark.parametrize("change", [{"convolution": True}, {"class_token": False}])
def test_a_vit_that_they_do_not_have_keeps_our_names(change: dict[str, bool], tmp_path: Path) -> None:
    ours = made("vit", pooled("mean"), **change)
    assert isinstance(find_family_map(ours.body), IdentityMap)
    folder = write(tmp_path, ours)
    assert json.loads((folder / "config.json").read_text())["model_type"] == "regard-vit"
    assert torch.equal(ours_says("vit", read(folder, pooled("mean"))), ours_says("vit", ours))


@pytest.mark.parametrize("name", SMALL)
def test_families_that_they_have_are_written_as_such(name: str) -> None:
    assert isinstance(find_family_map(made(name, nothing).body), IdentityMap if name in PLAIN else FamilyMap)


@pytest.mark.parametrize("name", ["gpt", "llama", "nano"])
def test_a_writer_says_how_a_text_ends(name: str, tmp_path: Path) -> None:
    folder = write(tmp_path, made(name, vocabulary))
    generation = json.loads((folder / "generation_config.json").read_text())
    assert generation == {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 0, "do_sample": False}
    write(folder, made(name, vocabulary), {"eos_token_id": 9})
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == 9
    write(folder, made(name, pooled("last")))
    assert not (folder / "generation_config.json").exists()


def test_the_labels_of_a_task_are_there_for_transformers(tmp_path: Path, transformers) -> None:
    labels = ["a", "b", "c", "d", "e"]
    folder = write(tmp_path, made("bert", per_token))
    assert transformers.AutoConfig.from_pretrained(folder).id2label == {i: f"LABEL_{i}" for i in range(CLASSES)}
    facts = {"id2label": dict(enumerate(labels)), "label2id": {label: i for i, label in enumerate(labels)}}
    write(folder, made("bert", per_token), facts)
    config = transformers.AutoConfig.from_pretrained(folder)
    assert config.id2label == dict(enumerate(labels))
    assert config.label2id == facts["label2id"]


def test_no_separator_is_no_number(tmp_path: Path) -> None:
    folder = write(tmp_path, made("bert", vocabulary, sep=-1))
    assert "sep_token_id" not in json.loads((folder / "config.json").read_text())
    assert read(folder, vocabulary).body.config.sep == -1


def changed(folder: Path, key: str, value: Any) -> None:
    """config.json with another value at a key; ... takes it out."""
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
    ("nano", "final_logit_softcapping", "15", "softcap must be a float, not '15'"),
    ("nano", "hidden_act", "gelu", "hidden_act is 'gelu', but only 'relu2'"),
    ("nano", "rope_parameters.rope_type", "linear", "rope_parameters.rope_type is 'linear', but only 'default'"),
    ("bert", "layer_norm_eps", "1e-5", "eps must be a float, not '1e-5'"),
    ("bert", "hidden_act", "mish", "hidden_act is 'mish', but only"),
    ("bert", "is_decoder", True, "is_decoder is True, but only False"),
    ("vit", "qkv_bias", False, "has no place in a model of these sizes"),
    ("vit", "image_size", [12, 8], r"image must be a int, not \[12, 8\]"),
    ("vit", "patch_size", [4, 2], r"patch must be a int, not \[4, 2\]"),
    ("clip", "vision_config.intermediate_size", 10, r"shape \(64,.*\), but config.json asks for \(10,"),
    ("clip", "text_config", 7, "text_config"),
]


@pytest.mark.parametrize(("name", "key", "value", "message"), REFUSED)
def test_a_config_that_we_cannot_follow_is_refused_by_key_and_value(
    name: str, key: str, value: Any, message: str, tmp_path: Path
) -> None:
    folder = write(tmp_path, made(name, HEADS[name]))
    changed(folder, key, value)
    if key == "n_embd":
        changed(folder, "n_inner", None)
    with pytest.raises(ValueError, match=message):
        read(folder, HEADS[name])


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("transformer.h.1.attn.c_attn.bias", None, "lacks 3 weights of this model: .*1.mixer.inner.query"),
        ("transformer.h.1.attn.extra", torch.ones(2), "1 unexpected weights: transformer.h.1.attn.extra"),
        ("qa_outputs.bias", torch.ones(2), "head.qa_outputs.bias has no place"),
        ("wte.weight", torch.ones(2), "wte.weight is there twice"),
        ("transformer.h.0.attn.c_attn.weight", torch.ones(12, 35), r"value.weight has shape \(11, 12\)"),
        ("transformer.h.0.attn.c_attn.weight", torch.ones(()), r"query.weight has shape \(1,\)"),
        ("transformer.h.0.mlp.c_fc.weight", torch.ones(20, 12), r"up.weight has shape \(12, 20\)"),
    ],
)
def test_tensors_that_do_not_fit_are_refused_by_name(
    name: str, tensor: Tensor | None, message: str, tmp_path: Path
) -> None:
    folder = write(tmp_path, made("gpt", vocabulary))
    tensors = load_file(weights(folder))
    tensors.pop(name, None)
    save_file(tensors if tensor is None else tensors | {name: tensor}, weights(folder))
    with pytest.raises(ValueError, match=message):
        read(folder, vocabulary)


def test_a_weight_that_has_no_name_at_theirs_is_never_written() -> None:
    model = made("bert", vocabulary)
    names = find_family_map(model.body).with_head(model.head)
    for name in ("head.extra", "body.extra"):
        with pytest.raises(ValueError, match=f"1 unexpected weights: {name}"):
            names.to_theirs(unique_state_dict(model) | {name: torch.ones(2)})


def test_positions_in_a_batch_of_two_are_refused(tmp_path: Path) -> None:
    folder = write(tmp_path, made("vit", pooled("first")))
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
def test_what_older_folders_leave_out_or_null_is_what_transformers_takes_it_for(
    name: str, changes: dict[str, Any], tmp_path: Path, transformers
) -> None:
    whole = {"gpt": {"hidden": 48}, "llama": {"kv_heads": 6}}.get(name, {})
    folder = write(tmp_path, made(name, vocabulary, **whole))
    for key, value in changes.items():
        changed(folder, key, value)
    theirs = getattr(transformers, CASES[name].architecture).from_pretrained(folder).eval()
    close(ours_says(name, read(folder, vocabulary)), theirs_says(name, theirs))


def test_a_rope_that_is_stretched_the_old_way_is_read(tmp_path: Path) -> None:
    folder = write(tmp_path, made("llama", vocabulary))
    changed(folder, "rope_parameters", ...)
    changed(folder, "rope_theta", 500.0)
    assert read_config(folder)[1].base == 500.0
    changed(folder, "rope_scaling", {"type": "linear", "factor": 2.0})
    assert read_config(folder)[1].stretch == 2.0
    changed(folder, "rope_scaling", {"type": "yarn", "factor": 2.0})
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
def test_tensors_of_theirs_that_tell_us_nothing_are_passed_over(
    name: str, more: dict[str, tuple[int, ...]], tmp_path: Path
) -> None:
    ours = made(name, HEADS[name])
    folder = write(tmp_path, ours)
    save_file(load_file(weights(folder)) | {key: torch.ones(shape) for key, shape in more.items()}, weights(folder))
    assert torch.equal(ours_says(name, read(folder, HEADS[name])), ours_says(name, ours))


def test_the_names_of_the_first_bert_are_read(tmp_path: Path) -> None:
    ours = made("bert", vocabulary)
    folder = write(tmp_path, ours)
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    tensors = load_file(weights(folder))
    for new, before in old.items():
        tensors = {name.replace(new, before): tensor for name, tensor in tensors.items()}
    assert "bert.embeddings.LayerNorm.gamma" in tensors
    save_file(tensors, weights(folder))
    assert torch.equal(ours_says("bert", read(folder, vocabulary)), ours_says("bert", ours))


OTHERS = {"SmolLM3": {}, "Granite": {"attention_multiplier": 0.3}, "Gemma": {"head_dim": 8}, "Cohere": {}}


@pytest.mark.parametrize("other", OTHERS)
def test_another_family_is_not_read_as_the_one_whose_names_it_shares(other: str, tmp_path: Path, transformers) -> None:
    """Their weights fit LLaMA's table, and mean something else."""
    sizes = {"hidden_size": 24, "num_hidden_layers": 4, "num_attention_heads": 3, "intermediate_size": 40}
    config = getattr(transformers, f"{other}Config")(
        vocab_size=V, num_key_value_heads=3, max_position_embeddings=11, pad_token_id=0, **sizes, **OTHERS[other]
    )
    getattr(transformers, f"{other}ForCausalLM")(config).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=f"model_type '{other.lower()}' is not supported yet: regard reads marian"):
        read_config(tmp_path)
    changed(tmp_path, "model_type", "llama")
    with pytest.raises(
        ValueError, match=f"architectures is '{other}ForCausalLM', which is no class of the family llama"
    ):
        read_config(tmp_path)
    changed(tmp_path, "architectures", ["LlamaForCausalLM"])
    if other != "Gemma":  # which scales inside, and has no key for it
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
        ("nano", "final_logit_softcapping", 12.0, None),
    ],
)
def test_a_key_of_another_family_is_refused_if_it_changes_what_is_computed(
    family: str, key: str, value: Any, message: str | None, tmp_path: Path
) -> None:
    folder = write(tmp_path, made(family, HEADS[family]))
    changed(folder, key, value)
    if message is None:
        read_config(folder)
    else:
        with pytest.raises(ValueError, match=f"{message}.*regard does not support yet"):
            read_config(folder)
