"""Traces: attention rows sum to one, page data reproduce the tensors, the last lens prediction is the model's own."""

import json
import math
import zlib
from base64 import b64decode
from dataclasses import fields

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tokenizers import Tokenizer as Engine
from tokenizers import models, pre_tokenizers
from torch.testing import assert_close

from regard.data.tokenizer import Tokenizer
from regard.data.tokenizer_train import BERT_LAYOUT, GPT_LAYOUT, MARIAN_LAYOUT, TokenizerOptions, train_tokenizer
from regard.load import load
from regard.loaded_model import LoadedModel
from regard.look import look
from regard.modalities.image.image_transform import ImageTransform
from regard.modalities.image.preprocessor import ImagePreprocessor
from regard.modalities.protocols import Target
from regard.modalities.text.preprocessor import TextPreprocessor
from regard.models import MODELS
from regard.parts.attention import merge_heads
from regard.parts.positions import Alibi, SinusoidalPositions, sinusoids
from regard.tasks import TASKS
from regard.tasks.classify import Classify
from regard.tasks.compatibility import body_class
from regard.tasks.embed import Embed
from regard.view import attention_maps as maps_module
from regard.view.attention_maps import attention_maps, attention_tab, steps_tab
from regard.view.figures import save_figures
from regard.view.logit_lens import lens_logits, lens_tab, logit_lens
from regard.view.position_table import positions_tab
from regard.view.trace import UNKNOWN, trace_text
from regard.view.word_attention import InitialView, attention_between_words, choose_initial_view, sharpest_layer
from regard.view.word_pieces import TokenizedText, group_words, tokenize_words

H, D, L, CONTEXT = 3, 24, 2, 40
TEXTS = [
    "The red cat runs because it is late, isn't it?",
    "A blue bird sleeps (so it says).",
    "Die Katze kommt spät.",
] * 9
TEXT, TARGET = "The red cat runs because it is late.", "Die Katze sleeps spät, so it says."
SMALL = {
    "context": CONTEXT, "dim": D, "layers": L, "encoder_layers": L, "decoder_layers": L + 1, "heads": H, "kv_heads": 1,
    "hidden": 20, "dropout": 0.0, "stages": 1,
}  # fmt: skip
LAYOUTS = {"translate": MARIAN_LAYOUT, "write": GPT_LAYOUT}
FITTED = {
    "classify": {"labels": ["a", "b"]},
    "tag": {"tags": ["O", "B-x", "I-x", "B-y", "I-y", "B-z"]},
    "regress": {"mean": 0.0, "std": 1.0},
}
TOKENIZERS = {
    name: train_tokenizer(TEXTS, TokenizerOptions(vocab_size=v), layout)
    for name, v, layout in (("t", 60, MARIAN_LAYOUT), ("r", 64, BERT_LAYOUT))
}
TOKENIZERS["w"] = train_tokenizer(TEXTS, TokenizerOptions(vocab_size=280), GPT_LAYOUT)
TEXT_BY_TASK = {
    "answer": f"Who came?\t{TEXT}",
    "fill": "The red [MASK] runs because it is late.",
    "classify": f"{TEXT}\tA bird.",
}


def build_model(kind, family, task_options=None, **config):
    """A model with random weights, large enough that every head is distinctive."""
    torch.manual_seed(0)
    tokenizer = TOKENIZERS[{"translate": "t", "write": "w"}.get(kind, "r")]
    task = TASKS[kind](preprocessor=TextPreprocessor(tokenizer), **FITTED.get(kind, {}), **(task_options or {}))
    family_entry = MODELS[family]
    known = {field.name for field in fields(family_entry.config)}
    sizes = {name: value for name, value in (SMALL | task.sizes() | config).items() if name in known}
    model = task.head(body_class(task, family)(family_entry.config(**sizes))).eval()
    for name, weight in model.named_parameters():
        if not name.startswith("head.bias"):
            torch.nn.init.normal_(weight, std=0.3)
    return LoadedModel(model, task)


def trace_example(loaded):
    kind = next(name for name, task in TASKS.items() if type(loaded.task) is task)
    return trace_text(loaded, TEXT_BY_TASK.get(kind, TEXT), TARGET if kind == "translate" else None)


def numbers(blob, *shape, kind="<f4"):
    return np.frombuffer(zlib.decompress(b64decode(blob)), kind).reshape(shape)


