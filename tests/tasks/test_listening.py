"""Sounds through classify and translate: seconds of learning beat a guess, and a folder is what was in memory."""

import wave
from collections import Counter

import numpy as np
import pytest

from regard.cli import main
from regard.data.bundled import voices
from regard.load import load
from regard.tasks.listening import bundled_clips, bundled_strings
from regard.training.train import train

SMALL = {"dim": 32, "hidden": 64, "heads": 2, "device": "cpu", "checks": 1, "stride": 4}


def write(file, samples, rate=voices.RATE):
    with wave.open(str(file), "wb") as out:
        out.setparams((1, 2, rate, len(samples), "NONE", ""))
        out.writeframes(samples.tobytes())
    return str(file)


@pytest.fixture(scope="module")
def listener(tmp_path_factory):
    """Ten digits, learnt for a second or two from 24 voices."""
    run = tmp_path_factory.mktemp("runs") / "listener"
    steps = list(train("classify", model="listener", out=str(run), steps=120, layers=1, batch_tokens=800, **SMALL))
    return run, steps


def test_voices_that_were_never_heard_are_understood(listener):
    run, steps = listener
    loaded = load(run)
    rows = bundled_clips()["test"]
    majority = 100 * max(Counter(row.labels for row in rows).values()) / len(rows)
    assert loaded.task.score(loaded.model, rows)["accuracy"] > 5 * majority
    assert steps[-1].scores["accuracy"] > 5 * majority


def test_a_file_is_answered_as_its_row_and_refused_by_name(listener, tmp_path, capsys):
    run, _ = listener
    clip = voices.voices("test")[7]
    file = write(tmp_path / "a.wav", clip.samples)
    loaded = load(run)
    scores = loaded.task.score(loaded.model, bundled_clips()["test"])
    assert loaded(file) == scores["answers"][7]
    assert main(["run", str(run), file]) == 0
    assert capsys.readouterr().out.strip() == scores["answers"][7]
    odd = write(tmp_path / "odd.wav", clip.samples, 16000)
    assert main(["run", str(run), odd]) == 2
    assert "odd.wav:1: it has 16,000 samples a second, but this model hears 8,000" in capsys.readouterr().err
    assert main(["run", str(run), str(tmp_path / "none.wav")]) == 2
    assert "none.wav: no such file" in capsys.readouterr().err
    [vector] = loaded.embed([file])
    assert len(vector) == SMALL["dim"]


def test_what_cannot_be_shown_or_timed_is_refused_in_a_sentence(listener, tmp_path, capsys):
    run, _ = listener
    file = write(tmp_path / "a.wav", voices.voices("test")[0].samples)
    assert main(["look", str(run), file, "--out", str(tmp_path / "a.html")]) == 2
    assert "this model reads audio" in capsys.readouterr().err
    assert main(["bench", str(run)]) == 2
    assert "this one reads audio" in capsys.readouterr().err


def test_a_folder_without_its_ears_is_refused(listener, tmp_path):
    run, _ = listener
    for name in ("config.json", "model.safetensors", "task.json"):
        (tmp_path / name).write_bytes((run / name).read_bytes())
    with pytest.raises(ValueError, match=r"lacks what its task needs: .*sounds \(sounds.json\)"):
        load(tmp_path)


def test_a_listener_goes_on_from_another_with_its_ears(listener, tmp_path):
    run, _ = listener
    how = {"from_": str(run), "out": str(tmp_path / "run"), "steps": 1, "device": "cpu", "checks": 1}
    with pytest.raises(ValueError, match="the model to start from has mels 40: leave out --mels"):
        list(train("classify", mels=13, **how))
    list(train("classify", **how))
    task = load(tmp_path / "run").task
    assert task.sounds == load(run).task.sounds
    assert task.hearing["stride"] == task.sounds.stride == SMALL["stride"]


def test_what_is_said_is_learnt_and_beats_always_saying_the_same(tmp_path, monkeypatch):
    """Strings of one word, which take seconds; those of seven take minutes, and are in benchmarks/digit_strings.py."""
    monkeypatch.setattr("regard.data.joined.WORDS", (1, 1))
    run = tmp_path / "run"
    how = {"encoder_layers": 2, "decoder_layers": 1, "batch_tokens": 600, "check_examples": 20, "average": 0.9}
    steps = [step.loss for step in train("translate", model="transcriber", out=str(run), steps=150, **SMALL | how)]
    assert np.mean(steps[-5:]) < 0.75 * steps[0]
    loaded = load(run)
    rows = list(bundled_strings()["test"])[:120]
    scores = loaded.task.score(loaded.model, rows)
    assert {"wer", "exact", "bleu", "loss"} <= {*scores}
    said = [row.text.split() for row in rows]
    once = Counter(word for words in said for word in words).most_common(1)[0][0]
    by_guess = 100 * sum(len(w) - (once in w) for w in said) / sum(map(len, said))
    assert scores["wer"] < by_guess - 20
    file = write(tmp_path / "a.wav", rows[0].samples)
    assert loaded(file, beam=1) == scores["answers"][0]
