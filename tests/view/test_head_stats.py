"""Roles: of heads that do one thing only, exactly that is said; and a head that is removed says nothing."""

import json
import math
from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from regard.data.pieces import WRITING, Pieces, learn
from regard.load import Loaded, load
from regard.models.gpt import GPT, GPTConfig
from regard.models.recurrent import Reader, RecurrentConfig
from regard.models.seq2seq import Seq2Seq
from regard.tasks.tag import Tag
from regard.tasks.write import Write
from regard.view.head_stats import MEASURES, head_roles, heads_tab, without_each_head
from regard.view.trace import run

T, L, H = 6, 2, 3
STORY = "the cat sat on the mat and the dog sat on the log\n" * 4


def looking_at(places: list[int], answers: int = T) -> Tensor:
    """A head that looks at one place for each token."""
    return torch.eye(answers)[places]


@pytest.mark.parametrize(
    ("places", "first", "previous", "same", "next_", "distance"),
    [
        ([0, 0, 1, 2, 3, 4], 1 / 5, 1, 1 / 6, 0, 5 / 6),  # at the one before; the first has none
        ([1, 2, 3, 4, 5, 5], 0, 0, 1 / 6, 1, 5 / 6),  # at the one after
        ([0, 1, 2, 3, 4, 5], 0, 0, 1, 0, 0),
        ([0, 0, 0, 0, 0, 0], 1, 1 / 5, 1 / 6, 0, 15 / 6),
    ],
)
def test_a_head_that_does_one_thing(places, first, previous, same, next_, distance) -> None:
    found = {name: value.item() for name, value in head_roles(looking_at(places)).items()}
    wanted = {"first": first, "previous": previous, "same": same, "next": next_, "distance": distance, "entropy": 0}
    assert found == pytest.approx(wanted)
    assert max(found[name] for name in ("first", "previous", "same", "next")) == 1.0


@pytest.mark.parametrize("answers", [1, 2, 8])
def test_a_head_that_looks_everywhere_takes_all_bits(answers: int) -> None:
    found = head_roles(torch.full((T, answers), 1 / answers))
    assert found["entropy"].item() == pytest.approx(math.log2(answers))
    for name in ("first", "same") if answers == 1 else ("first", "previous", "same", "next"):
        assert found[name].item() == pytest.approx(1 / answers)


def test_heads_are_measured_each_by_itself_and_one_token_is_enough() -> None:
    torch.manual_seed(0)
    weights = torch.randn(L, H, T, 4).softmax(-1)
    together = head_roles(weights)
    assert [*together] == [*MEASURES]
    for layer in range(L):
        for head in range(H):
            for name, value in head_roles(weights[layer, head]).items():
                assert_close(together[name][layer, head], value)
    assert all(value.isfinite() for value in head_roles(torch.ones(1, 1)).values())


def writer() -> Loaded:
    tokenizer = learn([STORY], Pieces("characters"), WRITING)
    task = Write(tokenizer=tokenizer, documents="lines", opens=True)
    torch.manual_seed(0)
    sizes = {"context": 24, "dim": 12, "layers": L, "heads": H, "hidden": 20}
    model = task.head(GPT(GPTConfig(len(tokenizer), **sizes))).eval()
    for weight in model.parameters():
        if weight.dim() > 1:
            nn.init.normal_(weight, std=0.4)
    return Loaded(model, task)


def cut_off(loaded: Loaded, path: str, head: int) -> Loaded:
    """The same model, with nothing of this head in what its layer says."""
    model = deepcopy(loaded.model)
    attention = model.get_submodule(path)
    wide = attention.out.in_features // attention.heads
    attention.out.weight.data[:, head * wide : (head + 1) * wide] = 0.0
    return Loaded(model, loaded.task)


def test_without_a_head_the_score_is_that_of_a_model_that_never_had_it(tmp_path) -> None:
    loaded, file = writer(), tmp_path / "story.txt"
    file.write_text(STORY)
    rows = loaded.rows([str(file)])
    found = without_each_head(loaded, rows)
    assert found["score"] == "loss"
    assert found["whole"] == pytest.approx(loaded.task.score(loaded.model, rows)["loss"], abs=1e-6)
    for layer in range(L):
        for head in range(H):
            lame = cut_off(loaded, f"body.blocks.{layer}.mixer.inner", head)
            wanted = lame.task.score(lame.model, rows)["loss"]
            assert found["values"][layer][head] == pytest.approx(wanted, abs=1e-4)
            assert abs(wanted - found["whole"]) > 1e-3, "a head that changes nothing proves nothing"