MODELS_TO_TRACE = [
    ("translate", "transformer", {}),
    ("translate", "transformer", {"post_norm": True}),
    ("translate", "recurrent", {}),
    ("write", "gpt", {}),
    ("write", "llama", {}),
    ("write", "nanochat", {"softcap": 15.0}),
    ("fill", "bert", {}),
    ("classify", "bert", {}),
    ("tag", "bert", {"positions_after_pad": True}),
    ("answer", "bert", {}),
    ("regress", "gpt", {}),
    ("embed", "llama", {}),
    ("tag", "nanochat", {}),
    ("fill", "modernbert", {"global_every": 2, "window": 1}),
]
all_models = pytest.mark.parametrize(
    ("kind", "family", "config"), MODELS_TO_TRACE, ids=lambda x: x if isinstance(x, str) else str(len(x))
)


# Attention.


@all_models
def test_attention_rows_sum_to_one(kind, family, config):
    trace = trace_example(build_model(kind, family, **config))
    maps = attention_maps(trace)
    names = {"transformer": ["cross", "encoder", "decoder"], "recurrent": ["cross"]}.get(family, ["self"])
    assert [attention.name for attention in maps] == names
    for attention in maps:
        layers = L + 1 if attention.name in ("cross", "decoder") else L
        heads = 1 if family == "recurrent" else H
        shape = (
            1 if family == "recurrent" else layers,
            heads,
            len(attention.queries.tokens),
            len(attention.keys.tokens),
        )
        assert attention.weights.shape == shape
        np.testing.assert_allclose(attention.weights.sum(-1), 1.0, atol=1e-6)


@all_models
def test_the_page_data_reproduce_weights_and_outputs(kind, family, config):
    """Queries, keys, mask and scale give the weights, and with the values the output of attention."""
    trace = trace_example(build_model(kind, family, **config))
    maps = attention_maps(trace)
    tab = json.loads(json.dumps(attention_tab(maps, trace)))
    for attention, map_data in zip(maps, tab["maps"], strict=True):
        T, S = len(map_data["queryTokens"]), len(map_data["keyTokens"])
        small = numbers(map_data["weights"], map_data["layers"], map_data["heads"], T, S, kind="u1")
        assert np.abs(small / 255 - attention.weights).max() <= 0.5 / 255 + 1e-6
        assert len(map_data["queryWordIds"]) == T
        assert len(map_data["keyWordIds"]) == S
        if family == "recurrent":
            assert map_data["exactHeads"] == []
            continue
        assert [(h["layer"], h["head"]) for h in map_data["exactHeads"]] == [
            *np.ndindex(map_data["layers"], map_data["heads"])
        ]
        for layer in range(map_data["layers"]):
            outputs = []
            for head in map_data["exactHeads"][layer * H : (layer + 1) * H]:
                E = head["size"]
                q, k, v = (numbers(head[name], n, E) for name, n in (("queries", T), ("keys", S), ("values", S)))
                scores = torch.tensor(q @ k.T * head["scale"])
                if head["mask"]:
                    scores = scores.masked_fill(torch.tensor(numbers(head["mask"], T, S, kind="u1") == 0), -math.inf)
                weights = scores.softmax(-1)
                assert_close(weights, torch.tensor(numbers(head["weights"], T, S)), atol=1e-5, rtol=0)
                outputs.append(weights @ torch.tensor(v))
            module = trace.model.get_submodule(attention.modules[layer])
            with torch.no_grad():
                assert_close(
                    module.out(merge_heads(torch.stack(outputs)[None])),
                    trace.activations[attention.modules[layer]],
                    atol=1e-4,
                    rtol=1e-4,
                )
    steps = steps_tab(maps, trace)
    assert (steps is None) == (family == "recurrent")


def test_decoders_are_causal():
    for loaded, name in ((build_model("write", "gpt"), "self"), (build_model("translate", "transformer"), "decoder")):
        trace = trace_example(loaded)
        attention = next(attention for attention in attention_maps(trace) if attention.name == name)
        assert not np.triu(attention.weights, 1).any()
        assert "predicts the next one" in attention.description
        assert all(head["mask"] for head in maps_module.map_data(attention, trace, 10**6)["exactHeads"])


def test_the_description_mentions_prediction_only_for_decoders():
    [attention] = attention_maps(trace_example(build_model("tag", "gpt")))
    assert "Causal" in attention.description
    assert "predicts" not in attention.description
    [attention] = attention_maps(trace_example(build_model("fill", "bert")))
    assert "Causal" not in attention.description


