"""Audio in classify and translate: seconds of training beat the baselines, and files are predicted as rows."""

import wave
from collections import Counter

import numpy as np
import pytest

from regard.cli import main
from regard.load import load
from regard.modalities.audio.modality import AudioModality
from regard.modalities.protocols import Target
from regard.modalities.synthetic import voices
from regard.training.train import train

SMALL = {"dim": 32, "hidden": 64, "heads": 2, "device": "cpu", "evals": 1, "stride": 4}


def write_wav(file, samples, rate=voices.SAMPLING_RATE):
    with wave.open(str(file), "wb") as out:
        out.setparams((1, 2, rate, len(samples), "NONE", ""))
        out.writeframes(samples.tobytes())
    return str(file)


@pytest.fixture(scope="module")
def classifier_run(tmp_path_factory):
    """Ten digits, trained for a second or two on 24 speakers."""
    run = tmp_path_factory.mktemp("runs") / "audio_encoder"
    steps = list(
        train("classify", model="audio_encoder", output_dir=str(run), steps=120, layers=1, batch_tokens=800, **SMALL)
    )
    return run, steps


def test_unseen_speakers_are_classified(classifier_run):
    run, steps = classifier_run
    loaded = load(run)
    rows = AudioModality().synthetic(Target.LABELS)["test"]
    majority = 100 * max(Counter(row.target for row in rows).values()) / len(rows)
    assert loaded.task.score(loaded.model, rows)["accuracy"] > 5 * majority
    assert steps[-1].scores["accuracy"] > 5 * majority


def test_a_file_is_predicted_as_its_row_and_refused_by_name(classifier_run, tmp_path, capsys):
    run, _ = classifier_run
    clip = voices.voices("test")[7]
    file = write_wav(tmp_path / "a.wav", clip.samples)
    loaded = load(run)
    scores = loaded.task.score(loaded.model, AudioModality().synthetic(Target.LABELS)["test"])
    assert loaded(file) == scores["predictions"][7]
    assert main(["run", str(run), file]) == 0
    assert capsys.readouterr().out.strip() == scores["predictions"][7]
    odd = write_wav(tmp_path / "odd.wav", clip.samples, 16000)
    assert main(["run", str(run), odd]) == 2
    assert "odd.wav:1: its sampling rate is 16,000 Hz, but this model takes 8,000 Hz" in capsys.readouterr().err
    assert main(["run", str(run), str(tmp_path / "none.wav")]) == 2
    assert "none.wav: no such file" in capsys.readouterr().err
    [vector] = loaded.embed([file])
    assert len(vector) == SMALL["dim"]


def test_look_refuses_recordings_and_bench_measures_them(classifier_run, tmp_path, capsys):
    run, _ = classifier_run
    file = write_wav(tmp_path / "a.wav", voices.voices("test")[0].samples)
    assert main(["look", str(run), file, "--output", str(tmp_path / "a.html")]) == 2
    assert "look shows tokens and pictures, not recordings" in capsys.readouterr().err
    assert main(["bench", str(run), "--min-time", "0", "--no-peers", "--threads", "1"]) == 0
    assert "regard" in capsys.readouterr().out


def test_a_folder_without_its_feature_extractor_is_refused(classifier_run, tmp_path):
    run, _ = classifier_run
    for name in ("config.json", "model.safetensors", "task.json"):
        (tmp_path / name).write_bytes((run / name).read_bytes())
    with pytest.raises(ValueError, match=r"lacks what its task needs to read recordings: logmel.json"):
        load(tmp_path)


def test_a_run_from_another_keeps_its_feature_extractor(classifier_run, tmp_path):
    run, _ = classifier_run
    options = {"from_": str(run), "output_dir": str(tmp_path / "run"), "steps": 1, "device": "cpu", "evals": 1}
    with pytest.raises(ValueError, match="the model of --from has mels 40: leave out --mels"):
        list(train("classify", mels=13, **options))
    list(train("classify", **options))
    task = load(tmp_path / "run").task
    assert task.preprocessor.extractor == load(run).task.preprocessor.extractor
    assert task.preprocessor.augmentation.stride == task.preprocessor.extractor.stride == SMALL["stride"]


def test_transcription_beats_the_most_common_word(tmp_path, monkeypatch):
    """Utterances of one word take seconds; those of seven words are in benchmarks/digit_strings.py."""
    monkeypatch.setattr("regard.modalities.audio.concat_words.WORDS", (1, 1))
    run = tmp_path / "run"
    options = {"encoder_layers": 2, "decoder_layers": 1, "batch_tokens": 600, "eval_examples": 20, "ema": 0.9}
    steps = [
        step.loss for step in train("translate", model="speech2text", output_dir=str(run), steps=150, **SMALL | options)
    ]
    assert np.mean(steps[-5:]) < 0.75 * steps[0]
    loaded = load(run)
    rows = list(AudioModality().synthetic(Target.TEXT)["test"])[:120]
    scores = loaded.task.score(loaded.model, rows)
    assert {"wer", "exact", "bleu", "loss"} <= {*scores}
    words_of_rows = [row.target.split() for row in rows]
    most_common = Counter(word for words in words_of_rows for word in words).most_common(1)[0][0]
    baseline = 100 * sum(len(w) - (most_common in w) for w in words_of_rows) / sum(map(len, words_of_rows))
    assert scores["wer"] < baseline - 20
    file = write_wav(tmp_path / "a.wav", rows[0].input.samples)
    assert loaded(file, num_beams=1) == scores["predictions"][0]
