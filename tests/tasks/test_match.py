"""Pictures and texts find each other, no pair stands in the way of its like, and the label that fits best wins."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch.testing import assert_close

from regard.data.bundled import shapes
from regard.data.images import Captioned
from regard.load import load
from regard.models.clip import CLIP, CLIPConfig
from regard.parts.heads import Model
from regard.tasks.contrast import alike, contrast, distinct, places
from regard.tasks.match import TOGETHER, Match, Prompting
from regard.training.loop import Plan, Progress, learn
from regard.training.settings import options, settle
from regard.training.train import carry_out, planned, prepare, start

CONTEXT, E = 24, 7
TOWERS = {
    "dim": 16,
    "layers": 1,
    "heads": 2,
    "image_dim": 24,
    "image_layers": 1,
    "image_heads": 3,
    "patch": 8,
    "joint": E,
}
READS = {
    "pieces": "bpe",
    "vocab": None,
    "lowercase": False,
    "side": None,
    "shift": 0,
    "flip": False,
    "turn": 0.0,
    "zoom": 0.0,
    "tint": 0.0,
}
SCENES = [Captioned(one.pixels, one.caption, "shapes", i) for i, one in enumerate(shapes.shapes(60), 1)]


@pytest.fixture(scope="module")
def task() -> Match:
    return Match.fit(SCENES, "matches", READS, {})


def model_of(task: Match) -> Model:
    torch.manual_seed(1)
    sizes = {name: value for name, value in task.sizes().items() if name in CLIPConfig.__dataclass_fields__}
    return task.head(CLIP(CLIPConfig(context=CONTEXT, **TOWERS, **sizes))).eval()


@pytest.fixture(scope="module")
def taught(task) -> Model:
    """A model that has learnt twelve pairs by heart."""
    model = model_of(task)
    plan = Plan(steps=100, warmup=5, rate=0.02, average=0.0)
    for _ in learn(Progress.new(model, plan), task, task.prepare(SCENES[:12], CONTEXT), plan):
        pass
    return model.eval()


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> list[str]:
    folder = tmp_path_factory.mktemp("pictures")
    names = [str(folder / f"{row.line}.png") for row in SCENES]
    for name, row in zip(names, SCENES, strict=True):
        Image.fromarray(row.pixels).save(name)
    return names


# The loss.


def test_the_loss_is_the_mean_of_both_ways_without_those_that_are_alike():
    torch.manual_seed(1)
    scores = torch.randn(5, 5, dtype=torch.float64)
    skip = alike(np.array([[0, 1, 2, 3, 0], [0, 1, 1, 2, 3]]))
    assert {*map(tuple, skip.nonzero().tolist())} == {(0, 4), (4, 0), (1, 2), (2, 1)}
    total = 0.0
    for i in range(5):
        others = [j for j in range(5) if not skip[i, j]]
        across = sum(math.exp(scores[i, j]) for j in others)
        down = sum(math.exp(scores[j, i]) for j in others)
        total += (math.log(across) + math.log(down)) / 2 - scores[i, i].item()
    assert contrast(scores, skip).item() == pytest.approx(total)


def test_a_text_that_belongs_to_a_picture_is_no_wrong_answer_wherever_it_stands():
    """Picture 5 has the texts 7 and 8, picture 6 has text 8 as well: for 5 it is right in that pair too."""
    skip = alike(np.array([[5, 5, 6, 4], [7, 8, 8, 9]]))
    assert {*map(tuple, skip.nonzero().tolist())} == {(0, 1), (1, 0), (0, 2), (1, 2), (2, 1)}


@given(st.data())
def test_a_text_is_no_wrong_answer_if_it_belongs_to_the_picture_anywhere_in_the_data(data):
    pairs = np.array(data.draw(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 7)), min_size=1, max_size=30))).T
    rows = np.array(data.draw(st.lists(st.integers(0, pairs.shape[1] - 1), min_size=1, max_size=12, unique=True)))
    known = {*zip(*pairs.tolist(), strict=True)}
    for i, one in enumerate(rows):
        for j, other in enumerate(rows):
            wanted = i != j and (pairs[0, one], pairs[1, other]) in known
            assert alike(pairs, rows)[i, j] == wanted


def test_what_is_the_same_is_held_once():
    things, numbers = distinct(["b", "a", "B", "c"], str.lower)
    assert (things, numbers.tolist()) == (["b", "a", "c"], [0, 1, 0, 2])


def test_the_place_is_that_of_the_best_right_answer_and_ties_count_against_it():
    cosines = torch.tensor([[0.9, 0.5, 0.1], [0.3, 0.3, 0.1], [0.2, math.nan, 0.1]])
    right = torch.tensor([[False, True, True], [True, False, False], [True, False, False]])
    assert places(cosines, right).tolist() == [2, 2, 2]
    right = torch.tensor([[True, True, False], [False, False, True], [False, True, False]])
    assert places(cosines, right).tolist() == [1, 3, 3]


def test_a_picture_with_many_captions_is_held_once(task):
    rows = [SCENES[i % 3]._replace(caption=SCENES[i].caption) for i in range(12)]
    examples = task.prepare(rows, CONTEXT)
    assert (len(examples.drawn.rows), len(examples.written.rows), examples.units) == (3, 12, 12)
    batch = task.batch(examples, np.array([4, 2, 1]))
    plain = task.batch(task.prepare([rows[4], rows[2], rows[1]], CONTEXT), np.arange(3))
    assert all(map(torch.equal, batch, plain))


def test_pairs_with_one_caption_or_one_picture_are_not_told_apart(task):
    one, *_ = SCENES
    said = [row._replace(caption=one.caption) for row in SCENES[:4]]
    seen = [row._replace(pixels=one.pixels) for row in SCENES[:4]]
    for rows in said, seen:
        batch = task.batch(task.prepare(rows, CONTEXT), np.arange(4))
        loss = task.loss(model_of(task), batch)
        assert (loss.total.item(), loss.count) == (0.0, 4)


def test_a_batch_is_of_pictures_and_texts_and_the_loss_sums_over_it(task):
    rows = np.array([3, 0, 5, 8, 2])
    examples = task.prepare(SCENES, CONTEXT)
    batch = task.batch(examples, rows)
    T = int(examples.written.lengths[rows].max())
    assert batch.pixels.shape == (5, 3, shapes.SIDE, shapes.SIDE)
    assert (batch.ids.shape, batch.mask.shape, batch.alike.shape) == ((5, T), (5, 1, 1, T), (5, 5))
    model = model_of(task)
    loss = task.loss(model, batch)
    assert loss.count == 5
    assert_close(loss.total, contrast(model.body(batch.pixels, batch.ids, batch.mask), batch.alike))
    loss.total.backward()
    assert all(weight.grad is not None for weight in model.parameters())


def test_texts_of_all_lengths_meet_in_a_batch(task):
    examples = task.prepare(SCENES, CONTEXT)
    batches = examples.epoch(1000, seed=1, epoch=0)
    assert [len(batch) for batch in batches] == [20, 20, 20], "a picture counts as 50 tokens"
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(SCENES)))
    lengths = examples.written.lengths[:, 0]
    assert all(np.ptp(lengths[batch]) > np.ptp(lengths) / 2 for batch in batches)


def test_a_long_caption_is_cut_and_counts(task):
    long = [row._replace(caption=f"{row.caption} " * 20) for row in SCENES[:3]]
    assert task.prepare(long, CONTEXT).written.lengths.max() == CONTEXT
    assert task.prepare(long, 300).lengths.min() > 100


# What is found.


def test_what_is_learnt_by_heart_is_found_both_ways(task, taught):
    scores, before = (task.score(model, SCENES[:12]) for model in (taught, model_of(task)))
    assert all(value == 100.0 for name, value in scores.items() if "recall" in name)
    assert scores["answers"] == [row.caption for row in SCENES[:12]]
    assert scores["loss"] < 0.3 < before["loss"]
    assert task.rank(scores) > task.rank(before)
    for row in SCENES[:12]:
        assert task.search(taught, SCENES[:12], row.caption)[0][0] == row
        assert task.search(taught, SCENES[:12], row.pixels)[0][0] is row


def test_the_recall_is_what_search_finds(task, taught):
    rows = SCENES[:30]
    scores = task.score(taught, rows)
    for name, query in ("text", "pixels"), ("picture", "caption"):
        for k in (1, 5, 10):
            right = [
                row.line in [one.line for one, _ in task.search(taught, rows, getattr(row, query))[:k]] for row in rows
            ]
            assert scores[f"{name}_recall_at_{k}"] == pytest.approx(100 * np.mean(right))
    assert scores["recall_at_1"] == (scores["text_recall_at_1"] + scores["picture_recall_at_1"]) / 2
    assert 0 < scores["recall_at_1"] < 100


def test_who_is_the_same_to_the_model_does_not_stand_before_one(task, taught):
    same_text = [row._replace(pixels=255 - row.pixels, caption=f" {row.caption} ") for row in SCENES[:12]]
    assert task.score(taught, [*SCENES[:12], *same_text])["text_recall_at_1"] >= 50.0
    assert task.score(taught, [*SCENES[:12], *SCENES[:12]])["recall_at_1"] == 100.0


def test_recall_counts_every_text_and_every_picture_once(task, taught):
    """A wrong text stands before the right one once, though many pictures have it, and so for pictures."""
    one, two, *others = SCENES[:12]
    told_alike = [one._replace(caption=two.caption), *(row._replace(caption=one.caption) for row in others)]
    shown_alike = [two._replace(pixels=one.pixels), *(row._replace(pixels=two.pixels) for row in others)]
    for name, rows in ("text", told_alike), ("picture", shown_alike):
        scores = task.score(taught, rows)
        assert scores[f"{name}_recall_at_1"] < 100.0
        assert scores[f"{name}_recall_at_5"] == 100.0, "there are only two"


def test_any_caption_of_a_picture_is_a_right_answer(task, taught):
    """As it is counted for data with five captions a picture."""
    rows = SCENES[:12]
    nonsense = [row._replace(caption=f"star star {row.line} star") for row in rows]
    scores = task.score(taught, [*nonsense, *rows])
    assert scores["text_recall_at_1"] == task.score(taught, rows)["text_recall_at_1"] == 100.0
    assert scores["answers"] == [row.caption for row in [*rows, *rows]]


def test_the_loss_of_a_check_is_that_of_training_on_the_same_pairs(task, taught):
    rows = [*SCENES[: TOGETHER - 3], *SCENES[:3]]
    batch = task.batch(task.prepare(rows, CONTEXT), np.arange(len(rows)))
    loss = task.loss(taught, batch)
    assert task.score(taught, rows)["loss"] == pytest.approx(loss.total.item() / loss.count, rel=1e-4)


def test_pictures_are_moved_in_training_only(task, taught):
    moved, rows = replace(task, views={"shift": 4, "turn": 20.0}), np.arange(9)
    plain, other = (one.batch(one.prepare(SCENES, CONTEXT), rows) for one in (task, moved))
    assert not torch.equal(plain.pixels, other.pixels)
    assert torch.equal(plain.ids, other.ids)
    assert moved.score(taught, SCENES)["loss"] == task.score(taught, SCENES)["loss"]


def test_a_vector_does_not_depend_on_what_is_embedded_beside_it(task, taught):
    texts, pictures = [row.caption for row in SCENES[:9]], [row.pixels for row in SCENES[:9]]
    for embed, things in (task.embed_texts, texts), (task.embed_pictures, pictures):
        together = embed(taught, things)
        assert together.shape == (9, E)
        assert_close(together.norm(dim=-1), torch.ones(9))
        assert_close(torch.cat([embed(taught, [one]) for one in things]), together)


def test_a_line_is_a_picture_if_there_is_such_a_file(task, taught, files):
    lines = [SCENES[2].caption, files[2], "nowhere.png"]
    text, picture, name = task.embed(taught, lines)
    assert_close(torch.tensor([text, name]), task.embed_texts(taught, [lines[0], lines[2]]))
    assert_close(torch.tensor([picture]), task.embed_pictures(taught, [SCENES[2].pixels]))


# Labels.


def test_the_caption_of_a_picture_fits_best(task, taught, files):
    labels = [row.caption for row in SCENES[:12]]
    lines = ["\t".join((file, *labels)) for file in files[:12]]
    for label, best in zip(labels, task.predict(taught, lines, Prompting(num_return=99)), strict=True):
        assert best[0].text == label
        assert sorted(answer.text for answer in best) == sorted(labels)
        assert sum(answer.score for answer in best) == pytest.approx(1)
        assert [answer.score for answer in best] == pytest.approx([math.exp(answer.logp) for answer in best])
    alone = [next(task.predict(taught, [line], Prompting()))[0].text for line in lines]
    assert alone == labels


def test_only_the_labels_of_a_line_are_asked_for_and_each_once(task, taught, files):
    a, b, c = (row.caption for row in SCENES[:3])
    lines = [f"{files[0]}\t{a}\t{b}", f"{files[0]}\t{c}\t{a}\t{c}", f"{files[0]}\t{c}"]
    best = [*task.predict(taught, lines, Prompting(num_return=5))]
    assert [[answer.text for answer in some] for some in best] == [[a, b], [a, c], [c]]
    assert best[2][0].score == 1.0


def test_a_label_is_put_into_the_prompt(task, taught, files):
    head, tail = SCENES[0].caption.split(" ", 1)
    labels = [tail, *(row.caption.split(" ", 1)[1] for row in SCENES[1:5])]
    [asked] = task.predict(taught, ["\t".join((files[0], *labels))], Prompting(5, prompt=f"{head} {{}}"))
    whole = [f"{head} {label}" for label in labels]
    [wanted] = task.predict(taught, ["\t".join((files[0], *whole))], Prompting(5))
    assert [(f"{head} {answer.text}", answer.logp) for answer in asked] == [(a.text, a.logp) for a in wanted]
    with pytest.raises(ValueError, match=r"prompt must be a text with \{\} in it"):
        Prompting(prompt="a photo")


# Folders, and what does not fit.


def test_a_saved_model_answers_as_before(tmp_path, files):
    folder = Path(files[0]).parent
    table = folder / "captions.tsv"
    table.write_text("".join(f"{row.line}.png\t{row.caption}\n" for row in SCENES))
    given = {"steps": 5, "checks": 1, "held_out": 0.2, "context": CONTEXT, **TOWERS}
    job = planned(prepare(start("match", data=str(folder), out=str(tmp_path / "run"), **given)))
    for step in carry_out(job):
        last = step
    assert "recall_at_1" in last.scores
    loaded = load(tmp_path / "run", device="cpu")
    assert loaded.task.pictures == job.task.pictures
    line = "\t".join((files[4], *(row.caption for row in SCENES[:9])))
    before = [*job.task.predict(job.progress.model.eval(), [line], Prompting(num_return=9))]
    assert [*loaded.generate([line], num_return=9)] == before
    assert loaded(line, prompt="{} or so") in [row.caption for row in SCENES[:9]]
    scores = loaded.task.score(loaded.model, loaded.rows([str(table)]))
    assert scores["loss"] == job.task.score(job.progress.model, SCENES)["loss"]


def test_misfits_are_refused(task, taught, files):
    for line in (files[0], f"{files[0]}\t", f"{files[0]}\ta\t \tb"):
        with pytest.raises(ValueError, match="input:3: give a picture file and labels, with tabs between, not '"):
            list(task.predict(taught, [f"{files[0]}\ta", line], Prompting(), first=1))
    with pytest.raises(ValueError, match=r"nowhere\.png: no such file"):
        list(task.predict(taught, ["nowhere.png\ta\tb"], Prompting()))
    with pytest.raises(ValueError, match="every picture has the caption 'x'"):
        Match.fit([row._replace(caption="x") for row in SCENES], "matches", READS, {})
    with pytest.raises(ValueError, match="match needs a model that has a tower for images and one for texts"):
        settle("match", "vit")
    assert [name for name, option in options("match", "clip", "tiny").items() if not option.help] == []
