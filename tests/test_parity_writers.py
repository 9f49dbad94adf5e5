"""GPT-2, LLaMA, Mistral, Qwen2, nanochat, Marian and Pegasus, written and read by transformers and by us: outputs are
equal to 1e-5 and tokens equal, for random sizes and options."""

import json
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from regard.data.tokenizer_train import GPT_LAYOUT, TokenizerOptions, train_tokenizer
from regard.hub.family_map import FamilyMap
from regard.hub.folder import read_config, read_weights, write_config, write_weights
from regard.hub.tables import HF_FAMILIES
from regard.models import MODELS
from regard.parts.heads import Model

transformers = pytest.importorskip("transformers", reason="parity needs the dev extra")

SEEDS = range(12)  # configurations of each family; benchmarks/parity.py tries more
LONG = 1  # seeds below this generate 200 tokens, the others 20
CONTEXT = 211
B, T, S = 2, 9, 7
CLOSE = 1e-5
THEIRS: dict[str, Callable[[random.Random], Any]] = {}


def register_family(make: Callable[[random.Random], Any]) -> Callable[[random.Random], Any]:
    THEIRS[make.__name__] = make
    return make


def dropouts(draw: random.Random, *keys: str) -> dict[str, float]:
    return {key: draw.choice([0.0, 0.1, 0.35]) for key in keys}


ACTIVATIONS = ["gelu", "gelu_new", "relu", "silu", "swish", "gelu_pytorch_tanh", "gelu_fast"]


@register_family
def gpt2(draw: random.Random) -> Any:
    heads = draw.choice([1, 3, 5])
    return transformers.GPT2Config(
        vocab_size=draw.randint(23, 41),
        n_positions=CONTEXT + draw.randint(0, 5),
        n_embd=heads * draw.choice([3, 4, 7]),
        n_layer=draw.randint(1, 3),
        n_head=heads,
        n_inner=draw.choice([None, 13, 30]),
        activation_function=draw.choice(ACTIVATIONS),
        layer_norm_epsilon=draw.choice([1e-5, 1e-6, 1e-2]),
        tie_word_embeddings=draw.random() < 0.5,
        reorder_and_upcast_attn=draw.random() < 0.3,
        bos_token_id=2,
        eos_token_id=draw.choice([0, 5, [3, 5]]),
        pad_token_id=draw.choice([None, 1, 7]),
        **dropouts(draw, "resid_pdrop", "embd_pdrop", "attn_pdrop"),
    )


def stack(draw: random.Random) -> dict[str, Any]:
    heads, kv_heads = draw.choice([(1, 1), (3, 1), (4, 2), (6, 3), (5, 5)])
    return {
        "vocab_size": draw.randint(23, 41),
        "hidden_size": heads * draw.choice([2, 4, 6]),
        "intermediate_size": draw.choice([11, 16, 29]),
        "num_hidden_layers": draw.randint(1, 3),
        "num_attention_heads": heads,
        "num_key_value_heads": draw.choice([kv_heads, kv_heads, heads]),
        "max_position_embeddings": CONTEXT + draw.randint(0, 5),
        "rms_norm_eps": draw.choice([1e-5, 1e-6, 1e-2]),
        "tie_word_embeddings": draw.random() < 0.5,
        "bos_token_id": draw.choice([None, 2]),
        "eos_token_id": draw.choice([None, 0, 5, [3, 5]]),
        "pad_token_id": draw.choice([None, 1, 7]),
        **dropouts(draw, "attention_dropout"),
    }


def rope(draw: random.Random) -> dict[str, Any]:
    theta = {"rope_theta": draw.choice([100.0, 10_000.0, 500_000])}
    scaling = {"factor": draw.choice([1.0, 2.0, 8.0, 3.3])}
    llama3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": draw.randint(8, 200)}
    kinds = [
        {"rope_type": "default"},
        {"rope_type": "linear", **scaling},
        {"rope_type": "llama3", **scaling, **llama3},
    ]
    return theta | draw.choice(kinds)


@register_family
def llama(draw: random.Random) -> Any:
    return transformers.LlamaConfig(
        **stack(draw),
        rope_parameters=rope(draw),
        head_dim=draw.choice([None, None, 2, 8]),
        hidden_act=draw.choice(["silu", "silu", *ACTIVATIONS]),
        attention_bias=draw.random() < 0.5,
        mlp_bias=draw.random() < 0.5,
    )