def test_a_score_bias_is_in_the_page_data():
    loaded = build_model("write", "gpt")
    for block in loaded.model.body.blocks:
        block.mixer.inner.score_bias = Alibi(H)
    trace = trace_example(loaded)
    [map_data] = attention_tab(attention_maps(trace), trace)["maps"]
    T, head = len(map_data["queryTokens"]), map_data["exactHeads"][H + 1]
    q, k = (numbers(head[name], T, head["size"]) for name in ("queries", "keys"))
    scores = q @ k.T * head["scale"] + numbers(head["bias"], T, T)
    weights = torch.tensor(np.where(np.tri(T), scores, -np.inf)).softmax(-1)
    assert_close(weights.float(), torch.tensor(numbers(head["weights"], T, T)), atol=1e-5, rtol=0)


def test_a_row_of_the_cross_map_is_the_decoding_step_of_its_token():
    """Decoded token by token, the weights of step t are those of the row named after the output of step t."""
    loaded = build_model("translate", "transformer")
    trace = trace_example(loaded)
    cross, _, decoder = attention_maps(trace)
    task, body = loaded.task, loaded.model.body
    source = task.encode_sources([task.preprocessor.parse(TEXT, Target.TEXT)]).ids[0].tolist()
    [target_ids] = task.tokenizer.encode_targets([TARGET])
    assert cross.queries.tokens == task.tokenizer.convert_ids_to_tokens(target_ids)
    assert cross.keys.tokens == task.tokenizer.convert_ids_to_tokens(source)
    assert (
        decoder.queries.tokens
        == decoder.keys.tokens
        == ["start", *task.tokenizer.convert_ids_to_tokens(target_ids)[:-1]]
    )
    with torch.inference_mode():
        caches = body.decoder_caches(torch.tensor([source]))
        for t, input_id in enumerate([task.start_token, *target_ids[:-1]]):
            with look(loaded.model) as activations:
                body.decode(torch.tensor([[input_id]]), cache=caches)
            for attention in (cross, decoder):
                row = activations[f"{attention.modules[1]}.weights"][0, :, 0].numpy()  # (H,S)
                np.testing.assert_allclose(attention.weights[1, :, t, : row.shape[1]], row, atol=1e-5)


def test_exact_heads_fill_the_byte_budget_and_include_the_initial_one():
    trace = trace_example(build_model("write", "gpt"))
    [attention] = attention_maps(trace)
    assert maps_module.choose_exact_heads(attention, trace, 0) == [attention.initial[:2]]
    T, E = len(attention.queries.tokens), D // H
    few = maps_module.choose_exact_heads(attention, trace, (H + 1) * 4 * (T * T + 3 * T * E))
    assert len(few) == H + 1
    assert {(attention.initial.layer, head) for head in range(H)} < set(few)


def test_attention_pooling_is_a_map():
    trace = trace_example(build_model("classify", "recurrent", {"pooling": "attention"}))
    [attention] = attention_maps(trace)
    assert (attention.name, attention.weights.shape[:3]) == ("pooling", (1, 1, 1))
    np.testing.assert_allclose(attention.weights.sum(), 1.0, atol=1e-6)
    assert [
        attention.name
        for attention in attention_maps(trace_example(build_model("regress", "bert", {"pooling": "attention"})))
    ] == ["self", "pooling"]


# The logit lens.


@all_models
def test_the_last_prediction_is_the_models_own(kind, family, config):
    loaded = build_model(kind, family, **config)
    trace = trace_example(loaded)
    lens = logit_lens(trace)
    if family == "recurrent":
        assert lens is None
        return
    if kind in ("classify", "regress", "answer", "embed"):
        assert lens.predictions is None
        assert lens.targets is None
        return
    positions = range(len(trace.inputs.tokens))
    if kind == "tag":  # the first token of each word
        positions = [trace.inputs.word_ids.index(word) for word in range(len(trace.inputs.words))]
        assert lens.tokens == trace.inputs.words
    logits = lens_logits(trace, lens.states[-1:])
    assert torch.equal(logits, trace.logits[:, positions])
    probabilities = logits[0].softmax(-1)
    for t, best in enumerate(lens.predictions[-1]):
        assert len(best) == 5
        expected = probabilities[t].topk(5).values
        assert_close(torch.tensor([p for _, p in best]), expected, atol=1e-5, rtol=0)
        if kind != "tag":
            assert len(lens.targets) == len(lens.tokens)
            assert best[0][0] == tokenize_words(loaded.tokenizer, [int(probabilities[t].argmax())]).tokens[0]
        else:
            assert best[0][0] == loaded.task.tags[int(probabilities[t].argmax())]


