"""Match: the loss equals its formula, false negatives are ignored, and the best label or partner is retrieved."""

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

from regard.data.rows import Row
from regard.data.tokenizer_train import TokenizerOptions
from regard.load import load
from regard.modalities.image.image_augment import ImageAugment
from regard.modalities.image.image_files import digest
from regard.modalities.image.modality import ImageModality
from regard.modalities.protocols import FitOptions, Target
from regard.modalities.synthetic import shapes
from regard.modalities.text.modality import TextModality
from regard.models.clip import CLIP, CLIPConfig
from regard.options import OptionGroups
from regard.parts.heads import Model
from regard.tasks.contrastive import (
    EVAL_BATCH,
    contrastive_loss,
    false_negatives,
    first_positions,
    retrieval_ranks,
    unique_indices,
)
from regard.tasks.match import Match, MatchOptions
from regard.training.file_job import FileJob
from regard.training.loop import Progress, TrainOptions, train_steps
from regard.training.settings import options, resolve
from regard.training.start import make_settings

CONTEXT, E = 24, 7
TOWERS = {
    "dim": 16,
    "layers": 1,
    "heads": 2,
    "image_dim": 24,
    "image_layers": 1,
    "image_heads": 3,
    "patch_size": 8,
    "projection_dim": E,
}
NO_AUGMENTATION = ImageAugment(shift=0, flip=False, rotate=0.0, zoom=0.0, color_jitter=0.0)
HOW = FitOptions(Target.TEXT, OptionGroups(TokenizerOptions("bpe"), NO_AUGMENTATION))
SCENES = [Row(row.pixels, row.caption, "shapes", i, digest(row.pixels)) for i, row in enumerate(shapes.shapes(60), 1)]


def fit_match(rows) -> Match:
    return Match.fit(rows, ImageModality().fit(rows, HOW), TextModality().fit(rows, HOW))


def with_pixels(row, pixels) -> Row:
    return row._replace(input=pixels, key=digest(pixels))


def tensors(batch) -> list:
    return [*batch.inputs.arguments, *batch.texts.arguments, batch.false_negatives]


@pytest.fixture(scope="module")
def task() -> Match:
    return fit_match(SCENES)


def make_model(task: Match) -> Model:
    torch.manual_seed(1)
    sizes = {name: value for name, value in task.sizes().items() if name in CLIPConfig.__dataclass_fields__}
    return task.head(CLIP(CLIPConfig(context=CONTEXT, **TOWERS, **sizes))).eval()


@pytest.fixture(scope="module")
def trained(task) -> Model:
    """A model that overfits twelve pairs."""
    model = make_model(task)
    train_options = TrainOptions(steps=100, warmup_steps=5, lr=0.02, ema=0.0)
    for _ in train_steps(Progress.new(model, train_options), task, task.encode(SCENES[:12], CONTEXT), train_options):
        pass
    return model.eval()


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> list[str]:
    folder = tmp_path_factory.mktemp("pictures")
    names = [str(folder / f"{row.line}.png") for row in SCENES]
    for name, row in zip(names, SCENES, strict=True):
        Image.fromarray(row.input).save(name)
    return names


# The loss.


def test_loss_is_the_mean_of_both_directions_without_false_negatives():
    torch.manual_seed(1)
    scores = torch.randn(5, 5, dtype=torch.float64)
    ignore = false_negatives(np.array([[0, 1, 2, 3, 0], [0, 1, 1, 2, 3]]))
    assert {*map(tuple, ignore.nonzero().tolist())} == {(0, 4), (4, 0), (1, 2), (2, 1)}
    total = 0.0
    for i in range(5):
        others = [j for j in range(5) if not ignore[i, j]]
        across = sum(math.exp(scores[i, j]) for j in others)
        down = sum(math.exp(scores[j, i]) for j in others)
        total += (math.log(across) + math.log(down)) / 2 - scores[i, i].item()
    assert contrastive_loss(scores, ignore).item() == pytest.approx(total)


def test_a_text_of_two_images_is_a_false_negative():
    """Image 5 has the texts 7 and 8, image 6 has text 8 as well: a false negative of image 5."""
    ignore = false_negatives(np.array([[5, 5, 6, 4], [7, 8, 8, 9]]))
    assert {*map(tuple, ignore.nonzero().tolist())} == {(0, 1), (1, 0), (0, 2), (1, 2), (2, 1)}


