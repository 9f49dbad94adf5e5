"""Audio files of any format give the same samples, errors name file and reason, and log-mel frames are correct."""

import os
import struct
import wave

import numpy as np
import pytest

from regard.data.lines import BadRow
from regard.data.lint import BadRowsError, lint
from regard.data.rows import Labels, Row
from regard.modalities.audio.audio_files import Audio, audio_row, read_labelled_audio, read_transcribed_audio
from regard.modalities.audio.audio_io import decode_audio, open_audio
from regard.modalities.audio.concat_words import concat_words, split_and_concat
from regard.modalities.audio.logmel import LogMel, normalize_clip, to_hertz, to_mel

RATE = 8000
EARS = LogMel(RATE, 40, 4, 256, 80)


def tone(hertz=440.0, seconds=0.3, rate=RATE, loud=0.5):
    return (np.sin(2 * np.pi * hertz * np.arange(int(seconds * rate)) / rate) * loud * 32767).astype(np.int16)


def write(file, samples, rate=RATE, width=2, channels=1):
    file.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(file), "wb") as out:
        out.setnchannels(channels)
        out.setsampwidth(width)
        out.setframerate(rate)
        out.writeframes(packed(np.repeat(samples, channels), width))
    return file


def packed(samples, width):
    wide = samples.astype(np.int64)
    if width == 1:
        return ((wide >> 8) + 128).astype(np.uint8).tobytes()
    if width == 3:
        return b"".join(struct.pack("<i", int(value) << 8)[:3] for value in wide)
    return (wide << 8 * (width - 2)).astype(f"<i{width}").tobytes()


@pytest.mark.parametrize("width", [1, 2, 3, 4])
@pytest.mark.parametrize("channels", [1, 2])
def test_samples_do_not_depend_on_sample_width_or_channels(width, channels, tmp_path):
    result = open_audio(write(tmp_path / "a.wav", tone(), RATE, width, channels))
    assert result.sampling_rate == RATE
    assert result.samples.dtype == np.int16
    assert np.abs(result.samples.astype(int) - tone()).max() <= (255 if width == 1 else 0)