@all_models
def test_norms_are_those_of_the_residual_stream(kind, family, config):
    loaded = build_model(kind, family, **config)
    lens = logit_lens(trace_example(loaded))
    if lens is None:
        return
    tab = json.loads(json.dumps(lens_tab(lens)))
    body = loaded.model.body
    blocks = body.decoder if kind == "translate" else body.blocks
    assert tab["layers"] == ["embedding", *(f"block {i + 1}" for i in range(len(blocks)))]
    states = []  # into each block, and out of the last
    hooks = [block.register_forward_pre_hook(lambda _, args: states.append(args[0])) for block in blocks]
    hooks.append(blocks[-1].register_forward_hook(lambda *args: states.append(args[2])))
    trace_example(loaded)
    for hook in hooks:
        hook.remove()
    inputs = trace_example(loaded).inputs
    first = [inputs.word_ids.index(word) for word in range(len(inputs.words))]
    positions = first if kind == "tag" else range(len(inputs.tokens))
    expected = [x[0].norm(dim=-1)[positions].tolist() for x in states]
    np.testing.assert_allclose(tab["norms"], expected, atol=1e-3)
    assert len(tab["norms"][0]) == len(tab["tokens"])


def test_the_trace_has_the_tokens_that_the_model_reads():
    loaded = build_model("embed", "bert", {"do_lower_case": True})
    trace = trace_text(loaded, f"{TEXT}\ta candidate")
    assert trace.inputs.words == [*map(str.lower, trace_text(build_model("embed", "bert"), TEXT).inputs.words)]
    assert_close(trace.logits[0], torch.tensor(next(loaded.task.embed(loaded.model, [TEXT]))), atol=1e-5, rtol=1e-5)


def test_targets_of_a_causal_model_are_the_next_tokens():
    """The prediction at position t depends on the tokens up to t, and its target is token t + 1."""
    loaded = build_model("write", "llama", {"add_bos_token": True})
    trace = trace_text(loaded, TEXT)
    lens = logit_lens(trace)
    ids = [loaded.tokenizer.bos_token_id, *loaded.tokenizer.encode([TEXT])[0]]
    assert lens.tokens == tokenize_words(loaded.tokenizer, ids).tokens
    assert lens.targets == [*lens.tokens[1:], UNKNOWN]
    with torch.no_grad():
        prefix_logits = loaded.model(torch.tensor([ids[:4]]))
    assert_close(trace.logits[:, 3], prefix_logits[:, 3], atol=1e-5, rtol=1e-5)


def test_targets_of_a_masked_model_are_its_inputs():
    trace = trace_text(build_model("fill", "bert"), "The red [MASK] runs")
    hidden = trace.inputs.tokens.index("[MASK]")
    assert trace.inputs.word_ids[hidden] >= 0
    assert trace.targets.tokens == [*trace.inputs.tokens[:hidden], UNKNOWN, *trace.inputs.tokens[hidden + 1 :]]


def test_targets_of_a_translator_are_its_inputs_shifted():
    trace = trace_example(build_model("translate", "transformer"))
    assert logit_lens(trace).tokens[1:] == logit_lens(trace).targets[:-1]
    assert logit_lens(trace).targets[-1] == "</s>"


def test_the_default_target_is_the_models_translation(small_run):
    translator = load(small_run, device="cpu")
    target_ids = translator.tokenizer.encode_targets([translator("tea and water 7")])[0]
    assert trace_text(translator, "tea and water 7").targets.tokens == translator.tokenizer.convert_ids_to_tokens(
        target_ids
    )


# Words.


def wordpiece_tokenizer():
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "un", "##like", "##ly", ",", "run"]
    engine = Engine(models.WordPiece({token: i for i, token in enumerate(tokens)}, unk_token="[UNK]"))
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    engine.post_processor = TOKENIZERS["r"].backend_tokenizer.post_processor
    return Tokenizer(engine, BERT_LAYOUT.roles)


