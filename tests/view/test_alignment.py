"""Pictures: words rejoined from pieces, weights that sum to one, and rows that belong to the word beside them."""

import numpy as np
import pytest
import torch
from PIL import Image

from regard.load import Loaded, load
from regard.look import look
from regard.models.recurrent import RecurrentConfig
from regard.models.seq2seq import Seq2Seq
from regard.view.alignment import align, alignment, words
from regard.view.loss_curve import loss_curve


def test_pieces_become_words_again():
    pieces = ["▁Tee", "▁und", "▁Was", "ser", ",", "▁bit", "te", "▁", "(", "ja", ")", "!", "</s>"]
    found = words(pieces)
    assert [word for word, _ in found] == ["Tee", "und", "Wasser", ",", "bitte", "(", "ja", ")", "!", "</s>"]
    assert sorted(place for _, places in found for place in places) == list(range(len(pieces)))


def test_every_written_word_spreads_one_over_the_source(small_run):
    found = align(load(small_run, device="cpu"), "tea and water 7")
    assert found.weights.shape == (len(found.target), len(found.source))
    np.testing.assert_allclose(found.weights.sum(1), 1.0, atol=1e-6)
    assert found.source == ["tea", "and", "water", "7", "</s>"]


def test_a_row_is_the_step_that_wrote_its_word(small_run):
    """Written token by token, the weights of step t are those of row t: nothing is shifted by one."""
    translator = load(small_run, device="cpu")
    task, model = translator.task, translator.model
    text, target = "tea and water 7", "Tee und Wasser 7"
    found = align(translator, text, target)
    batch = task.batch(task.prepare([(text, target)]), np.array([0]))
    name = f"body.decoder.{found.layer}.cross.inner.weights"
    with torch.inference_mode():
        caches = model.body.read(batch.source, batch.source_mask)
        steps = []
        for t in range(batch.target.size(1)):
            with look(model) as seen:
                model.head(model.body.decode(batch.target[:, t : t + 1], cache=caches))
            steps.append(seen[name][0].mean(0)[0].double().numpy())
    targets = words(task.tokenizer.pieces(batch.wanted[0].tolist()))
    sources = words(task.tokenizer.pieces(batch.source[0].tolist()))
    for row, (_, places) in enumerate(targets):
        mean = np.mean([steps[t] for t in places], 0)
        np.testing.assert_allclose(found.weights[row], [mean[columns].sum() for _, columns in sources], atol=1e-5)


@pytest.mark.parametrize("attention", [True, False])
def test_a_recurrent_translator_is_aligned_if_it_has_attention(small_run, attention):
    task = load(small_run, device="cpu").task
    config = RecurrentConfig(vocab=len(task.tokenizer), dim=8, layers=2, attention=attention, pad=task.tokenizer.pad)
    translator = Loaded(task.head(Seq2Seq(config)).eval(), task)
    if attention:
        found = align(translator, "tea and water 7", "Tee und Wasser 7")
        np.testing.assert_allclose(found.weights.sum(1), 1.0, atol=1e-6)
    else:
        with pytest.raises(ValueError, match="this model has no attention from the words it writes"):
            align(translator, "tea and water 7", "Tee und Wasser 7")


def test_the_pictures_are_drawn(small_run, tmp_path):
    alignment(load(small_run, device="cpu"), "tea and water 7", tmp_path / "a.png")
    assert min(Image.open(tmp_path / "a.png").size) > 200
    assert min(Image.open(small_run / "loss.png").size) > 200


@pytest.mark.parametrize("metrics", [[], [{"step": 1, "loss": 2.0}]], ids=["nothing", "one step"])
def test_a_run_that_has_hardly_begun_has_a_curve_too(metrics, tmp_path):
    loss_curve(metrics, tmp_path / "loss.png")
    assert (tmp_path / "loss.png").stat().st_size > 1000