def test_a_translator_has_heads_that_read_write_and_look_across(small_run, pairs_file) -> None:
    loaded = load(small_run, device="cpu")
    rows = loaded.rows([str(pairs_file)])[:6]
    tab = json.loads(json.dumps(heads_tab(loaded, "tea and water 7", rows=rows)))
    assert tab["names"] == ["encoder 1", "decoder 1", "cross 1"]
    assert (tab["kind"], tab["layers"], tab["heads"]) == ("heads", 3, 2)
    assert [measure["name"] for measure in tab["measures"]] == [*MEASURES]
    for measure in tab["measures"]:
        assert [len(row) for row in measure["values"]] == [2, 2, 2]
    after = next(measure["values"] for measure in tab["measures"] if measure["name"] == "next")
    assert max(after[1]) == 0, "the decoder sees nothing of what comes next"
    assert min(after[0]) > 0
    assert tab["without"]["score"] == "loss"
    lost = without_each_head(loaded, rows, "bleu")
    assert lost["whole"] == loaded.task.score(loaded.model, rows)["bleu"]
    paths = ["body.encoder.0.mixer.inner", "body.decoder.0.mixer.inner", "body.decoder.0.cross.inner"]
    for path, values in zip(paths, lost["values"], strict=True):
        for head, value in enumerate(values):
            lame = cut_off(loaded, path, head)
            wanted = lame.task.score(lame.model, rows)
            assert value == pytest.approx(wanted["bleu"])
            assert tab["without"]["values"][paths.index(path)][head] == pytest.approx(wanted["loss"], abs=1e-4)
    assert len({value for values in lost["values"] for value in values}) > 1, "what says the same proves nothing"
    with pytest.raises(ValueError, match="bleu"):
        without_each_head(loaded, rows, "blue")


def test_the_tab_measures_the_text_that_is_given() -> None:
    loaded = writer()
    one, other = (heads_tab(loaded, text)["measures"] for text in ("the cat", "on the mat and the log"))
    assert one != other
    assert heads_tab(loaded, "the cat")["names"] == ["block 1", "block 2"]


def test_without_rows_it_tells_how_far_the_answers_to_this_text_move() -> None:
    loaded, text = writer(), "the cat sat"
    found = heads_tab(loaded, text)["without"]
    assert found["whole"] == 0
    before = run(loaded, text).logits.softmax(-1)
    for layer in range(L):
        for head in range(H):
            after = run(cut_off(loaded, f"body.blocks.{layer}.mixer.inner", head), text).logits.softmax(-1)
            bits = (before * (before / after).log2()).sum(-1).mean().item()
            assert found["values"][layer][head] == pytest.approx(bits, abs=1e-4)
            assert bits > 1e-3, "a head that changes nothing proves nothing"


def test_a_translator_moves_while_it_is_given_its_own_words(small_run) -> None:
    loaded = load(small_run, device="cpu")
    own = loaded("tea and water 7")
    assert heads_tab(loaded, "tea and water 7")["without"] == heads_tab(loaded, "tea and water 7", own)["without"]


def test_the_attention_of_a_recurrent_translator_is_one_head(small_run) -> None:
    task = load(small_run, device="cpu").task
    config = RecurrentConfig(vocab=len(task.tokenizer), dim=8, layers=1, pad=task.tokenizer.pad)
    tab = heads_tab(Loaded(task.head(Seq2Seq(config)).eval(), task), "tea and water", "Tee und Wasser")
    assert (tab["names"], tab["heads"]) == (["cross 1"], 1)


def test_a_model_without_heads_has_no_tab() -> None:
    tokenizer = learn([STORY], Pieces("characters"))
    task = Tag(tokenizer=tokenizer, tags=["a", "b"])
    model = task.head(Reader(RecurrentConfig(len(tokenizer), dim=8, layers=1))).eval()
    assert heads_tab(Loaded(model, task), "the cat") is None