def test_wordpiece_tokens_are_joined():
    tokenizer = wordpiece_tokenizer()
    text = tokenize_words(tokenizer, tokenizer.encode(["the cats, unlikely tigers"])[0])
    assert text.tokens == ["[CLS]", "the", "cat", "##s", ",", "un", "##like", "##ly", "[UNK]", "[SEP]"]
    assert text.word_ids == [-1, 0, 1, 1, 2, 3, 3, 3, 4, -1]
    assert text.words == ["the", "cats", ",", "unlikely", "[UNK]"]


def test_byte_tokens_are_decoded():
    tokenizer = train_tokenizer(["tea for two"] * 9, TokenizerOptions(vocab_size=262), GPT_LAYOUT)
    ids = [tokenizer.eos_token_id, *tokenizer.encode(["Grüße, tea\n"])[0]]
    text = tokenize_words(tokenizer, ids)
    assert text.words == ["Grüße", ",", "tea", ""]
    assert text.word_ids[:1] == [-1]
    assert [p for p in text.tokens if p[:1] == "Ġ"]
    assert "Ċ" in text.tokens[-1]


@pytest.mark.parametrize("pieces", ["bpe", "unigram", "characters"])
def test_sentencepiece_tokens_are_joined(pieces):
    tokenizer = train_tokenizer(TEXTS, TokenizerOptions(tokenizer=pieces), BERT_LAYOUT)
    text = tokenize_words(tokenizer, tokenizer.encode(["The cat, it (runs)"])[0])
    assert text.words == ["The", "cat", ",", "it", "(", "runs", ")"]
    assert (text.word_ids[0], text.word_ids[-1]) == (-1, -1)


def test_characters_are_joined():
    tokenizer = train_tokenizer(TEXTS, TokenizerOptions(tokenizer="characters"), GPT_LAYOUT)
    assert tokenize_words(tokenizer, tokenizer.encode(["The cat, it"])[0]).words == ["The", "cat", ",", "it"]


TEXT_STRATEGY = st.text(st.sampled_from("abü ,.(\n漢🙂'"), max_size=30)


@given(TEXT_STRATEGY, st.sampled_from("trw"))
def test_every_token_has_a_word_and_words_are_in_order(text, which):
    tokenizer = TOKENIZERS[which]
    ids = tokenizer.encode([text])[0]
    tokenized = tokenize_words(tokenizer, ids)
    assert len(tokenized.tokens) == len(tokenized.word_ids) == len(ids)
    inner = [place for place in tokenized.word_ids if place >= 0]
    assert inner == sorted(inner)
    assert sorted(set(inner)) == list(range(len(tokenized.words)))
    if which == "w":
        assert "".join(tokenized.words) == "".join(text.split())


def test_special_tokens_belong_to_no_word():
    assert group_words(["▁a", "END", "b"], "▁", {1}) == [("a", [0]), ("END", [1]), ("b", [2])]
    assert group_words(["▁a", "END", "b"], "▁") == [("aENDb", [0, 1, 2])]


# The initial view.


def sentence(layer, head, query, percent, key):
    return f'layer {layer}, head {head}: from "{query}", {percent} % of the attention goes to "{key}"'


def one_token_per_word(text):
    names = text.split()
    return TokenizedText(names, list(range(len(names))), names)


def uniform_weights(heads, size, **rows):
    """Uniform weights, except for the rows given by _layer_head_query."""
    weights = np.full((L, heads, size, size), 1 / size, np.float32)
    for where, row in rows.items():
        layer, head, ask = (int(i) for i in where[1:].split("_"))
        weights[layer, head, ask] = row
    return weights


def test_the_head_that_resolves_a_pronoun_is_chosen():
    text = one_token_per_word("The animal sleeps because it is tired")
    far = np.array([0.05, 0.41, 0.1, 0.1, 0.1, 0.14, 0.1])
    beside = np.array([0, 0, 0, 0.9, 0, 0.1, 0])
    after = np.array([0, 0, 0, 0, 0.1, 0.1, 0.8])
    weights = uniform_weights(H, 7, _1_2_4=far, _0_0_4=beside, _0_1_4=after, _1_1_6=np.eye(7)[1])
    assert choose_initial_view(weights, text, text, None) == (
        InitialView(1, 2, 4),
        sentence(2, 3, "it", 41, "animal"),
    )
    assert choose_initial_view(weights, text, text, "TIRED")[1] == sentence(2, 2, "tired", 100, "animal")