@given(st.data())
def test_false_negatives_are_pairs_anywhere_in_the_data(data):
    pairs = np.array(data.draw(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 7)), min_size=1, max_size=30))).T
    rows = np.array(data.draw(st.lists(st.integers(0, pairs.shape[1] - 1), min_size=1, max_size=12, unique=True)))
    positives = {*zip(*pairs.tolist(), strict=True)}
    for i, left in enumerate(rows):
        for j, right in enumerate(rows):
            expected = i != j and (pairs[0, left], pairs[1, right]) in positives
            assert false_negatives(pairs, rows)[i, j] == expected


def test_unique_indices():
    numbers = unique_indices([text.lower() for text in ("b", "a", "B", "c")])
    assert (first_positions(numbers), numbers.tolist()) == ([0, 1, 3], [0, 1, 0, 2])


def test_the_rank_is_that_of_the_best_relevant_item_and_ties_count_against_it():
    cosines = torch.tensor([[0.9, 0.5, 0.1], [0.3, 0.3, 0.1], [0.2, math.nan, 0.1]])
    right = torch.tensor([[False, True, True], [True, False, False], [True, False, False]])
    assert retrieval_ranks(cosines, right).tolist() == [2, 2, 2]
    right = torch.tensor([[True, True, False], [False, False, True], [False, True, False]])
    assert retrieval_ranks(cosines, right).tolist() == [1, 3, 3]


def test_an_image_with_many_captions_is_stored_once(task):
    rows = [SCENES[i % 3]._replace(target=SCENES[i].target) for i in range(12)]
    examples = task.encode(rows, CONTEXT)
    assert (examples.inputs.units, examples.texts.units, examples.units) == (3, 12, 12)
    batch = task.collate(examples, np.array([4, 2, 1]))
    plain = task.collate(task.encode([rows[4], rows[2], rows[1]], CONTEXT), np.arange(3))
    assert all(map(torch.equal, tensors(batch), tensors(plain)))


def test_pairs_with_the_same_caption_or_image_have_no_loss(task):
    same_text = [row._replace(target=SCENES[0].target) for row in SCENES[:4]]
    same_image = [with_pixels(row, SCENES[0].input) for row in SCENES[:4]]
    for rows in same_text, same_image:
        batch = task.collate(task.encode(rows, CONTEXT), np.arange(4))
        loss = task.loss(make_model(task), batch)
        assert (loss.total.item(), loss.count) == (0.0, 4)


def test_shapes_of_a_batch_and_its_loss(task):
    rows = np.array([3, 0, 5, 8, 2])
    examples = task.encode(SCENES, CONTEXT)
    batch = task.collate(examples, rows)
    T = int(examples.texts.lengths[rows].max())
    assert batch.inputs.x.shape == (5, 3, shapes.SIDE, shapes.SIDE)
    assert (batch.texts.x.shape, batch.texts.mask.shape, batch.false_negatives.shape) == ((5, T), (5, 1, 1, T), (5, 5))
    model = make_model(task)
    loss = task.loss(model, batch)
    assert loss.count == 5
    scores = model.body(batch.inputs.x, *batch.texts.arguments)
    assert_close(loss.total, contrastive_loss(scores, batch.false_negatives))
    loss.total.backward()
    assert all(weight.grad is not None for weight in model.parameters())


def test_a_batch_holds_texts_of_all_lengths(task):
    examples = task.encode(SCENES, CONTEXT)
    batches = examples.epoch(1000, seed=1, epoch=0)
    assert [len(batch) for batch in batches] == [20, 20, 20], "an image counts as 50 tokens"
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(SCENES)))
    lengths = examples.texts.lengths[:, 0]
    assert all(np.ptp(lengths[batch]) > np.ptp(lengths) / 2 for batch in batches)


def test_a_long_caption_is_truncated(task):
    long = [row._replace(target=f"{row.target} " * 20) for row in SCENES[:3]]
    assert task.encode(long, CONTEXT).texts.lengths.max() == CONTEXT
    assert task.encode(long, 300).lengths.min() > 100


# Retrieval.


