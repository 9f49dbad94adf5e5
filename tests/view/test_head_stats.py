"""Head statistics are exact for one-hot heads, and an ablated head contributes nothing."""

import json
import math
from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from regard.data.tokenizer_train import GPT_LAYOUT, TokenizerOptions, train_tokenizer
from regard.load import load
from regard.loaded_model import LoadedModel
from regard.modalities.text.preprocessor import TextPreprocessor
from regard.models.gpt import GPT, GPTConfig
from regard.models.recurrent import RecurrentConfig, RecurrentEncoder
from regard.models.seq2seq import Seq2Seq
from regard.tasks.tag import Tag
from regard.tasks.write import Write
from regard.view.head_stats import MEASURES, head_stats, heads_tab, score_ablations
from regard.view.trace import trace_text

T, L, H = 6, 2, 3
STORY = "the cat sat on the mat and the dog sat on the log\n" * 4


def one_hot_attention(positions: list[int], keys: int = T) -> Tensor:
    """Attention to one position per token."""
    return torch.eye(keys)[positions]


@pytest.mark.parametrize(
    ("positions", "first", "previous", "same", "next_", "distance"),
    [
        ([0, 0, 1, 2, 3, 4], 1 / 5, 1, 1 / 6, 0, 5 / 6),  # previous token; the first has none
        ([1, 2, 3, 4, 5, 5], 0, 0, 1 / 6, 1, 5 / 6),  # next token
        ([0, 1, 2, 3, 4, 5], 0, 0, 1, 0, 0),
        ([0, 0, 0, 0, 0, 0], 1, 1 / 5, 1 / 6, 0, 15 / 6),
    ],
)
def test_one_hot_heads_have_shares_of_0_or_1(positions, first, previous, same, next_, distance) -> None:
    result = {name: value.item() for name, value in head_stats(one_hot_attention(positions)).items()}
    expected = {"first": first, "previous": previous, "same": same, "next": next_, "distance": distance, "entropy": 0}
    assert result == pytest.approx(expected)
    assert max(result[name] for name in ("first", "previous", "same", "next")) == 1.0


@pytest.mark.parametrize("keys", [1, 2, 8])
def test_uniform_attention_has_maximal_entropy(keys: int) -> None:
    result = head_stats(torch.full((T, keys), 1 / keys))
    assert result["entropy"].item() == pytest.approx(math.log2(keys))
    for name in ("first", "same") if keys == 1 else ("first", "previous", "same", "next"):
        assert result[name].item() == pytest.approx(1 / keys)


def test_heads_are_measured_independently() -> None:
    torch.manual_seed(0)
    weights = torch.randn(L, H, T, 4).softmax(-1)
    together = head_stats(weights)
    assert [*together] == [*MEASURES]
    for layer in range(L):
        for head in range(H):
            for name, value in head_stats(weights[layer, head]).items():
                assert_close(together[name][layer, head], value)
    assert all(value.isfinite() for value in head_stats(torch.ones(1, 1)).values())


def language_model() -> LoadedModel:
    tokenizer = train_tokenizer([STORY], TokenizerOptions("characters"), GPT_LAYOUT)
    task = Write(preprocessor=TextPreprocessor(tokenizer, documents="lines"), add_bos_token=True)
    torch.manual_seed(0)
    sizes = {"context": 24, "dim": 12, "layers": L, "heads": H, "hidden": 20}
    model = task.head(GPT(GPTConfig(len(tokenizer), **sizes))).eval()
    for weight in model.parameters():
        if weight.dim() > 1:
            nn.init.normal_(weight, std=0.4)
    return LoadedModel(model, task)


def remove_head(loaded: LoadedModel, path: str, head: int) -> LoadedModel:
    """The same model, with the output of this head removed."""
    model = deepcopy(loaded.model)
    attention = model.get_submodule(path)
    wide = attention.out.in_features // attention.heads
    attention.out.weight.data[:, head * wide : (head + 1) * wide] = 0.0
    return LoadedModel(model, loaded.task)