def test_a_position_that_every_word_attends_to_is_not_chosen():
    text = one_token_per_word("So the animal sleeps because it is tired")
    weights = uniform_weights(H, 8, _1_2_5=np.array([0.1, 0.1, 0.3, 0.1, 0.1, 0.1, 0.1, 0.1]))
    weights[0, 0] = np.eye(8)[0]
    assert choose_initial_view(weights, text, text, None)[1] == sentence(2, 3, "it", 30, "animal")
    weights[0, 0] = np.eye(8)[2]
    prefix = sentence(2, 3, "it", 30, "animal")
    assert (
        choose_initial_view(weights, text, text, None)[1]
        == f"{prefix} (most of all heads: layer 1, head 1 with 100 %, for other words too)"
    )


def test_without_a_pronoun_the_most_distinctive_word_is_chosen():
    text = one_token_per_word("red cats run and sleep")
    weights = uniform_weights(H, 5, _0_1_3=np.array([0.9, 0.1, 0, 0, 0]))
    assert choose_initial_view(weights, text, text, None) == (
        InitialView(0, 1, 3),
        sentence(1, 2, "and", 90, "red"),
    )


def test_punctuation_is_not_chosen():
    text = one_token_per_word("Well , the cats run and it sleeps")
    weights = uniform_weights(H, 8, _0_1_6=0.9 * np.eye(8)[1] + 0.0125, _1_1_6=0.5 * np.eye(8)[3] + 0.0625)
    assert choose_initial_view(weights, text, text, None)[1] == sentence(2, 2, "it", 56, "cats")


def test_neighbours_are_chosen_if_nothing_else_is_visible():
    weights = uniform_weights(1, 2, _1_0_1=np.array([0.8, 0.2]))
    same = one_token_per_word("red it")
    assert choose_initial_view(weights, same, same, None) == (
        InitialView(1, 0, 1),
        sentence(2, 1, "it", 80, "red"),
    )
    alone = one_token_per_word("it")
    assert choose_initial_view(uniform_weights(2, 1), alone, alone, None) == (InitialView(0, 0, 0), None)
    no_words = TokenizedText(["</s>"], [-1], [])
    assert choose_initial_view(uniform_weights(2, 1), no_words, no_words, None) == (InitialView(0, 0, 0), None)


def test_a_translator_opens_with_its_sharpest_layer():
    source, target = one_token_per_word("it is late now ."), one_token_per_word("es ist so")
    weights = np.full((3, 2, 3, 5), 0.2, np.float32)
    weights[1] = 0.7 * np.eye(3, 5) + 0.3 / 5
    weights[1, 1, 2] = [0.1, 0, 0.9, 0, 0]
    weights[0, 1, 0] = np.eye(5)[3]  # sharper, but only here
    weights[1, 0, 0] = np.eye(5)[4]  # sharper still, but on a full stop
    assert sharpest_layer(weights) == 1
    initial, highlight = choose_initial_view(weights, target, source, None, sharpest_layer(weights))
    assert (initial, highlight) == (
        InitialView(1, 1, 2),
        sentence(2, 2, "so", 90, "late"),
    )
    assert choose_initial_view(weights, target, source, "es", 1)[1] == sentence(2, 2, "es", 76, "it")


def test_word_attention_is_the_mean_of_queries_and_the_sum_of_keys():
    text = TokenizedText(["a", "b", "c", "</s>"], [0, 0, 1, -1], ["ab", "c"])
    weights = np.array([[0.1, 0.2, 0.3, 0.4], [0.3, 0.2, 0.1, 0.4], [0.25] * 4, [0, 0, 0, 1]], np.float32)
    np.testing.assert_allclose(attention_between_words(weights, text, text), [[0.4, 0.2], [0.5, 0.25]], rtol=1e-6)
    initial, highlight = choose_initial_view(weights[None, None], text, text, "ab")
    assert (initial, highlight) == (
        InitialView(0, 0, 0),
        sentence(1, 1, "ab", 20, "c"),
    )


# Positions.


