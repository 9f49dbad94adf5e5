"""The command as a user types it: one end-to-end for each verb, and what bad input gets."""

import gzip
import io
import json
import subprocess
import sys

import pytest

from regard.cli import main
from regard.models import MODELS
from regard.tasks import TASKS
from regard.training.loop import Plan


def run(capsys, *args):
    """Exit code, standard output, standard error."""
    try:
        code = main([str(a) for a in args])
    except SystemExit as left:
        code = left.code
    out, err = capsys.readouterr()
    return code, out, err


def test_a_run_folder_is_complete(small_run):
    found = {f.name for f in small_run.iterdir()}
    wanted = (
        "config.json generation_config.json tokenizer.json tokenizer_config.json model.safetensors task.json train.json"
    )
    assert {*wanted.split(), "metrics.jsonl", "README.md", "loss.png", "LATEST", "step-40", "step-20"} <= found
    assert (small_run / "LATEST").read_text() == "step-40\n"
    lines = [json.loads(line) for line in (small_run / "metrics.jsonl").read_text().splitlines()]
    assert sum("loss" in line for line in lines) == 40
    assert [line["step"] for line in lines if "valid" in line] == [20, 40]


def test_run_answers_each_text_on_a_line(small_run, capsys):
    code, out, _ = run(capsys, "run", small_run, "tea and water", "milk please", "--beam", "2")
    assert code == 0
    assert len(out.splitlines()) == 2


def test_run_from_a_file_gives_json_lines(small_run, capsys, tmp_path):
    file = tmp_path / "in.txt"
    file.write_text("tea and water\n\nmilk please\n")
    code, out, _ = run(capsys, "run", small_run, "--file", file, "--json", "--n-best", "2", "--beam", "3")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [row["source"] for row in rows] == ["tea and water", "", "milk please"]
    assert [len(row["answers"]) for row in rows] == [2, 1, 2]
    assert rows[1]["answers"][0]["text"] == ""
    assert rows[0]["answers"][0]["score"] >= rows[0]["answers"][1]["score"]


def test_run_reads_standard_input(small_run, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"tea and water\nmilk please\n")))
    code, out, _ = run(capsys, "run", small_run, "--beam", "1")
    assert (code, len(out.splitlines())) == (0, 2)


def test_sampling_with_a_seed_repeats(small_run, capsys):
    ask = ("run", small_run, "tea and water", "--temperature", "1.5", "--n-best", "4", "--seed")
    first, again, other = (run(capsys, *ask, seed)[1] for seed in (3, 3, 4))
    assert first == again != other


def test_score_says_how_good_it_is(small_run, pairs_file, capsys, tmp_path):
    code, out, _ = run(
        capsys, "score", small_run, pairs_file, "--json", "--beam", "1", "--answers", tmp_path / "said.txt"
    )
    scores = json.loads(out)
    assert code == 0
    assert scores["examples"] == 120
    assert 0 <= scores["bleu"] <= 100
    assert len((tmp_path / "said.txt").read_text().splitlines()) == 120


def test_every_verb_has_help(capsys):
    for verb in ("train translate", "run", "score", "demo"):
        code, out, _ = run(capsys, *verb.split(), "--help")
        assert code == 0
        assert "usage" in out


def broken(tmp_path, name, content):
    file = tmp_path / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