def test_overfitted_pairs_are_retrieved_in_both_directions(task, trained):
    scores, before = (task.score(model, SCENES[:12]) for model in (trained, make_model(task)))
    assert all(value == 100.0 for name, value in scores.items() if "recall" in name)
    assert scores["predictions"] == [row.target for row in SCENES[:12]]
    assert scores["loss"] < 0.3 < before["loss"]
    assert task.rank(scores) > task.rank(before)
    for row in SCENES[:12]:
        assert task.search(trained, SCENES[:12], row.target)[0][0] is row
        assert task.search(trained, SCENES[:12], row)[0][0] is row


def test_recall_equals_search(task, trained):
    rows = SCENES[:30]
    scores = task.score(trained, rows)
    for name, query in ("text", lambda row: row), ("image", lambda row: row.target):
        for k in (1, 5, 10):
            right = [
                row.line in [match.line for match, _ in task.search(trained, rows, query(row))[:k]] for row in rows
            ]
            assert scores[f"{name}_recall_at_{k}"] == pytest.approx(100 * np.mean(right))
    assert scores["recall_at_1"] == (scores["text_recall_at_1"] + scores["image_recall_at_1"]) / 2
    assert 0 < scores["recall_at_1"] < 100


def test_duplicates_do_not_lower_recall(task, trained):
    same_text = [with_pixels(row, 255 - row.input)._replace(target=f" {row.target} ") for row in SCENES[:12]]
    assert task.score(trained, [*SCENES[:12], *same_text])["text_recall_at_1"] >= 50.0
    assert task.score(trained, [*SCENES[:12], *SCENES[:12]])["recall_at_1"] == 100.0


def test_recall_counts_every_text_and_every_image_once(task, trained):
    """A wrong text ranks before the right one once, though many images have it; and vice versa."""
    first, second, *others = SCENES[:12]
    wrong_texts = [first._replace(target=second.target), *(row._replace(target=first.target) for row in others)]
    wrong_images = [with_pixels(second, first.input), *(with_pixels(row, second.input) for row in others)]
    for name, rows in ("text", wrong_texts), ("image", wrong_images):
        scores = task.score(trained, rows)
        assert scores[f"{name}_recall_at_1"] < 100.0
        assert scores[f"{name}_recall_at_5"] == 100.0, "there are only two"


def test_any_caption_of_an_image_is_relevant(task, trained):
    """As in data with five captions for each image."""
    rows = SCENES[:12]
    nonsense = [row._replace(target=f"star star {row.line} star") for row in rows]
    scores = task.score(trained, [*nonsense, *rows])
    assert scores["text_recall_at_1"] == task.score(trained, rows)["text_recall_at_1"] == 100.0
    assert scores["predictions"] == [row.target for row in [*rows, *rows]]


def test_score_and_training_have_the_same_loss(task, trained):
    rows = [*SCENES[: EVAL_BATCH - 3], *SCENES[:3]]
    batch = task.collate(task.encode(rows, CONTEXT), np.arange(len(rows)))
    loss = task.loss(trained, batch)
    assert task.score(trained, rows)["loss"] == pytest.approx(loss.total.item() / loss.count, rel=1e-4)


def test_images_are_augmented_in_training_only(task, trained):
    augmentation = replace(task.preprocessor, augmentation=ImageAugment(shift=4, rotate=20.0))
    moved, rows = replace(task, preprocessor=augmentation), np.arange(9)
    plain, moved_batch = (row.collate(row.encode(SCENES, CONTEXT), rows) for row in (task, moved))
    assert not torch.equal(plain.inputs.x, moved_batch.inputs.x)
    assert torch.equal(plain.texts.x, moved_batch.texts.x)
    assert moved.score(trained, SCENES)["loss"] == task.score(trained, SCENES)["loss"]


def test_vectors_do_not_depend_on_the_batch(task, trained):
    texts = [row.target for row in SCENES[:9]]
    for embed, items in (task.embed_texts, texts), (task.embed_inputs, SCENES[:9]):
        together = embed(trained, items)
        assert together.shape == (9, E)
        assert_close(together.norm(dim=-1), torch.ones(9))
        assert_close(torch.cat([embed(trained, [row]) for row in items]), together)


def test_a_line_is_an_image_if_the_file_exists(task, trained, files):
    lines = [SCENES[2].target, files[2], "nowhere.png"]
    text, picture, name = task.embed(trained, lines)
    assert_close(torch.tensor([text, name]), task.embed_texts(trained, [lines[0], lines[2]]))
    assert_close(torch.tensor([picture]), task.embed_inputs(trained, [SCENES[2]]))
    broken = Path(files[0]).with_name("broken.png")
    broken.write_bytes(b"no picture")
    with pytest.raises(ValueError, match=r"broken\.png: not an image"):
        list(task.embed(trained, [str(broken)]))