@register_family
def mistral(draw: random.Random) -> Any:
    sizes = stack(draw) | draw.choice(
        [
            {"sliding_window": None},
            {"sliding_window": 4096},
            {"sliding_window": CONTEXT, "max_position_embeddings": 999},
        ]
    )
    return transformers.MistralConfig(**sizes, rope_parameters=rope(draw), head_dim=draw.choice([None, 2, 8]))


@register_family
def qwen2(draw: random.Random) -> Any:
    sliding = {"use_sliding_window": True, "sliding_window": CONTEXT, "max_position_embeddings": 999}
    sizes = stack(draw) | draw.choice([{}, sliding | {"max_window_layers": draw.randint(0, 2)}])
    return transformers.Qwen2Config(**sizes, rope_parameters=rope(draw))


@register_family
def nanochat(draw: random.Random) -> Any:
    theta = {"rope_type": "default", "rope_theta": draw.choice([100.0, 10_000.0])}
    return transformers.NanoChatConfig(
        **stack(draw), rope_parameters=theta, final_logit_softcapping=draw.choice([None, 15.0, 1.5])
    )


def seq2seq_sizes(draw: random.Random, pad: int, end: int, start: int) -> dict[str, Any]:
    heads, hidden = draw.choice([1, 2, 3, 5]), draw.choice([11, 16, 29])
    return {
        "vocab_size": draw.randint(23, 41),
        "d_model": heads * draw.choice([2, 4, 6]),
        "encoder_layers": draw.randint(1, 3),
        "decoder_layers": draw.randint(1, 3),
        "encoder_attention_heads": heads,
        "decoder_attention_heads": heads,
        "encoder_ffn_dim": hidden,
        "decoder_ffn_dim": hidden,
        "max_position_embeddings": CONTEXT + draw.randint(0, 5),
        "activation_function": draw.choice(ACTIVATIONS),
        "scale_embedding": draw.random() < 0.5,
        "pad_token_id": pad,
        "eos_token_id": end,
        "decoder_start_token_id": start,
        "forced_eos_token_id": draw.choice([None, end]),
        **dropouts(draw, "dropout", "attention_dropout", "activation_dropout", "encoder_layerdrop"),
    }


@register_family
def marian(draw: random.Random) -> Any:
    sizes = seq2seq_sizes(draw, *draw.choice([(22, 0, 22), (3, 1, 3), (5, 2, 4)]))
    return transformers.MarianConfig(**sizes, decoder_vocab_size=draw.choice([None, sizes["vocab_size"]]))


@register_family
def pegasus(draw: random.Random) -> Any:
    return transformers.PegasusConfig(**seq2seq_sizes(draw, *draw.choice([(0, 1, 0), (0, 1, 0), (7, 3, 2)])))


SEQ2SEQ = ("marian", "pegasus")
each = pytest.mark.parametrize("name", THEIRS)


def perturb(model: Any, seed: int) -> Any:
    """Add noise to every weight, norms and biases too; computed positions stay."""
    generator = torch.Generator().manual_seed(seed)
    weights = [weight for key, weight in model.named_parameters() if "embed_positions" not in key]
    weights += [bias for key, bias in model.named_buffers() if key == "final_logits_bias"]
    with torch.no_grad():
        for weight in weights:
            weight.add_(torch.randn(weight.shape, generator=generator) * 0.2)
    return model.eval()


def save_hf_model(name: str, seed: int, folder: Path) -> Any:
    draw = random.Random(f"{name} {seed}")
    torch.manual_seed(seed)
    config = THEIRS[name](draw)
    kind = transformers.AutoModelForSeq2SeqLM if name in SEQ2SEQ else transformers.AutoModelForCausalLM
    model = perturb(kind.from_config(config), seed)
    model.save_pretrained(folder)
    if "rope_parameters" in config and seed % 3 == 0:
        use_old_rope_keys(folder)
    return model