def test_channels_are_mixed_down(tmp_path):
    both = np.stack((tone(), np.zeros_like(tone())), 1).ravel()
    with wave.open(str(tmp_path / "a.wav"), "wb") as out:
        out.setparams((2, 2, RATE, len(both) // 2, "NONE", ""))
        out.writeframes(both.tobytes())
    assert np.abs(open_audio(tmp_path / "a.wav").samples.astype(int) * 2 - tone()).max() <= 1


BROKEN = {
    "nothing": (lambda whole: b"", "it is truncated: 0 bytes are no complete wav file"),
    "text": (lambda whole: b"this is a text, not a sound", "no wav file"),
    "header only": (lambda whole: whole[:40] + bytes(4), "empty: there is a header"),
    "cut off": (lambda whole: whole[: len(whole) // 2], "it is truncated: 2,400 samples are promised"),
    "decimals": (lambda whole: whole[:20] + b"\x03\0" + whole[22:], "soundfile"),
    "no rate": (lambda whole: whole[:24] + bytes(4) + whole[28:], "a sampling rate of 0 Hz"),
}


@pytest.mark.parametrize("how", BROKEN)
def test_invalid_audio_files_give_the_reason(how, tmp_path):
    spoil, says = BROKEN[how]
    file = write(tmp_path / "a.wav", tone())
    file.write_bytes(spoil(file.read_bytes()))
    with pytest.raises(ValueError, match=says) as error:
        open_audio(file)
    assert str(file) in str(error.value)


def test_silence_missing_files_and_unknown_suffixes_are_errors(tmp_path):
    assert "silent" in decode_audio(write(tmp_path / "a.wav", np.full(800, 3, np.int16)))
    assert decode_audio(tmp_path / "b.wav") == "no such file"
    (tmp_path / "c.doc").write_bytes(b"x")
    assert "audio files are named .wav" in decode_audio(tmp_path / "c.doc")
    (tmp_path / "d.flac").write_bytes(b"fLaC")
    assert "soundfile" in decode_audio(tmp_path / "d.flac")


def folder_of(at, prefixes):
    for i in range(12):
        label, name = f"w{i % 3}", f"anna_{i}.wav" if i % 2 else f"ben_{i}.wav"
        write(at / f"{label}_{name}" if prefixes else at / label / name, tone(300 + 40 * i, 0.2 + 0.01 * i))
    return at


def test_a_pipe_is_refused_without_reading_it(tmp_path):
    for name in ("a.wav", "a.flac"):
        os.mkfifo(tmp_path / name)
        assert "a pipe or a device" in decode_audio(tmp_path / name)


@pytest.mark.parametrize("prefixes", [True, False])
def test_labels_come_from_folders_or_file_names(prefixes, tmp_path):
    rows = list(read_labelled_audio([folder_of(tmp_path / "sounds", prefixes)]))
    assert len(rows) == 12
    assert all(isinstance(row, Row) for row in rows)
    assert {row.target for row in rows} == {Labels(("w0",)), Labels(("w1",)), Labels(("w2",))}
    assert {row.input.speaker for row in rows} == ({"anna", "ben"} if prefixes else {""})
    assert len({row.input_key for row in rows}) == 12


def test_a_number_after_the_label_is_no_speaker(tmp_path):
    """Or else every string would be one clip, again and again."""
    for i in range(8):
        write(tmp_path / f"w{i}_{i}.wav", tone(300 + 40 * i))
    rows = list(read_labelled_audio([tmp_path]))
    assert {row.input.speaker for row in rows} == {""}
    assert max(len({*row.target.split()}) for row in concat_words(rows)) > 2


@pytest.mark.parametrize("name", ["w0_ann_1.wav", "w2_zoe_1.wav"])  # the first of all, or the last
def test_another_sampling_rate_is_an_error_with_both_rates_and_a_remedy(name, tmp_path):
    folder = folder_of(tmp_path / "sounds", True)
    odd = write(folder / name, tone(rate=16000), 16000)
    with pytest.raises(BadRowsError, match=r"1 not a sound.*16,000 Hz.*8,000.*ffmpeg.*8000") as error:
        lint({"train": read_labelled_audio([folder])})
    assert f"{odd}:1" in str(error.value)
    rows, _ = lint({"train": read_labelled_audio([folder])}, skip_bad=True)
    assert len(rows["train"]) == 12


def test_other_folder_layouts_are_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"empty: it has neither folders nor audio files"):
        list(read_labelled_audio([tmp_path / "empty"]))
    with pytest.raises(ValueError, match="nothing there: no such file or folder"):
        list(read_labelled_audio([f"{tmp_path}/nothing there"]))
    with pytest.raises(ValueError, match=r"one folder.*not from .*a\.wav"):
        list(read_labelled_audio([write(tmp_path / "a.wav", tone())]))
    mixed = folder_of(tmp_path / "mixed", False)
    with pytest.raises(ValueError, match="mixed: a folder of audio files has no fields like a and b"):
        list(read_labelled_audio([mixed], ("a", "b")))
    write(mixed / "seven.wav", tone())
    with pytest.raises(ValueError, match="beside them, seven.wav"):
        list(read_labelled_audio([mixed]))
    write(tmp_path / "bare" / "seven.wav", tone())
    [bad] = read_labelled_audio([tmp_path / "bare"])
    assert isinstance(bad, BadRow)
    assert "LABEL_anything.wav" in bad.detail


def test_a_table_of_audio_files_reports_line_numbers(tmp_path):
    write(tmp_path / "clips" / "a.wav", tone())
    write(tmp_path / "clips" / "b.wav", tone(rate=16000), 16000)
    lines = ["clips/a.wav\tone two", "clips/b.wav\tthree", "clips/c.wav\tfour", "clips/a.wav", "clips/a.wav\t "]
    (tmp_path / "list.tsv").write_text("".join(f"{line}\n" for line in lines))
    first, *bad = read_transcribed_audio([tmp_path / "list.tsv"])
    assert isinstance(first, Row)
    assert (first.target, first.input.sampling_rate, len(first.input.samples)) == ("one two", RATE, len(tone()))
    assert [(clip.line, clip.reason) for clip in bad] == [
        (2, "not a sound"), (3, "missing file"), (4, "missing column"), (5, "empty"),
    ]  # fmt: skip
    assert "16,000" in bad[0].detail
    assert bad[1].detail == "clips/c.wav: no such file"


# Frames


@pytest.mark.parametrize("hertz", [200.0, 500.0, 1000.0, 2200.0, 3500.0])
@pytest.mark.parametrize("rate", [8000, 16000])
def test_a_pure_tone_has_its_maximum_in_the_mel_of_its_frequency(hertz, rate):
    ears = LogMel.fit([audio_row(Audio((tone(),), rate), Labels(("a",)), "f", 1)], 40, 4)
    frames = ears.frames(tone(hertz, 0.5, rate))
    middles = to_hertz(np.linspace(0, to_mel(min(rate / 2, 8000)), 42))[1:-1]
    nearest = np.abs(middles - hertz).argmin()
    assert (np.abs(frames[5:-5].argmax(1) - nearest) <= 1).all()


def test_frames_come_every_10_ms_and_a_gain_adds_a_constant():
    quiet, loud = EARS.frames(tone(loud=0.2)), EARS.frames(tone(loud=0.4))
    assert len(quiet) == -(-(2400 - 256) // 80) + 1
    strong = quiet > quiet.max() - 5
    assert np.allclose((loud - quiet)[strong], 2 * np.log(2), atol=0.01)
    assert np.allclose(normalize_clip(loud), normalize_clip(quiet), atol=0.05)


def test_silence_is_trimmed_and_the_frequency_response_cancels():
    hiss = np.random.default_rng(0).integers(-3, 4, 4000).astype(np.int16)
    alone, padded = EARS.frames(tone()), EARS.frames(np.concatenate((hiss, tone(), hiss)))
    assert abs(len(padded) - len(alone)) <= 12
    frames = EARS.frames(tone() + tone(1500, loud=0.2))
    assert np.allclose(
        normalize_clip(frames + np.linspace(-2, 2, 40, dtype=np.float32)), normalize_clip(frames), atol=1e-4
    )


def test_one_sample_gives_a_frame_and_too_long_clips_are_errors():
    assert EARS.frames(np.array([500], np.int16)).shape == (1, 40)
    row = audio_row(Audio((tone(seconds=3.0),), RATE), Labels(("a",)), "long.wav", 1)
    assert len(EARS.prepare([row], 80)[0]) == 298
    with pytest.raises(ValueError, match=r"long.wav:1: 3.0 seconds are more than .* 2.0 .* --context"):
        EARS.prepare([row], 50)
    with pytest.raises(ValueError, match=r"long.wav:1: its sampling rate is 16,000 Hz, but this model takes 8,000 Hz"):
        EARS.prepare([row._replace(input=row.input._replace(sampling_rate=16000))], 500)


def test_logmel_settings_survive_a_folder_and_broken_ones_are_errors(tmp_path):
    EARS.save(tmp_path)
    assert (tmp_path / "logmel.json").is_file()
    assert LogMel.load(tmp_path) == EARS
    file = tmp_path / "logmel.json"
    whole = file.read_text()
    for spoilt in (whole.replace("40", "0"), whole.replace("40", '"x"'), whole.replace('"hop"', '"hup"')):
        file.write_text(spoilt)
        with pytest.raises(ValueError, match=str(file)):
            LogMel.load(tmp_path)


# Strings


def clips(count=20):
    return [
        audio_row(Audio((tone(200 + 20 * i),), RATE, f"s{i % 2}"), Labels((f"w{i % 5}",)), f"{i}.wav", 1)
        for i in range(count)
    ]  # each has a pitch of its own


def test_a_sequence_has_clips_of_one_speaker_with_pauses_between():
    rows = list(concat_words(clips(), 60))
    assert len(rows) == 60
    assert {len(row.target.split()) for row in rows} == set(range(1, 8))
    for row in rows:
        parts = row.input.parts
        assert len(parts) == 2 * len(row.target.split()) + 1
        result = [next(c for c in clips() if np.array_equal(c.input.samples, part)) for part in parts[1::2]]
        assert " ".join(c.target.names[0] for c in result) == row.target
        assert len({c.input.speaker for c in result}) == 1
        assert len(row.input.samples) == sum(map(len, parts))
    assert [row.input_key for row in concat_words(clips(), 60)] == [row.input_key for row in rows]


def test_train_and_valid_share_no_clip():
    sets = {name: list(rows) for name, rows in split_and_concat(clips(), lambda _: 0.3).items()}
    clip_sets = {
        name: {part.tobytes() for row in rows for part in row.input.parts[1::2]} for name, rows in sets.items()
    }
    assert clip_sets["train"]
    assert clip_sets["valid"]
    assert not clip_sets["train"] & clip_sets["valid"]
    bad = BadRow("x.wav", 1, "not a sound", "why")
    assert bad in list(split_and_concat([bad, *clips()], lambda _: 0.3)["train"])
    assert list(split_and_concat([bad], lambda _: 0.3)["train"]) == [bad]