@pytest.mark.parametrize(("kind", "family", "name"), [
    ("translate", "transformer", "sinusoidal"), ("write", "gpt", "learned"), ("tag", "bert", "learned"),
    ("write", "llama", "rotary"), ("write", "nanochat", "rotary"),
])  # fmt: skip
def test_the_position_table_is_the_models_own(kind, family, name):
    body = (
        build_model(kind, family, positions_after_pad=True, pad=3).model.body
        if family == "bert"
        else build_model(kind, family).model.body
    )
    tab = json.loads(json.dumps(positions_tab(body)))
    assert tab["name"] == name
    assert tab["shape"] == [CONTEXT, D // H if name == "rotary" else D]
    table = torch.tensor(numbers(tab["table"], *tab["shape"]))
    if name == "rotary":
        sines, cosines = table.chunk(2, -1)
        assert_close(sines.square() + cosines.square(), torch.ones_like(sines))
    else:
        assert_close(table, body.positions(CONTEXT).detach())
    assert tab["similarity"][0] == 1
    assert len(tab["similarity"]) == CONTEXT
    unit = torch.nn.functional.normalize(table, dim=-1)
    assert_close(tab["similarity"][3], (unit[3:] * unit[:-3]).sum(-1).mean().item(), atol=1e-5, rtol=0)
    assert [sum(bit << i for i, bit in enumerate(row)) for row in tab["binary"]] == list(range(CONTEXT))


def test_a_wide_table_shows_fewer_positions():
    class Wide:
        positions = torch.nn.Module()

    assert positions_tab(Wide()) is None
    assert positions_tab(build_model("translate", "recurrent").model.body) is None
    Wide.positions = SinusoidalPositions(300, 2000)
    tab = positions_tab(Wide())
    assert tab["shape"] == [50, 2000]
    assert_close(torch.tensor(numbers(tab["table"], 50, 2000)), sinusoids(50, 2000))


# Errors and figures.


@pytest.mark.parametrize(("kind", "family", "more"), [
    ("classify", "pooled", {}), ("classify", "pooled", {"aim": {"pooling": "attention"}}), ("tag", "recurrent", {}),
    ("write", "recurrent", {}), ("translate", "recurrent", {"attention": False}),
], ids=str)  # fmt: skip
def test_models_without_attention_are_refused(kind, family, more):
    with pytest.raises(ValueError, match="this model has no attention to look at"):
        attention_maps(trace_example(build_model(kind, family, **more)))


@pytest.mark.parametrize(("kind", "family"), [
    ("write", "gpt"), ("fill", "bert"), ("classify", "bert"), ("tag", "gpt"), ("answer", "bert"), ("regress", "llama"),
    ("embed", "bert"), ("translate", "transformer"),
])  # fmt: skip
def test_a_text_longer_than_the_context_is_refused(kind, family):
    loaded = build_model(kind, family)
    text = TEXT_BY_TASK.get(kind, TEXT) + " The red cat runs." * 20
    with pytest.raises(
        ValueError, match=rf"\d\d+ tokens do not fit this model's context of {CONTEXT}: shorten the text"
    ):
        trace_text(loaded, text, "Tee" if kind == "translate" else None)
    if kind == "translate":
        with pytest.raises(ValueError, match=f"context of {CONTEXT}"):
            trace_text(loaded, "A cat", text)


def test_unsupported_inputs_are_refused():
    with pytest.raises(ValueError, match="context of 5: shorten"):
        trace_text(build_model("embed", "bert", {"limit": 5}), TEXT)
    images = ImagePreprocessor(ImageTransform(8, 1, (0.5,), (0.5,)))
    with pytest.raises(ValueError, match="has no text to look into"):
        trace_text(
            LoadedModel(build_model("classify", "bert").model, Classify(labels=["a", "b"], preprocessor=images)), "a"
        )
    with pytest.raises(ValueError, match="does not translate"):
        trace_text(build_model("write", "gpt"), TEXT, "a target")
    with pytest.raises(ValueError, match="has no tokens"):
        trace_text(
            LoadedModel(build_model("embed", "gpt").model, Embed(preprocessor=TextPreprocessor(TOKENIZERS["w"]))), ""
        )
    with pytest.raises(ValueError, match='no query word "dog" in this text: choose from The, red, cat'):
        attention_maps(trace_text(build_model("write", "gpt"), TEXT), "dog")


def test_figures_accept_any_token(tmp_path):
    trace = trace_text(build_model("write", "gpt"), "It costs $5 or $x^{2$ \\frac 漢字\t🙂")
    files = save_figures(attention_maps(trace), logit_lens(trace), tmp_path / "look.html")
    assert [file.name for file in files] == ["look-self-heads.png", "look-self-map.png", "look-lens.png"]
    assert all(min(Image.open(file).size) > 200 for file in files)