# Zero-shot classification.


def test_the_caption_of_an_image_fits_best(task, trained, files):
    labels = [row.target for row in SCENES[:12]]
    lines = ["\t".join((file, *labels)) for file in files[:12]]
    for label, best in zip(labels, task.predict(trained, lines, MatchOptions(num_return=99)), strict=True):
        assert best[0].text == label
        assert sorted(answer.text for answer in best) == sorted(labels)
        assert sum(answer.score for answer in best) == pytest.approx(1)
        assert [answer.score for answer in best] == pytest.approx([math.exp(answer.logprob) for answer in best])
    alone = [next(task.predict(trained, [line], MatchOptions()))[0].text for line in lines]
    assert alone == labels


def test_only_the_labels_of_a_line_compete_and_each_once(task, trained, files):
    a, b, c = (row.target for row in SCENES[:3])
    lines = [f"{files[0]}\t{a}\t{b}", f"{files[0]}\t{c}\t{a}\t{c}", f"{files[0]}\t{c}"]
    best = [*task.predict(trained, lines, MatchOptions(num_return=5))]
    assert [[answer.text for answer in ranked] for ranked in best] == [[a, b], [a, c], [c]]
    assert best[2][0].score == 1.0


def test_labels_are_put_into_the_prompt(task, trained, files):
    head, tail = SCENES[0].target.split(" ", 1)
    labels = [tail, *(row.target.split(" ", 1)[1] for row in SCENES[1:5])]
    [prompted] = task.predict(trained, ["\t".join((files[0], *labels))], MatchOptions(5, prompt=f"{head} {{}}"))
    whole = [f"{head} {label}" for label in labels]
    [targets] = task.predict(trained, ["\t".join((files[0], *whole))], MatchOptions(5))
    assert [(f"{head} {answer.text}", answer.logprob) for answer in prompted] == [(a.text, a.logprob) for a in targets]
    with pytest.raises(ValueError, match=r"prompt must be a text with \{\} in it"):
        MatchOptions(prompt="a photo")


# Folders and refusals.


def test_a_saved_model_predicts_as_before(tmp_path, files):
    folder = Path(files[0]).parent
    table = folder / "captions.tsv"
    table.write_text("".join(f"{row.line}.png\t{row.target}\n" for row in SCENES))
    given = {"steps": 5, "evals": 1, "valid_share": 0.2, "context": CONTEXT, **TOWERS}
    job = FileJob.open(make_settings("match", data=str(folder), output_dir=str(tmp_path / "run"), **given)).plan()
    for step in job.train():
        last = step
    assert "recall_at_1" in last.scores
    loaded = load(tmp_path / "run", device="cpu")
    assert loaded.task.preprocessor == job.task.preprocessor
    line = "\t".join((files[4], *(row.target for row in SCENES[:9])))
    before = [*job.task.predict(job.progress.model.eval(), [line], MatchOptions(num_return=9))]
    assert [*loaded.generate([line], num_return=9)] == before
    assert loaded(line, prompt="{} or so") in [row.target for row in SCENES[:9]]
    scores = loaded.task.score(loaded.model, loaded.rows([str(table)]))
    assert scores["loss"] == job.task.score(job.progress.model, SCENES)["loss"]


def test_bad_inputs_are_refused(task, trained, files):
    for line in (files[0], f"{files[0]}\t", f"{files[0]}\ta\t \tb"):
        with pytest.raises(ValueError, match="input:3: give picture.png and labels, separated by tabs, not '"):
            list(task.predict(trained, [f"{files[0]}\ta", line], MatchOptions(), first=1))
    with pytest.raises(ValueError, match=r"nowhere\.png: no such file"):
        list(task.predict(trained, ["nowhere.png\ta\tb"], MatchOptions()))
    with pytest.raises(ValueError, match="every input has the text 'x'"):
        fit_match([row._replace(target="x") for row in SCENES])
    with pytest.raises(
        ValueError, match="match of images needs a model with two towers, and vit has an encoder of images: .* clip$"
    ):
        resolve("match", "vit")
    assert [name for name, option in options("match", "clip", "tiny").items() if not option.help] == []