def test_ablation_equals_a_model_without_the_head(tmp_path) -> None:
    loaded, file = language_model(), tmp_path / "story.txt"
    file.write_text(STORY)
    rows = loaded.rows([str(file)])
    result = score_ablations(loaded, rows)
    assert result["score"] == "loss"
    assert result["baseline"] == pytest.approx(loaded.task.score(loaded.model, rows)["loss"], abs=1e-6)
    for layer in range(L):
        for head in range(H):
            without_head = remove_head(loaded, f"body.blocks.{layer}.mixer.inner", head)
            expected = without_head.task.score(without_head.model, rows)["loss"]
            assert result["values"][layer][head] == pytest.approx(expected, abs=1e-4)
            assert abs(expected - result["baseline"]) > 1e-3, "the head must matter"


def test_a_translator_has_encoder_decoder_and_cross_heads(small_run, pairs_file) -> None:
    loaded = load(small_run, device="cpu")
    rows = loaded.rows([str(pairs_file)])[:6]
    tab = json.loads(json.dumps(heads_tab(loaded, "tea and water 7", rows=rows)))
    assert tab["names"] == ["encoder 1", "decoder 1", "cross 1"]
    assert (tab["kind"], tab["layers"], tab["heads"]) == ("heads", 3, 2)
    assert [measure["name"] for measure in tab["measures"]] == [*MEASURES]
    for measure in tab["measures"]:
        assert [len(row) for row in measure["values"]] == [2, 2, 2]
    after = next(measure["values"] for measure in tab["measures"] if measure["name"] == "next")
    assert max(after[1]) == 0, "the decoder is causal"
    assert min(after[0]) > 0
    assert tab["ablation"]["score"] == "loss"
    lost = score_ablations(loaded, rows, "bleu")
    assert lost["baseline"] == loaded.task.score(loaded.model, rows)["bleu"]
    paths = ["body.encoder.0.mixer.inner", "body.decoder.0.mixer.inner", "body.decoder.0.cross.inner"]
    for path, values in zip(paths, lost["values"], strict=True):
        for head, value in enumerate(values):
            without_head = remove_head(loaded, path, head)
            expected = without_head.task.score(without_head.model, rows)
            assert value == pytest.approx(expected["bleu"])
            assert tab["ablation"]["values"][paths.index(path)][head] == pytest.approx(expected["loss"], abs=1e-4)
    assert len({value for values in lost["values"] for value in values}) > 1, "the ablations must differ"
    with pytest.raises(ValueError, match="bleu"):
        score_ablations(loaded, rows, "blue")


def test_the_statistics_depend_on_the_text() -> None:
    loaded = language_model()
    short, long = (heads_tab(loaded, text)["measures"] for text in ("the cat", "on the mat and the log"))
    assert short != long
    assert heads_tab(loaded, "the cat")["names"] == ["block 1", "block 2"]


def test_without_rows_the_ablation_is_a_kl_divergence() -> None:
    loaded, text = language_model(), "the cat sat"
    result = heads_tab(loaded, text)["ablation"]
    assert result["baseline"] == 0
    before = trace_text(loaded, text).logits.softmax(-1)
    for layer in range(L):
        for head in range(H):
            after = trace_text(remove_head(loaded, f"body.blocks.{layer}.mixer.inner", head), text).logits.softmax(-1)
            bits = (before * (before / after).log2()).sum(-1).mean().item()
            assert result["values"][layer][head] == pytest.approx(bits, abs=1e-4)
            assert bits > 1e-3, "the head must matter"


def test_the_default_target_is_the_translation_of_the_full_model(small_run) -> None:
    loaded = load(small_run, device="cpu")
    own = loaded("tea and water 7")
    assert heads_tab(loaded, "tea and water 7")["ablation"] == heads_tab(loaded, "tea and water 7", own)["ablation"]


def test_a_recurrent_translator_has_one_head(small_run) -> None:
    task = load(small_run, device="cpu").task
    config = RecurrentConfig(vocab=len(task.tokenizer), dim=8, layers=1, pad=task.tokenizer.pad_token_id)
    tab = heads_tab(LoadedModel(task.head(Seq2Seq(config)).eval(), task), "tea and water", "Tee und Wasser")
    assert (tab["names"], tab["heads"]) == (["cross 1"], 1)


def test_a_model_without_attention_has_no_tab() -> None:
    tokenizer = train_tokenizer([STORY], TokenizerOptions("characters"))
    task = Tag(preprocessor=TextPreprocessor(tokenizer), tags=["a", "b"])
    model = task.head(RecurrentEncoder(RecurrentConfig(len(tokenizer), dim=8, layers=1))).eval()
    assert heads_tab(LoadedModel(model, task), "the cat") is None
