"""Alignment: tokens joined to words, rows that sum to one and belong to their target word; loss curves."""

import numpy as np
import pytest
import torch
from PIL import Image

from regard.load import load
from regard.loaded_model import LoadedModel
from regard.look import look
from regard.models.recurrent import RecurrentConfig
from regard.models.seq2seq import Seq2Seq
from regard.view.alignment import align, save_alignment
from regard.view.training_history import loss_curve
from regard.view.word_pieces import group_words


def test_tokens_are_joined_to_words():
    tokens = ["▁Tee", "▁und", "▁Was", "ser", ",", "▁bit", "te", "▁", "(", "ja", ")", "!", "</s>"]
    alignment = group_words(tokens)
    assert [word for word, _ in alignment] == ["Tee", "und", "Wasser", ",", "bitte", "(", "ja", ")", "!", "</s>"]
    assert sorted(place for _, positions in alignment for place in positions) == list(range(len(tokens)))


def test_alignment_rows_sum_to_one(small_run):
    alignment = align(load(small_run, device="cpu"), "tea and water 7")
    assert alignment.weights.shape == (len(alignment.target), len(alignment.source))
    np.testing.assert_allclose(alignment.weights.sum(1), 1.0, atol=1e-6)
    assert alignment.source == ["tea", "and", "water", "7", "</s>"]


def test_a_row_is_the_decoding_step_of_its_word(small_run):
    """Decoded token by token, the weights of step t are those of row t: no shift by one."""
    translator = load(small_run, device="cpu")
    task, model = translator.task, translator.model
    text, target = "tea and water 7", "Tee und Wasser 7"
    alignment = align(translator, text, target)
    row = task.preprocessor.parse(text, task.target)._replace(target=target)
    batch = task.collate(task.encode([row]), np.array([0]))
    name = f"body.decoder.{alignment.layer}.cross.inner.weights"
    with torch.inference_mode():
        caches = model.body.decoder_caches(batch.inputs.x, batch.inputs.mask)
        steps = []
        for t in range(batch.decoder_ids.size(1)):
            with look(model) as activations:
                model.head(model.body.decode(batch.decoder_ids[:, t : t + 1], cache=caches))
            steps.append(activations[name][0].mean(0)[0].double().numpy())
    targets = group_words(task.tokenizer.convert_ids_to_tokens(batch.targets[0].tolist()))
    sources = group_words(task.tokenizer.convert_ids_to_tokens(batch.inputs.x[0].tolist()))
    for row, (_, positions) in enumerate(targets):
        mean = np.mean([steps[t] for t in positions], 0)
        np.testing.assert_allclose(alignment.weights[row], [mean[columns].sum() for _, columns in sources], atol=1e-5)


@pytest.mark.parametrize("attention", [True, False])
def test_a_recurrent_translator_is_aligned_if_it_has_attention(small_run, attention):
    task = load(small_run, device="cpu").task
    config = RecurrentConfig(
        vocab=len(task.tokenizer), dim=8, layers=2, attention=attention, pad=task.tokenizer.pad_token_id
    )
    translator = LoadedModel(task.head(Seq2Seq(config)).eval(), task)
    if attention:
        alignment = align(translator, "tea and water 7", "Tee und Wasser 7")
        np.testing.assert_allclose(alignment.weights.sum(1), 1.0, atol=1e-6)
    else:
        with pytest.raises(ValueError, match="this model has no cross-attention"):
            align(translator, "tea and water 7", "Tee und Wasser 7")


def test_figures_are_written(small_run, tmp_path):
    save_alignment(load(small_run, device="cpu"), "tea and water 7", tmp_path / "a.png")
    assert min(Image.open(tmp_path / "a.png").size) > 200
    assert min(Image.open(small_run / "loss.png").size) > 200


@pytest.mark.parametrize("metrics", [[], [{"step": 1, "loss": 2.0}]], ids=["nothing", "one step"])
def test_a_loss_curve_is_drawn_for_any_number_of_steps(metrics, tmp_path):
    loss_curve(metrics, tmp_path / "loss.png")
    assert (tmp_path / "loss.png").stat().st_size > 1000