def use_old_rope_keys(folder: Path) -> None:
    """Rewrite config.json with the rope keys of transformers 4."""
    config = json.loads((folder / "config.json").read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    if rope["rope_type"] == "linear":
        rope["type"] = rope.pop("rope_type")
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def load_folder(folder: Path, change: Callable[[FamilyMap], FamilyMap] = lambda names: names) -> tuple[Model, Any]:
    names, config = read_config(folder)
    torch.manual_seed(77)
    body: Any = next(iter(MODELS[names.model].bodies.values()))(config)
    model = Model(body, body.lm_head())
    source = read_weights(folder, change(names), model)
    return model.eval(), source


def save(folder: Path, model: Model, source: Any = None) -> Path:
    folder.mkdir()
    write_config(folder, model, source=source)
    write_weights(folder / "model.safetensors", model, source)
    return folder


def files(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def load_in_transformers(folder: Path) -> Any:
    config = json.loads((folder / "config.json").read_text())
    kind = transformers.AutoModelForSeq2SeqLM if config.get("is_encoder_decoder") else transformers.AutoModelForCausalLM
    model, loading_info = kind.from_pretrained(folder, output_loading_info=True)
    assert not any(loading_info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert type(model).__name__ == config["architectures"][0]
    return model.eval()


def make_inputs(model: Model, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Target ids, source ids, and the mask of real source tokens."""
    generator = torch.Generator().manual_seed(1000 + seed)
    ids, source = (torch.randint(model.body.config.vocab, (B, n), generator=generator) for n in (T, S))
    return ids, source, torch.arange(S) < torch.tensor([[S], [S - 3]])


@torch.inference_mode()
def assert_outputs_equal(ours: Model, theirs: Any, seed: int) -> None:
    ids, source, real = make_inputs(ours, seed)
    if theirs.config.is_encoder_decoder:
        x = ours.body(source, ids, real[:, None, None])
        inputs = {"input_ids": source, "attention_mask": real.long(), "decoder_input_ids": ids}
        outputs = theirs(**inputs, output_hidden_states=True)
        hidden = outputs.decoder_hidden_states[-1]
        read = ours.body.encode(source, real[:, None, None])
        assert_equal(read[real], outputs.encoder_last_hidden_state[real])
    else:
        x = ours.body(ids)
        outputs = theirs(input_ids=ids, output_hidden_states=True)
        hidden = outputs.hidden_states[-1]
    assert_equal(x, hidden)
    assert_equal(ours.head(x), outputs.logits)


def assert_equal(ours: Tensor, theirs: Tensor) -> None:
    assert ours.shape == theirs.shape
    assert theirs.std() > 0.05, "outputs are near zero"
    assert float((ours - theirs).abs().max()) < CLOSE


@torch.inference_mode()
def our_tokens(ours: Model, config: dict[str, Any], seed: int, count: int) -> Tensor:
    """Greedy decoding with a KV cache."""
    ids, source, real = make_inputs(ours, seed)
    if hasattr(ours.body, "decoder_caches"):
        caches = ours.body.decoder_caches(source, real[:, None, None])
        start = torch.full((B, 1), config["decoder_start_token_id"])
        return greedy_decode(partial(ours.body.decode, cache=caches), ours, start, count)
    return greedy_decode(partial(ours.body, cache=ours.body.caches()), ours, ids[:, :5], count)


def greedy_decode(step: Callable[[Tensor], Tensor], ours: Model, ids: Tensor, count: int) -> Tensor:
    new = ids
    for _ in range(count):
        new = ours.head(step(new)[:, -1:]).argmax(-1)
        ids = torch.cat((ids, new), 1)
    return ids


@torch.inference_mode()
def hf_tokens_of(theirs: Any, ours: Model, seed: int, count: int) -> Tensor:
    ids, source, real = make_inputs(ours, seed)
    settings = {"do_sample": False, "num_beams": 1, "max_new_tokens": count, "min_new_tokens": count}
    no_special = dict.fromkeys(("eos_token_id", "forced_eos_token_id", "forced_bos_token_id", "bad_words_ids"))
    for key, value in (settings | no_special | {"pad_token_id": 0}).items():
        setattr(theirs.generation_config, key, value)
    if theirs.config.is_encoder_decoder:
        return theirs.generate(source, attention_mask=real.long())
    return theirs.generate(ids[:, :5], attention_mask=torch.ones(B, 5).long())


@torch.inference_mode()
def assert_tokens_equal(ours: Model, config: dict[str, Any], theirs: Any, seed: int, count: int) -> None:
    """Equal tokens; they may diverge only where the two best logits differ by less than CLOSE."""
    tokens, hf_tokens = our_tokens(ours, config, seed, count), hf_tokens_of(theirs, ours, seed, count)
    assert tokens.shape == hf_tokens.shape
    ids, source, real = make_inputs(ours, seed)
    for row in range(B):
        differ = (tokens[row] != hf_tokens[row]).nonzero()
        if len(differ):
            prefix = tokens[row : row + 1, : int(differ[0])]
            if theirs.config.is_encoder_decoder:
                logits = ours(source[row : row + 1], prefix, real[row : row + 1, None, None])
            else:
                logits = ours(prefix)
            best = logits[0, -1].topk(2).values
            assert float(best[0] - best[1]) < CLOSE


CASES = [pytest.param(name, seed, id=f"{name}-{seed}") for name in THEIRS for seed in SEEDS]


@pytest.mark.parametrize(("name", "seed"), CASES)
def test_round_trip_with_transformers(name: str, seed: int, tmp_path: Path) -> None:
    both_ways(name, seed, tmp_path)


def both_ways(name: str, seed: int, tmp_path: Path) -> None:
    theirs = save_hf_model(name, seed, tmp_path / "theirs")
    ours, source = load_folder(tmp_path / "theirs")
    assert_outputs_equal(ours, theirs, seed)
    assert_tokens_equal(ours, source.config, theirs, seed, 200 if seed < LONG else 20)

    first = save(tmp_path / "first", ours, source)
    loaded, source = load_folder(first)
    assert files(save(tmp_path / "second", loaded, source)) == files(first)
    for file in ("config.json", "generation_config.json"):
        original = tmp_path / "theirs" / file
        assert (first / file).exists() == original.exists()
        assert not original.exists() or json.loads((first / file).read_text()) == json.loads(original.read_text())
    stored, saved = (load_file(folder / "model.safetensors") for folder in (tmp_path / "theirs", first))
    assert stored.keys() == saved.keys()
    assert all(torch.equal(tensor, saved[key]) for key, tensor in stored.items())

    fresh = save(tmp_path / "fresh", ours)  # without a source: every key of config.json comes from our table
    assert_outputs_equal(ours, load_in_transformers(fresh), seed)
    loaded, _ = load_folder(fresh)
    assert loaded.body.config == ours.body.config
    assert files(save(tmp_path / "fresh second", loaded)) == files(fresh)


def swapped_tables(names: FamilyMap, shapes: dict[str, torch.Size]) -> dict[str, Callable[[FamilyMap], FamilyMap]]:
    """For every table entry, the table with this entry and the next of the same shape swapped."""
    lines = {hf_name: name for hf_name, name in names.weights.items() if hf_name.format(0) in shapes}

    def swap(a: str, b: str) -> Callable[[FamilyMap], FamilyMap]:
        return lambda names: replace(names, weights={**names.weights, a: lines[b], b: lines[a]})

    def kind(line: str) -> tuple[Any, ...]:
        return shapes[line.format(0)], line.split("{}")[0] if "{}" in line else ""

    swaps = {}
    for a in lines:
        same_kind = [b for b in lines if b != a and kind(b) == kind(a)]
        if same_kind:
            b = next((b for b in same_kind if [*lines].index(b) > [*lines].index(a)), same_kind[0])
            swaps[f"{a} <-> {b}"] = swap(a, b)
    return swaps


@each
def test_swapping_two_table_entries_changes_the_outputs(name: str, tmp_path: Path) -> None:
    seed = next(seed for seed in SEEDS if THEIRS[name](random.Random(f"{name} {seed}")).num_hidden_layers > 1)
    theirs = save_hf_model(name, seed, tmp_path / "theirs")
    tensors = load_file(tmp_path / "theirs" / "model.safetensors")
    prefix = HF_FAMILIES[name].prefix
    swaps = swapped_tables(
        HF_FAMILIES[name], {key.removeprefix(prefix): tensor.shape for key, tensor in tensors.items()}
    )
    assert len(swaps) >= {"nanochat": 2, "gpt2": 6}.get(name, 8)
    for pair, change in swaps.items():
        ours, _ = load_folder(tmp_path / "theirs", change)
        with pytest.raises(AssertionError):  # noqa: PT012
            assert_outputs_equal(ours, theirs, seed)
            pytest.fail(f"unnoticed: {pair}", pytrace=False)


# config.json of published models, without keys that matter only in training.
HUB: dict[str, dict[str, Any]] = {
    "openai-community/gpt2": {
        "model_type": "gpt2", "activation_function": "gelu_new", "attn_pdrop": 0.1, "bos_token_id": 50256,
        "embd_pdrop": 0.1, "eos_token_id": 50256, "layer_norm_epsilon": 1e-05, "n_ctx": 1024, "n_embd": 768,
        "n_head": 12, "n_layer": 12, "n_positions": 1024, "resid_pdrop": 0.1, "summary_activation": None,
        "summary_first_dropout": 0.1, "summary_proj_to_labels": True, "summary_type": "cls_index",
        "summary_use_proj": True, "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
        "vocab_size": 50257,
    },
    "Helsinki-NLP/opus-mt-en-de": {
        "model_type": "marian", "_num_labels": 3, "activation_dropout": 0.0, "activation_function": "swish",
        "add_bias_logits": False, "add_final_layer_norm": False, "attention_dropout": 0.0, "bad_words_ids": [[58100]],
        "bos_token_id": 0, "classif_dropout": 0.0, "classifier_dropout": 0.0, "d_model": 512,
        "decoder_attention_heads": 8, "decoder_ffn_dim": 2048, "decoder_layerdrop": 0.0, "decoder_layers": 6,
        "decoder_start_token_id": 58100, "decoder_vocab_size": 58101, "dropout": 0.1, "encoder_attention_heads": 8,
        "encoder_ffn_dim": 2048, "encoder_layerdrop": 0.0, "encoder_layers": 6, "eos_token_id": 0,
        "forced_eos_token_id": 0, "gradient_checkpointing": False, "is_encoder_decoder": True, "max_length": 512,
        "max_position_embeddings": 512, "normalize_before": False, "normalize_embedding": False, "num_beams": 6,
        "num_hidden_layers": 6, "pad_token_id": 58100, "scale_embedding": True,
        "share_encoder_decoder_embeddings": True, "static_position_embeddings": True, "use_cache": True,
        "vocab_size": 58101,
    },
    "google/pegasus-xsum": {
        "model_type": "pegasus", "activation_dropout": 0.1, "activation_function": "relu", "add_bias_logits": False,
        "add_final_layer_norm": True, "attention_dropout": 0.1, "bos_token_id": 0, "classif_dropout": 0.0,
        "classifier_dropout": 0.0, "d_model": 1024, "decoder_attention_heads": 16, "decoder_ffn_dim": 4096,
        "decoder_layerdrop": 0.0, "decoder_layers": 16, "decoder_start_token_id": 0,
        "dropout": 0.1, "encoder_attention_heads": 16, "encoder_ffn_dim": 4096, "encoder_layerdrop": 0.0,
        "encoder_layers": 16, "eos_token_id": 1, "extra_pos_embeddings": 0, "force_bos_token_to_be_generated": False,
        "forced_eos_token_id": 1, "gradient_checkpointing": False, "is_encoder_decoder": True, "length_penalty": 0.6,
        "max_length": 64, "max_position_embeddings": 512, "normalize_before": True, "normalize_embedding": False,
        "num_beams": 8, "num_hidden_layers": 16, "pad_token_id": 0, "scale_embedding": True,
        "static_position_embeddings": True, "use_cache": True, "vocab_size": 96103,
    },
    "meta-llama/Llama-2-7b-hf": {
        "model_type": "llama", "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096,
        "intermediate_size": 11008, "max_position_embeddings": 4096, "num_attention_heads": 32,
        "num_hidden_layers": 32, "num_key_value_heads": 32, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
        "rope_scaling": None, "tie_word_embeddings": False, "torch_dtype": "float16", "use_cache": True,
        "vocab_size": 32000,
    },
    "meta-llama/Llama-3.1-8B": {
        "model_type": "llama", "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 128000,
        "eos_token_id": [128001, 128008, 128009], "hidden_act": "silu", "hidden_size": 4096,
        "intermediate_size": 14336, "max_position_embeddings": 131072, "mlp_bias": False, "num_attention_heads": 32,
        "num_hidden_layers": 32, "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
        "rope_scaling": {
            "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
            "rope_type": "llama3",
        },
        "rope_theta": 500000.0, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "vocab_size": 128256,
    },
    "meta-llama/Llama-3.2-1B": {
        "model_type": "llama", "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 128000,
        "eos_token_id": 128001, "head_dim": 64, "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 8192,
        "max_position_embeddings": 131072, "mlp_bias": False, "num_attention_heads": 32, "num_hidden_layers": 16,
        "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
        "rope_scaling": {
            "factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192,
            "rope_type": "llama3",
        },
        "rope_theta": 500000.0, "tie_word_embeddings": True, "torch_dtype": "bfloat16", "vocab_size": 128256,
    },
    "HuggingFaceTB/SmolLM2-135M": {
        "model_type": "llama", "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 0,
        "eos_token_id": 0, "hidden_act": "silu", "hidden_size": 576, "initializer_range": 0.041666666666666664,
        "intermediate_size": 1536, "is_llama_config": True, "max_position_embeddings": 8192, "num_attention_heads": 9,
        "num_hidden_layers": 30, "num_key_value_heads": 3, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
        "rope_interleaved": False, "rope_scaling": None, "rope_theta": 100000, "tie_word_embeddings": True,
        "torch_dtype": "bfloat16", "use_cache": True, "vocab_size": 49152,
    },
    "mistralai/Mistral-7B-v0.1": {
        "model_type": "mistral", "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096,
        "intermediate_size": 14336, "max_position_embeddings": 32768, "num_attention_heads": 32,
        "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
        "sliding_window": 4096, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "vocab_size": 32000,
    },
    "Qwen/Qwen2-0.5B": {
        "model_type": "qwen2", "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151643,
        "hidden_act": "silu", "hidden_size": 896, "intermediate_size": 4864, "max_position_embeddings": 131072,
        "max_window_layers": 24, "num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2,
        "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 131072, "tie_word_embeddings": True,
        "torch_dtype": "bfloat16", "use_cache": True, "use_sliding_window": False, "vocab_size": 151936,
    },
    "karpathy/nanochat-d32": {
        "model_type": "nanochat", "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 0,
        "eos_token_id": 1, "final_logit_softcapping": 15.0, "hidden_act": "relu2", "hidden_size": 2048,
        "intermediate_size": 8192, "max_position_embeddings": 2048, "num_attention_heads": 16,
        "num_hidden_layers": 32, "num_key_value_heads": 16, "pad_token_id": 1, "rms_norm_eps": 1e-06,
        "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}, "tie_word_embeddings": False,
        "vocab_size": 65536,
    },
}  # fmt: skip
EXPECTED = {
    "openai-community/gpt2": {"hidden": 3072, "activation": "gelu-tanh", "tie_embeddings": True},
    "Helsinki-NLP/opus-mt-en-de": {"activation": "silu", "scale_embedding": True, "post_norm": True, "pad": 58100},
    "google/pegasus-xsum": {"activation": "relu", "post_norm": False, "pad": 0},
    "meta-llama/Llama-2-7b-hf": {"rope_factor": 1.0, "kv_heads": 32, "tie_embeddings": False},
    "meta-llama/Llama-3.1-8B": {
        "rope_factor": 8.0,
        "rope_original_context": 8192,
        "rope_theta": 500000.0,
        "head_dim": 128,
    },
    "meta-llama/Llama-3.2-1B": {
        "rope_factor": 32.0,
        "rope_original_context": 8192,
        "tie_embeddings": True,
        "head_dim": 64,
    },
    "HuggingFaceTB/SmolLM2-135M": {"rope_theta": 100000, "tie_embeddings": True, "kv_heads": 3},
    "mistralai/Mistral-7B-v0.1": {"context": 4096, "kv_heads": 8, "biases": "none"},
    "Qwen/Qwen2-0.5B": {"context": 131072, "biases": "qkv", "tie_embeddings": True, "norm_eps": 1e-6},
    "karpathy/nanochat-d32": {"softcap": 15.0, "tie_embeddings": False},
}


@pytest.mark.parametrize("checkpoint", HUB)
def test_published_configs_are_read(checkpoint: str) -> None:
    hf_config = HUB[checkpoint]
    names = HF_FAMILIES[hf_config["model_type"]]
    config = MODELS[names.model].config(**names.config_from_hf(hf_config))
    names.check_derived_keys(hf_config, vars(config))
    assert {key: getattr(config, key) for key in EXPECTED[checkpoint]} == EXPECTED[checkpoint]


REFUSED = [
    ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx is True, but only False"),
    ("gpt2", {"add_cross_attention": True}, "add_cross_attention is True, but only False"),
    ("gpt2", {"scale_attn_weights": False}, "scale_attn_weights is False, but only True"),
    ("gpt2", {"activation_function": "tanh"}, "activation_function is 'tanh', but only 'gelu_new' or"),
    ("gpt2", {"activation_function": ["gelu"]}, r"activation_function is \['gelu'\], but only"),
    ("llama", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope_type is 'dynamic', but only"),
    ("llama", {"rope_scaling": {"type": "linear"}}, "no rope_parameters.factor, which rope_type linear needs"),
    ("llama", {"rope_scaling": [1]}, r"rope_parameters is \[1\], but must be an object"),
    (
        "llama",
        {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 2.0, "high_freq_factor": 4.0}},
        "low_freq_factor is 2.0, but only 1.0",
    ),
    ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5, but only 1.0"),
    ("llama", {"attention_bias": "yes"}, "attention_bias and mlp_bias must be true or false"),
    ("llama", {"quantization_config": {"bits": 4}}, "quantization_config is {'bits': 4}, which is not supported"),
    ("llama", {"pruned_heads": {"0": [1]}}, "pruned_heads is"),
    ("mistral", {"sliding_window": 0}, "context must be at least 1, not 0"),
    ("nanochat", {"attention_bias": True}, "attention_bias is True, but only False"),
    ("nanochat", {"hidden_act": "gelu"}, "hidden_act is 'gelu', but only 'relu2'"),
    ("nanochat", {"head_dim": 6}, "head_dim is 6, but only 128"),
    ("nanochat", {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "rope_type is 'linear', but only 'default'"),
    ("marian", {"decoder_attention_heads": 4}, "decoder_attention_heads is 4, but heads is 8 elsewhere"),
    ("marian", {"encoder_ffn_dim": 4}, "but hidden is"),
    ("marian", {"decoder_vocab_size": 4}, "decoder_vocab_size is 4, but only 58101"),
    ("marian", {"share_encoder_decoder_embeddings": False}, "share_encoder_decoder_embeddings is False, but only True"),
    ("marian", {"normalize_embedding": True}, "normalize_embedding is True, but only False"),
    ("pegasus", {"tie_word_embeddings": False}, "tie_word_embeddings is False, but only True"),
]


@pytest.mark.parametrize(("name", "change", "message"), REFUSED)
def test_unsupported_settings_are_refused_by_key_and_value(name: str, change: dict[str, Any], message: str) -> None:
    hf_config = next(hf_config for hf_config in HUB.values() if hf_config["model_type"] == name) | change
    names = HF_FAMILIES[name]
    with pytest.raises(ValueError, match=message):
        names.check_derived_keys(hf_config, vars(MODELS[names.model].config(**names.config_from_hf(hf_config))))


@pytest.mark.parametrize("repeated", ["model.encoder.embed_tokens.weight", "lm_head.weight"])
@pytest.mark.parametrize("name", SEQ2SEQ)
def test_a_tied_weight_may_be_stored_under_any_name_or_twice_if_equal(name: str, repeated: str, tmp_path: Path) -> None:
    theirs = save_hf_model(name, 3, tmp_path / "theirs")
    file = tmp_path / "theirs" / "model.safetensors"
    tensors = load_file(file)
    shared = tensors["model.shared.weight"]
    save_file(tensors | {repeated: shared.clone()}, file)
    assert_outputs_equal(load_folder(tmp_path / "theirs")[0], theirs, 3)
    save_file(tensors | {repeated: shared + 1}, file)
    with pytest.raises(ValueError, match=repeated):
        load_folder(tmp_path / "theirs")
    del tensors["model.shared.weight"]
    save_file(tensors | {repeated: shared}, file)
    assert_outputs_equal(load_folder(tmp_path / "theirs")[0], theirs, 3)


@pytest.mark.parametrize("name", ["gpt2", "llama", "mistral", "qwen2", "nanochat"])
def test_a_tied_lm_head_may_be_stored_if_equal(name: str, tmp_path: Path) -> None:
    seed = next(seed for seed in SEEDS if THEIRS[name](random.Random(f"{name} {seed}")).tie_word_embeddings)
    theirs = save_hf_model(name, seed, tmp_path / "theirs")
    file = tmp_path / "theirs" / "model.safetensors"
    tensors = load_file(file)
    assert "lm_head.weight" not in tensors
    tokens = theirs.get_input_embeddings().weight.detach()
    save_file(tensors | {"lm_head.weight": tokens.clone()}, file)
    assert_outputs_equal(load_folder(tmp_path / "theirs")[0], theirs, seed)
    save_file(tensors | {"lm_head.weight": tokens + 1}, file)
    with pytest.raises(ValueError, match="lm_head.weight"):
        load_folder(tmp_path / "theirs")


def test_stored_positions_of_older_marian_folders_are_ignored(tmp_path: Path) -> None:
    theirs = save_hf_model("marian", 3, tmp_path / "theirs")
    file = tmp_path / "theirs" / "model.safetensors"
    table = theirs.model.encoder.embed_positions.weight.detach()
    save_file(load_file(file) | {"model.encoder.embed_positions.weight": table}, file)
    assert_outputs_equal(load_folder(tmp_path / "theirs")[0], theirs, 3)


def test_a_sliding_window_limits_our_context(tmp_path: Path) -> None:
    seed = next(s for s in SEEDS if THEIRS["mistral"](random.Random(f"mistral {s}")).max_position_embeddings == 999)
    theirs = save_hf_model("mistral", seed, tmp_path / "theirs")
    ours, source = load_folder(tmp_path / "theirs")
    assert ours.body.config.context == CONTEXT
    first = save(tmp_path / "first", ours, source)
    assert json.loads((first / "config.json").read_text())["max_position_embeddings"] == 999
    ids = torch.randint(ours.body.config.vocab, (1, CONTEXT + 1), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        assert_equal(ours(ids[:, :-1]), theirs(input_ids=ids[:, :-1]).logits)
    with pytest.raises(ValueError, match=f"{CONTEXT + 1} tokens do not fit"):
        ours(ids)


LLAMA3 = {"rope_factor": 8.0, "rope_original_context": 8192, "rope_theta": 1e8}  # CTranslate2 hard-codes the 8192
CONVERTED = [
    ("gpt", {}),
    ("gpt", {"activation": "relu", "tie_embeddings": False}),
    ("llama", {"kv_heads": 2, "biases": "all"}),
    ("llama", {"rope_factor": 2.0, "norm_eps": 1e-3, "biases": "attention"}),
    ("llama", {"kv_heads": 3, "tie_embeddings": True, **LLAMA3}),
    ("llama", {"biases": "qkv"}),  # is Qwen2
]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(("kind", "options"), CONVERTED)
def test_ctranslate2_generates_the_tokens_of_our_causal_models(
    kind: str, options: dict[str, Any], tmp_path: Path
) -> None:
    ctranslate2 = pytest.importorskip("ctranslate2", reason="needs the dev extra")
    from ctranslate2.converters import TransformersConverter

    draw = random.Random(5)
    texts = [" ".join(draw.choices(["tea", "water", "bread", "a house"], k=4)) for _ in range(8)]
    layout = replace(GPT_LAYOUT, roles=GPT_LAYOUT.roles | {"bos_token": "</s>"})  # the converter needs one
    tokenizer = train_tokenizer(texts, TokenizerOptions(tokenizer="characters"), layout)
    sizes = {"vocab": len(tokenizer), "context": 64, "dim": 24, "layers": 2, "heads": 6, "hidden": 40, "pad": 1}
    torch.manual_seed(6)
    body: Any = MODELS[kind].bodies["decoder"](MODELS[kind].config(**sizes | options))
    ours = perturb(Model(body, body.lm_head()), 6)
    folder = save(tmp_path / "ours", ours)
    tokenizer.save(folder)
    TransformersConverter(str(folder)).convert(str(tmp_path / "converted"))
    theirs = ctranslate2.Generator(str(tmp_path / "converted"), device="cpu", compute_type="float32", intra_threads=1)
    settings = {
        "max_length": 20,
        "min_length": 20,
        "sampling_topk": 1,
        "include_prompt_in_result": False,
        "end_token": [],
    }
    for text in texts:
        ids = tokenizer.encode([text[: draw.randint(3, 12)]])[0]
        [generated] = theirs.generate_batch([tokenizer.convert_ids_to_tokens(ids)], **settings)
        with torch.inference_mode():
            tokens = greedy_decode(partial(ours.body, cache=ours.body.caches()), ours, torch.tensor([ids]), 20)[
                0
            ].tolist()
            first_difference = next(
                (
                    i
                    for i, (a, b) in enumerate(zip(tokens[len(ids) :], generated.sequences_ids[0], strict=True))
                    if a != b
                ),
                None,
            )
            if first_difference is not None:
                best = ours(torch.tensor([tokens[: len(ids) + first_difference]]))[0, -1].topk(2).values
                assert float(best[0] - best[1]) < CLOSE