BAD = {
    "an unknown verb": (["trian"], "train"),
    "an unknown task": (["train", "translat"], "translate"),
    "an unknown model": (["train", "translate", "--model", "transfomer"], "transformer"),
    "an unknown size": (["train", "translate", "--size", "tinny"], "tiny"),
    "an unknown option": (["train", "translate", "--dropuot", "0.1"], "--dropout"),
    "a number that is none": (["train", "translate", "--steps", "many"], "many"),
    "two lengths at once": (["train", "translate", "--steps", "3", "--minutes", "1"], "--minutes"),
    "no steps at all": (["train", "translate", "--data", "{good}", "--steps", "0"], "0"),
    "a missing file": (["train", "translate", "--data", "{tmp}/nowhere.tsv"], "nowhere.tsv"),
    "an empty file": (["train", "translate", "--data", "{empty}"], "empty"),
    "one column": (["train", "translate", "--data", "{one_column}"], "one_column.tsv:1"),
    "unequal files": (["train", "translate", "--data", "{long}", "{short}"], "ends after 2"),
    "bytes that are no text": (["train", "translate", "--data", "{latin}"], "latin.tsv:2"),
    "a label of the wrong type": (["train", "translate", "--data", "{number}"], "number.jsonl:1"),
    "a vocabulary too large": (["train", "translate", "--data", "{good}", "--vocab", "5000"], "5000"),
    "heads that do not divide": (["train", "translate", "--data", "{good}", "--dim", "10", "--heads", "4"], "4"),
    "a sentence longer than the context": (["train", "translate", "--data", "{good}", "--context", "2"], "context"),
    "a dropout of one": (["train", "translate", "--data", "{good}", "--dropout", "1"], "dropout"),
    "a device that is not there": (["train", "translate", "--data", "{good}", "--device", "gpu0"], "gpu0"),
    "a folder that is no model": (["run", "{tmp}", "tea"], "config.json"),
    "a folder that is not there": (["run", "{tmp}/nowhere", "tea"], "nowhere"),
    "a beam of nothing": (["run", "{run}", "tea", "--beam", "0"], "beam"),
    "more answers than beams": (["run", "{run}", "tea", "--beam", "2", "--n-best", "3"], "n-best"),
    "a text too long for the model": (["run", "{run}", "{much}"], "context"),
    "two sources of text": (["run", "{run}", "tea", "--file", "{good}"], "--file"),
    "a text file that is not UTF-8": (["run", "{run}", "--file", "{latin}"], "latin.tsv:2"),
    "nothing to score on": (["score", "{run}"], "files to score on"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input_gets_one_message_and_exit_code_2(name, small_run, pairs_file, capsys, tmp_path):
    args, word = BAD[name]
    files = {
        "good": pairs_file, "run": small_run, "tmp": tmp_path, "much": "tea " * 90,
        "empty": broken(tmp_path, "empty.tsv", ""),
        "one_column": broken(tmp_path, "one_column.tsv", "tea\nwater\n"),
        "long": broken(tmp_path, "a.en", "a\nb\nc\n"),
        "short": broken(tmp_path, "a.de", "a\nb\n"),
        "latin": broken(tmp_path, "latin.tsv", b"a\tb\nc\t\xff\n"),
        "number": broken(tmp_path, "number.jsonl", '{"source": "a", "target": 3}\n'),
    }  # fmt: skip
    where = [] if args[0] != "train" else ["--out", tmp_path / "run"]
    code, out, err = run(capsys, *(a.format(**files) for a in args), *where)
    assert code == 2
    assert word in err + out
    assert "Traceback" not in err + out
    assert not (tmp_path / "run" / "config.json").exists()


def test_a_run_is_never_overwritten_without_being_asked(small_run, pairs_file, capsys):
    before = (small_run / "model.safetensors").read_bytes()
    code, _, err = run(capsys, "train", "translate", "--data", pairs_file, "--out", small_run, "--steps", "1")
    assert code == 2
    assert "--overwrite" in err
    assert (small_run / "model.safetensors").read_bytes() == before


def test_a_folder_that_is_no_run_is_not_even_overwritten_when_asked(pairs_file, capsys, tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    code, _, err = run(
        capsys, "train", "translate", "--data", pairs_file, "--out", tmp_path, "--overwrite", "--steps", "1"
    )
    assert code == 2
    assert "not a run" in err
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_a_run_that_was_stopped_while_it_began_may_be_overwritten(pairs_file, small, capsys, tmp_path):
    folder = tmp_path / "run"
    again = ("train", "translate", "--data", pairs_file, "--out", folder, "--overwrite", "--steps", "1", *small)
    folder.mkdir()
    for name in (".lock", "config.json", "tokenizer.json"):
        (folder / name).write_text("")
    (folder / "thesis.txt").write_text("years of work")
    assert run(capsys, *again)[0] == 2, "not if there is anything else"
    (folder / "thesis.txt").unlink()
    (folder / ".lock").unlink()
    assert run(capsys, *again)[0] == 2, "nor if no run was ever here: it may be somebody's model"
    (folder / ".lock").write_text("")
    assert run(capsys, *again[:6], *again[7:])[0] == 0, "and nobody need say so: there is nothing to lose"
    assert (folder / "train.json").is_file()
    assert run(capsys, *again)[0] == 0


def test_minutes_become_steps_and_a_rate_that_falls_to_its_end(pairs_file, small, capsys, tmp_path):
    options = ("--data", pairs_file, "--minutes", "0.1", "--out", tmp_path / "run", "--batch-tokens", "300", *small)
    code, out, _ = run(capsys, "train", "translate", *options)
    settings = json.loads((tmp_path / "run" / "train.json").read_text())
    assert code == 0
    assert f"--steps {settings['steps']}" in out
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    rates = [line["rate"] for line in lines if "rate" in line]
    planned = Plan(**{name: settings[name] for name in Plan.__dataclass_fields__})
    assert rates == [planned.rate_at(step) for step in range(len(rates))]
    assert planned.rate_at(planned.steps - 1) < 0.1 * max(rates)


def test_a_pipe_is_answered_before_it_ends(small_run):
    """As a coprocess: write a line, wait for the answer, write the next."""
    process = subprocess.Popen(
        [sys.executable, "-m", "regard", "run", str(small_run), "--beam", "1", "--json"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    for number, text in enumerate(["tea and water", "", "milk please"]):
        process.stdin.write(text + "\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["number"] == number
    process.communicate()
    assert process.returncode == 0


def test_run_reads_gzip_and_passes_over_a_byte_order_mark(small_run, capsys, tmp_path):
    file = broken(tmp_path, "in.txt.gz", gzip.compress("\ufefftea and water\r\nmilk please\n".encode()))
    _, out, _ = run(capsys, "run", small_run, "--file", file, "--json", "--beam", "1")
    assert [json.loads(line)["source"] for line in out.splitlines()] == ["tea and water", "milk please"]


def test_a_validation_sentence_too_long_is_named_before_training(pairs_file, small, capsys, tmp_path):
    valid = broken(tmp_path, "valid.tsv", "tea\tTee\n" + "tea " * 90 + "\tTee\n")
    options = ("--data", pairs_file, "--valid", valid, "--out", tmp_path / "run", "--steps", "3", *small)
    code, _, err = run(capsys, "train", "translate", *options)
    assert code == 2
    assert "valid.tsv:2" in err


def test_single_words_are_judged_though_their_bleu_is_zero(small, capsys, tmp_path):
    letters = "abcdefghijkl"
    rows = [f"{a}{b}\t{a.upper()}{b.upper()}\n" for a in letters for b in letters]
    options = ("--pieces", "characters", "--steps", "60", "--rate", "0.02", "--checks", "6", "--out", tmp_path / "run")
    code, out, _ = run(
        capsys, "train", "translate", "--data", broken(tmp_path, "w.tsv", "".join(rows)), *options, *small
    )
    assert code == 0
    assert "best at step 10:" not in out


def test_the_public_names_are_functions_whatever_was_imported():
    import regard
    import regard.load
    import regard.look  # noqa: F811
    import regard.reproducible  # noqa: F811

    assert callable(regard.load)
    assert callable(regard.look)
    assert callable(regard.page)
    assert callable(regard.reproducible)
    assert callable(regard.train)
    with pytest.raises(AttributeError, match="it has load, look, page, reproducible, train"):
        regard.trian  # noqa: B018


def test_a_reader_that_has_seen_enough_is_no_error(small_run, tmp_path):
    file = broken(tmp_path, "many.txt", "tea and water\n" * 3000)
    command = f"{sys.executable} -m regard run {small_run} --beam 1 --file {file} | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == ""


def test_models_and_tasks_say_what_there_is_and_what_fits(capsys):
    code, out, _ = run(capsys, "models")
    assert code == 0
    assert all(name in out for name in MODELS)
    assert "gpt3 17" in out, "counted without being built"
    code, out, _ = run(capsys, "tasks")
    assert code == 0
    assert all(name in out and kind.about in out for name, kind in TASKS.items())
    assert run(capsys, "models", "gpt")[0] == 2


@pytest.fixture(scope="module")
def writer(tmp_path_factory):
    """A language model of a few letters that has seen one story many times."""
    folder = tmp_path_factory.mktemp("writer")
    (folder / "story.txt").write_text("You are here.\n> go\nYou go.\n> stay\nYou stay.\n" * 60)
    small = "--dim 32 --hidden 32 --heads 2 --layers 1 --context 32 --pieces characters --checks 1"
    args = ["train", "write", "--data", folder / "story.txt", "--out", folder / "run", "--cache", folder / "cache"]
    assert main([*map(str, args), *small.split(), "--steps", "150", "--batch-tokens", "512", "--rate", "0.02"]) == 0
    return folder / "run"


def test_tokens_of_a_text_to_score_on_are_kept_where_they_are_wanted(writer, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    story = broken(tmp_path, "other.txt", "You are here.\n> stay\nYou stay.\n" * 9)
    code, _, _ = run(capsys, "score", writer, story, "--cache", tmp_path / "cache", "--longest", "5")
    assert code == 0
    assert {file.suffix for file in (tmp_path / "cache").iterdir()} == {".tokens", ".json"}
    assert not (tmp_path / "home").exists()


def test_only_what_keeps_tokens_has_a_place_for_them(small_run, pairs_file, capsys, tmp_path):
    code, out, err = run(capsys, "score", small_run, pairs_file, "--cache", tmp_path)
    assert code == 2
    assert "--cache" in out + err


def test_a_story_is_played_in_turns(writer, capsys, monkeypatch):
    said = iter(["go", "stay", ""])
    monkeypatch.setattr("builtins.input", lambda prompt: next(said))
    code, out, _ = run(capsys, "run", writer, "You are here.", "--play", "--temperature", "0", "--longest", "40")
    assert code == 0
    assert out.splitlines() == ["You are here.", "You go.", "You stay.", "You are here."]


def test_a_prompt_longer_than_the_context_is_continued(writer, capsys):
    prompt = "You are here.\n> go\nYou go.\n> stay\nYou stay.\n"
    code, out, _ = run(capsys, "run", writer, prompt, "--temperature", "0", "--longest", str(len(prompt)))
    assert (code, out) == (0, 2 * prompt + "\n")


def test_a_model_that_reads_gives_vectors(tmp_path, capsys):
    (tmp_path / "rows.tsv").write_text("".join(f"tea {i}\thot\nmilk {i}\tcold\n" for i in range(40)))
    small = ["--model", "pooled", "--dim", "6", "--hidden", "5", "--steps", "2", "--checks", "1"]
    assert run(capsys, "train", "classify", "--data", tmp_path / "rows.tsv", "--out", tmp_path / "run", *small)[0] == 0
    code, out, _ = run(capsys, "run", tmp_path / "run", "--embed", "tea", "milk")
    told = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [line["source"] for line in told] == ["tea", "milk"]
    assert all(len(line["vector"]) == 6 for line in told)
    assert run(capsys, "run", tmp_path / "run", "--play")[0] == 2


def test_one_model_translates_both_ways(pairs_file, small, tmp_path, capsys):
    folder = tmp_path / "run"
    how = ["--both-ways", "--steps", "60", "--batch-tokens", "600", "--rate", "0.02", "--checks", "1", *small]
    code, out, _ = run(capsys, "train", "translate", "--data", pairs_file, "--out", folder, *how)
    assert code == 0
    assert "bleu_back" in out
    there = run(capsys, "run", folder, "tea and water 3", "--beam", "1")[1]
    back = run(capsys, "run", folder, "Tee und Wasser 3", "--beam", "1", "--back")[1]
    assert there != back
    assert run(capsys, "run", folder, "tea", "--reverse")[0] == 2


def test_a_model_of_one_direction_refuses_the_other(small_run, capsys):
    code, _, err = run(capsys, "run", small_run, "Tee", "--back")
    assert code == 2
    assert "--both-ways" in err
