"""The command line: every verb end to end, and the messages for wrong input."""

import gzip
import io
import json
import os
import re
import resource
import subprocess
import sys
from importlib import import_module

import pytest

from regard.cli import VERBS, main, static_options
from regard.cli.check import read_documents
from regard.cli.help import OPTION_GROUPS, PLAY_OPTIONS
from regard.cli.input_texts import read_lines, stream_chunks
from regard.cli.options import parse
from regard.data.splits import DataOptions, data_options_from_run
from regard.models import MODELS
from regard.options import options_of
from regard.tasks import TASKS
from regard.training.loop import TrainOptions
from regard.training.settings import options


def run(capsys, *args):
    """Exit code, standard output, standard error."""
    try:
        code = main([str(a) for a in args])
    except SystemExit as left:
        code = left.code
    out, err = capsys.readouterr()
    return code, out, err


def test_a_run_folder_is_complete(small_run):
    names = {f.name for f in small_run.iterdir()}
    expected = (
        "config.json generation_config.json tokenizer.json tokenizer_config.json model.safetensors task.json train.json"
    )
    assert {*expected.split(), "metrics.jsonl", "README.md", "loss.png", "LATEST", "step-40", "step-20"} <= names
    assert (small_run / "LATEST").read_text() == "step-40\n"
    lines = [json.loads(line) for line in (small_run / "metrics.jsonl").read_text().splitlines()]
    assert sum("loss" in line for line in lines) == 40
    assert [line["step"] for line in lines if "valid" in line] == [20, 40]


def test_run_prints_one_prediction_per_line(small_run, capsys):
    code, out, _ = run(capsys, "run", small_run, "tea and water", "milk please", "--num-beams", "2")
    assert code == 0
    assert len(out.splitlines()) == 2


def test_run_prints_json_lines_for_a_file(small_run, capsys, tmp_path):
    file = tmp_path / "in.txt"
    file.write_text("tea and water\n\nmilk please\n")
    code, out, _ = run(capsys, "run", small_run, "--file", file, "--json", "--num-return", "2", "--num-beams", "3")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [row["source"] for row in rows] == ["tea and water", "", "milk please"]
    assert [len(row["predictions"]) for row in rows] == [2, 1, 2]
    assert rows[1]["predictions"][0]["text"] == ""
    assert rows[0]["predictions"][0]["score"] >= rows[0]["predictions"][1]["score"]


def test_run_reads_standard_input(small_run, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"tea and water\nmilk please\n")))
    code, out, _ = run(capsys, "run", small_run, "--num-beams", "1")
    assert (code, len(out.splitlines())) == (0, 2)


def test_a_seed_determines_the_samples(small_run, capsys):
    ask = ("run", small_run, "tea and water", "--temperature", "1.5", "--num-return", "4", "--seed")
    first, second, third = (run(capsys, *ask, seed)[1] for seed in (3, 3, 4))
    assert first == second != third


def test_score_prints_metrics_and_writes_predictions(small_run, pairs_file, capsys, tmp_path):
    code, out, _ = run(
        capsys,
        "score",
        small_run,
        pairs_file,
        "--json",
        "--num-beams",
        "1",
        "--predictions",
        tmp_path / "predictions.txt",
    )
    scores = json.loads(out)
    assert code == 0
    assert scores["examples"] == 120
    assert 0 <= scores["bleu"] <= 100
    assert len((tmp_path / "predictions.txt").read_text().splitlines()) == 120


@pytest.fixture(scope="module")
def german(tmp_path_factory):
    """A classifier that was trained on a table as Excel writes it in German; the table, and the same in UTF-8."""
    folder = tmp_path_factory.mktemp("german")
    rows = [f"Es regnet, {i};Maß {i};naß" if i % 2 else f"Die Sonne scheint, {i};Maß {i};schön" for i in range(40)]
    text = "".join(f"{row}\r\n" for row in ["Wie ist es?;Nummer;Wörter", *rows])
    (folder / "a.csv").write_bytes(text.encode("cp1252"))
    (folder / "utf8.csv").write_bytes(text.encode())
    small = "--dim 8 --hidden 16 --context 16 --steps 2 --evals 1 --model pooled --tokenizer characters"
    fields = ["--fields", "Wie ist es?", "Wörter"]
    args = ["train", "classify", "--data", folder / "a.csv", "--encoding", "cp1252", *fields, *small.split()]
    assert main([str(arg) for arg in (*args, "--output-dir", folder / "run")]) == 0
    return folder


def test_score_reads_files_as_in_training(german, capsys):
    code, out, err = run(capsys, "score", german / "run", german / "a.csv", "--json")
    assert code == 0
    assert json.loads(out)["examples"] == 40
    assert "as in training: --fields 'Wie ist es?' 'Wörter' --encoding cp1252" in err
    assert json.loads((german / "run" / "task.json").read_text())["labels"] == ["naß", "schön"]


def test_typed_options_override_those_of_the_training(german, capsys, tmp_path):
    code, out, err = run(capsys, "score", german / "run", german / "utf8.csv", "--json", "--encoding", "utf-8")
    assert code == 0
    assert json.loads(out)["examples"] == 40
    assert "--encoding" not in err
    jsonl = tmp_path / "a.jsonl"  # another format: nothing is taken from the training
    jsonl.write_text('{"text": "Die Sonne scheint", "label": "schön"}\n', encoding="utf-8")
    code, out, err = run(capsys, "score", german / "run", jsonl, "--json")
    assert (code, err) == (0, "")
    code, _, err = run(capsys, "score", german / "run", german / "a.csv", "--separator", ",")
    assert code == 2
    assert "the header names 'Wie ist es?;Nummer;Wörter'" in err


def test_run_reads_other_encodings(german, capsys, tmp_path):
    file = tmp_path / "in.txt"
    for encoding in "cp1252", "utf-16":
        content = "schön\nnaß\n".encode(encoding)
        file.write_bytes(content)
        code, out, _ = run(capsys, "run", german / "run", "--file", file, "--encoding", encoding, "--json")
        assert code == 0
        assert [json.loads(line)["source"] for line in out.splitlines()] == ["schön", "naß"]
        args = [sys.executable, "-m", "regard", "run", str(german / "run"), "--json", "--encoding", encoding]
        process = subprocess.run(args, input=content, capture_output=True, check=True)
        assert [json.loads(line)["source"] for line in process.stdout.decode().splitlines()] == ["schön", "naß"]


def test_a_decoding_error_suggests_the_encoding_option(german, capsys, tmp_path, monkeypatch):
    file = broken(tmp_path, "in.txt", "schön\n".encode("cp1252"))
    for args in ["--file", file], ["--file", file, "--encoding", "ascii"]:
        code, _, err = run(capsys, "run", german / "run", *args)
        assert code == 2
        assert "in.txt" in err
        assert "--encoding" in err
    for encoding in "utf-8", "ascii":
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("schön\n".encode("cp1252"))))
        code, _, err = run(capsys, "run", german / "run", "--encoding", encoding)
        assert code == 2
        assert "standard input, line 1" in err
        assert "--encoding cp1252" in err


def test_read_texts_decodes_other_encodings(tmp_path):
    file = broken(tmp_path, "in.txt", "schön\nnaß\n".encode("cp1252"))
    assert [*read_documents(str(file), "cp1252")] == ["schön", "naß"]
    with pytest.raises(ValueError, match=r"in\.txt:1: bad UTF-8, .*--encoding cp1252"):
        [*read_documents(str(file), "utf-8")]


def test_the_test_file_is_read_like_training_files_of_its_format(tmp_path):
    rows = {"data": ["a.jsonl", "b.jsonl.gz"], "fields": ["body"], "encoding": "utf-16"}
    (tmp_path / "train.json").write_text(json.dumps(rows))
    files, flags = data_options_from_run(tmp_path, ("c.jsonl",), separator=None)
    assert (files.fields, files.encoding, files.separator) == (("body",), "utf-16", None)
    assert flags == "--fields body --encoding utf-16"
    assert data_options_from_run(tmp_path, ("c.txt",)) == (DataOptions(data=("c.txt",)), "")
    (tmp_path / "train.json").write_text('{"data": ["a.jsonl"], "fields": "body"}')
    with pytest.raises(ValueError, match=r"train\.json: fields cannot be 'body'"):
        data_options_from_run(tmp_path, ("c.jsonl",))


@pytest.mark.parametrize(
    ("args", "names", "message"),
    [
        ("classify --model bert", ["cat/1.png", "dog/2.JPG"], "images, which bert .*--model resnet or --model vit"),
        ("classify --model bert", ["train-images-idx3-ubyte"], "images, which bert .*--model resnet or --model vit"),
        ("classify --modality text", ["seven_1.wav", "six_1.flac"], "recordings, which text .*--model audio_encoder"),
        ("classify --model vit", ["seven/1.wav"], "recordings, which vit .*--model audio_encoder"),
        ("translate --model transformer", ["seven/1.wav"], "recordings, which transformer .*--model speech2text"),
        ("regress", ["cat/1.png"], "regress reads texts, molecules, series, not images: choose --model modernbert or "),
        ("classify", ["cat/1.png", "dog/2.JPG"], "2 not an image .first .*1.png"),
        ("classify", ["seven_1.wav", "six_1.flac"], "2 not a sound .first .*seven_1.wav"),
        ("classify", ["notes/a.txt"], "this is a folder; name the file"),
    ],
)
def test_a_folder_of_files_shows_its_modality(args, names, message, capsys, tmp_path):
    for name in names:
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / name).touch()
    code, _, err = run(capsys, "train", *args.split(), "--data", tmp_path / "data", "--output-dir", tmp_path / "run")
    assert code == 2
    assert re.search(message, err)


@pytest.mark.parametrize("verb", [*VERBS, "train translate", "lab party"])
def test_every_verb_has_help(verb, capsys):
    code, out, err = run(capsys, *verb.split(), "--help")
    assert (code, err) == (0, "")
    assert out.startswith("usage: regard ")
    if " " not in verb:
        assert run(capsys, verb, "-h")[1] == out == run(capsys, "help", verb)[1]


def test_help_does_not_import_torch():
    """One process for all verbs."""
    code = f"from regard.cli import main; [main([verb, '--help']) for verb in {[*VERBS]}]"
    code = f"import sys; {code}; assert 'torch' not in sys.modules; assert 'numpy' not in sys.modules"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert process.stderr == ""
    assert process.stdout.count("usage: regard") == len(VERBS)


def test_static_options_equal_those_of_the_classes():
    """Every dataclass that help shows without importing it has the options, types, defaults and texts of the class."""
    groups = {group for groups in OPTION_GROUPS.values() for group in groups} | {PLAY_OPTIONS}
    for module, name in groups:
        assert static_options.options(module, name) == options_of(getattr(import_module(module), name)), (module, name)
    assert [*static_options.tasks()] == [*TASKS]
    for name, definition in static_options.tasks().items():
        module, node = static_options.decode_options(definition)
        assert static_options.options(module, node.name) == options_of(TASKS[name].decode_options), name
        assert (
            static_options.literal_value(static_options.class_attribute(definition, "description"))
            == TASKS[name].description
        )
        assert (
            static_options.literal_value(static_options.class_attribute(definition, "can_play")) == TASKS[name].can_play
        )
    assert OPTION_GROUPS.keys() | {"train", "lab", "models", "tasks"} == VERBS.keys()


@pytest.mark.parametrize("verb", ["run", "score"])
def test_help_without_a_model_lists_the_options_of_every_task(verb, capsys):
    _, out, _ = run(capsys, verb, "--help")
    sections = {lines.split("\n")[0]: " ".join(lines.split()) for lines in out.split("\n\n")}
    assert re.search(r"--temperature FLOAT [^-]*\(default: 0\.8\)", sections["write"])
    assert re.search(r"--top-p FLOAT [^-]*\(default: 0\.95\)", sections["write"])
    assert re.search(r"--temperature FLOAT [^-]*\(default: 0\.0\)", sections["translate"])
    assert re.search(r"--num-beams INT .*?\(default: 4\)", sections["translate"])
    assert re.search(r"--num-return INT [^-]*\(default: 5\)", sections["fill"])
    assert "--prompt STR" in sections["match"]
    assert {name for names in sections for name in names.split(", ")} >= {*TASKS}
    assert ("--gif STR" in out) == (verb == "run")
    assert ("--cache STR" in out) == (verb == "score")


def test_a_beam_without_effect_prints_a_note(writer, small_run, capsys):
    _, greedy, quiet = run(
        capsys, "run", writer, "tea", "--num-beams", "1", "--temperature", "0", "--max-new-tokens", "5"
    )
    _, _, rows = run(capsys, "run", writer, "tea", "--num-beams", "1", "--max-new-tokens", "5")
    assert quiet == run(capsys, "run", small_run, "tea", "--num-beams", "1")[2] == ""
    assert "sampled, and --num-beams has no effect: add --temperature 0 for greedy" in rows
    assert greedy == run(capsys, "run", writer, "tea", "--temperature", "0", "--max-new-tokens", "5")[1]


def test_a_flag_that_is_on_by_default_is_turned_off(capsys):
    _, out, _ = run(capsys, "train", "translate", "--help")
    text = " ".join(out.replace("│", " ").split())
    assert "--no-scale-embedding turn off: multiply token embeddings by √dim" in text
    available = options("translate", "transformer", "tiny")
    assert available["scale_embedding"].default is True
    assert parse("test", ["--no-scale-embedding"], available)["scale_embedding"] is False
    assert "scale_embedding" not in parse("test", [], available)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("train translate --modle vit", "unknown option --modle: did you mean --model?"),
        ("train translate --max_grad_norm 1", "unknown option --max_grad_norm: did you mean --grad-clip?"),
        ("train translate --learning-rate=0.1", "unknown option --learning-rate: did you mean --lr?"),
        (
            "train translate --scale-embedding",
            "--scale-embedding is on by default, and --no-scale-embedding turns it off",
        ),
        ("train translate --no-lowercase", "--lowercase is off by default"),
        ("train translate --xyzzy", "unknown option --xyzzy: --help lists"),
        ("train translate --lr abc", "--lr must be a number, not 'abc'"),
        ("train translate --steps=3.5", "--steps must be a whole number, not '3.5'"),
        ("train translate --steps 3 --lr", "--lr needs a value"),
        ("score --delimiter , a b", "unknown option --delimiter: did you mean --separator?"),
        ("check a --devise cpu", "unknown option --devise: did you mean --device?"),
        ("demo --output runs/x", "unknown option --output: did you mean --output-dir?"),
        ("train text-generaton", "unknown task 'text-generaton': did you mean text-generation?"),
        ("version", "unknown verb 'version': did you mean --version?"),
        ("trian", "unknown verb 'trian': did you mean train?"),
    ],
)
def test_unknown_names_get_a_suggestion(args, message, capsys):
    code, out, err = run(capsys, *args.split())
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert message in err


def test_hugging_face_task_names_and_the_short_output_option(tmp_path, capsys):
    (tmp_path / "story.txt").write_text("You go.\n> stay\nYou stay.\n" * 40)
    small = "--dim 8 --hidden 8 --heads 2 --layers 1 --context 16 --tokenizer characters --steps 2 --evals 1"
    args = ("--data", tmp_path / "story.txt", "-o", tmp_path / "run", "--cache", tmp_path / "cache", *small.split())
    assert run(capsys, "train", "text-generation", *args)[0] == 0
    assert json.loads((tmp_path / "run" / "task.json").read_text())["task"] == "write"
    code, out, _ = run(capsys, "train", "write", "--resume", f"-o{tmp_path / 'run'}")
    assert code == 0
    assert "a finished run" in out
    assert "--output-dir" in run(capsys, "train", "text-generation", *args, "--steps", "3")[2]
    assert run(capsys, "train", "translation", "--help")[1].startswith("usage: regard train translate")


def test_options_may_be_spelled_with_underscores(capsys, tmp_path):
    code, _, err = run(
        capsys, "train", "translate", "--data", tmp_path / "none.tsv", "--batch_tokens", "64", "--skip_bad"
    )
    assert code == 2
    assert "none.tsv: no such file" in err


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
    "a vocabulary too large": (["train", "translate", "--data", "{good}", "--vocab-size", "5000"], "5000"),
    "heads that do not divide": (["train", "translate", "--data", "{good}", "--dim", "10", "--heads", "4"], "4"),
    "a sentence longer than the context": (["train", "translate", "--data", "{good}", "--context", "2"], "context"),
    "a dropout of one": (["train", "translate", "--data", "{good}", "--dropout", "1"], "dropout"),
    "a device that is not there": (["train", "translate", "--data", "{good}", "--device", "gpu0"], "gpu0"),
    "a folder that is no model": (["run", "{tmp}", "tea"], "config.json"),
    "a folder that is not there": (["run", "{tmp}/nowhere", "tea"], "nowhere"),
    "no folder, with an option of some tasks": (["run", "{tmp}/nowhere", "tea", "--stop", "x"], "nowhere"),
    "a beam of nothing": (["run", "{run}", "tea", "--num-beams", "0"], "beam"),
    "more answers than beams": (["run", "{run}", "tea", "--num-beams", "2", "--num-return", "3"], "num-return"),
    "a text too long for the model": (["run", "{run}", "{much}"], "context"),
    "two sources of text": (["run", "{run}", "tea", "--file", "{good}"], "--file"),
    "a text file that is not UTF-8": (["run", "{run}", "--file", "{latin}"], "latin.tsv:2"),
    "nothing to score on": (["score", "{run}"], "score needs test files"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_wrong_input_gets_one_message_and_exit_code_2(name, small_run, pairs_file, capsys, tmp_path):
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
    where = [] if args[0] != "train" else ["--output-dir", tmp_path / "run"]
    code, out, err = run(capsys, *(a.format(**files) for a in args), *where)
    assert code == 2
    assert word in err + out
    assert "Traceback" not in err + out
    assert not (tmp_path / "run" / "config.json").exists()


def test_a_run_is_not_replaced_without_overwrite(small_run, pairs_file, capsys):
    before = (small_run / "model.safetensors").read_bytes()
    code, _, err = run(capsys, "train", "translate", "--data", pairs_file, "--output-dir", small_run, "--steps", "1")
    assert code == 2
    assert "--overwrite" in err
    assert (small_run / "model.safetensors").read_bytes() == before


def test_a_folder_that_is_no_run_is_never_replaced(pairs_file, capsys, tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    code, _, err = run(
        capsys, "train", "translate", "--data", pairs_file, "--output-dir", tmp_path, "--overwrite", "--steps", "1"
    )
    assert code == 2
    assert "not a run" in err
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_a_run_that_stopped_at_its_start_is_replaced(pairs_file, small, capsys, tmp_path):
    folder = tmp_path / "run"
    command = (
        "train",
        "translate",
        "--data",
        pairs_file,
        "--output-dir",
        folder,
        "--overwrite",
        "--steps",
        "1",
        *small,
    )
    folder.mkdir()
    for name in (".lock", "config.json", "tokenizer.json"):
        (folder / name).write_text("")
    (folder / "thesis.txt").write_text("years of work")
    assert run(capsys, *command)[0] == 2, "not if another file exists"
    (folder / "thesis.txt").unlink()
    (folder / ".lock").unlink()
    assert run(capsys, *command)[0] == 2, "nor without a lock: it may be a model"
    (folder / ".lock").write_text("")
    assert run(capsys, *command[:6], *command[7:])[0] == 0, "even without --overwrite: nothing is lost"
    assert (folder / "train.json").is_file()
    assert run(capsys, *command)[0] == 0


def test_minutes_become_steps_and_a_complete_schedule(pairs_file, small, capsys, tmp_path):
    options = (
        "--data",
        pairs_file,
        "--minutes",
        "0.1",
        "--output-dir",
        tmp_path / "run",
        "--batch-tokens",
        "300",
        *small,
    )
    code, out, _ = run(capsys, "train", "translate", *options)
    settings = json.loads((tmp_path / "run" / "train.json").read_text())
    assert code == 0
    assert f"--steps {settings['steps']}" in out
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    rates = [line["lr"] for line in lines if "lr" in line]
    revisions = tuple(json.loads((tmp_path / "run" / f"step-{len(rates)}" / "state.json").read_text())["revisions"])
    planned = TrainOptions(
        **{name: settings[name] for name in TrainOptions.__dataclass_fields__} | {"revisions": revisions}
    )
    assert rates == [planned.lr_at(step) for step in range(len(rates))]
    assert rates[-1] <= 0.02 * max(rates)
    assert f"{len(rates):,} steps completed" in out, "not those that were planned"


def test_few_validation_examples_print_a_warning_and_standard_errors(capsys, tmp_path):
    data = broken(tmp_path, "data.tsv", "".join(f"text {i} {'ab'[i % 2]}\t{'ab'[i % 2]}\n" for i in range(60)))
    options = ("--steps", "2", "--evals", "1", "--model", "pooled", "--dim", "8", "--hidden", "8")
    code, out, _ = run(capsys, "train", "classify", "--data", data, "--output-dir", tmp_path / "run", *options)
    assert code == 0
    count = int(re.search(r"(\d+) texts for validation;", out)[1])
    assert 6 <= count <= 20, "a fifth, not one of sixty"
    assert f"warning: {count} examples for validation" in out
    assert re.search(r"accuracy \d+\.\d\d ±\d+\.\d", out)


def test_a_pipe_is_answered_line_by_line(small_run):
    """As a coprocess: write a line, wait for the answer, write the next."""
    process = subprocess.Popen(
        [sys.executable, "-m", "regard", "run", str(small_run), "--num-beams", "1", "--json"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    for number, text in enumerate(["tea and water", "", "milk please"]):
        process.stdin.write(text + "\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["number"] == number
    process.communicate()
    assert process.returncode == 0


def test_run_reads_gzip_and_skips_a_byte_order_mark(small_run, capsys, tmp_path):
    file = broken(tmp_path, "in.txt.gz", gzip.compress("\ufefftea and water\r\nmilk please\n".encode()))
    _, out, _ = run(capsys, "run", small_run, "--file", file, "--json", "--num-beams", "1")
    assert [json.loads(line)["source"] for line in out.splitlines()] == ["tea and water", "milk please"]


def test_a_validation_sentence_too_long_is_named_before_training(pairs_file, small, capsys, tmp_path):
    valid = broken(tmp_path, "valid.tsv", "tea\tTee\n" + "tea " * 90 + "\tTee\n")
    options = ("--data", pairs_file, "--valid", valid, "--output-dir", tmp_path / "run", "--steps", "3", *small)
    code, _, err = run(capsys, "train", "translate", *options)
    assert code == 2
    assert "valid.tsv:2" in err


def test_single_words_improve_although_their_bleu_is_zero(small, capsys, tmp_path):
    letters = "abcdefghijkl"
    rows = [f"{a}{b}\t{a.upper()}{b.upper()}\n" for a in letters for b in letters]
    options = (
        "--tokenizer",
        "characters",
        "--steps",
        "60",
        "--lr",
        "0.02",
        "--evals",
        "6",
        "--output-dir",
        tmp_path / "run",
    )
    code, out, _ = run(
        capsys, "train", "translate", "--data", broken(tmp_path, "w.tsv", "".join(rows)), *options, *small
    )
    assert code == 0
    assert "best at step 10:" not in out


def test_the_public_names_are_functions_after_any_import():
    import regard
    import regard.batch_invariant  # noqa: F811
    import regard.load
    import regard.look  # noqa: F811

    assert callable(regard.load)
    assert callable(regard.look)
    assert callable(regard.page)
    assert callable(regard.reproducible)
    assert callable(regard.train)
    with pytest.raises(AttributeError, match="it has LoadedModel, load, look, page, reproducible, train"):
        regard.trian  # noqa: B018


def test_a_closed_pipe_is_no_error(small_run, tmp_path):
    file = broken(tmp_path, "many.txt", "tea and water\n" * 3000)
    command = f"{sys.executable} -m regard run {small_run} --num-beams 1 --file {file} | head -1"
    process = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert len(process.stdout.splitlines()) == 1
    assert [line for line in process.stderr.splitlines() if not line.startswith("regard: compiling")] == []


def test_models_and_tasks_list_everything(capsys):
    code, out, _ = run(capsys, "models")
    assert code == 0
    assert all(name in out for name in MODELS)
    assert "gpt3 17" in out, "counted without being built"
    code, out, _ = run(capsys, "tasks")
    assert code == 0
    assert all(name in out and kind.description in out for name, kind in TASKS.items())
    assert run(capsys, "models", "gpt")[0] == 2


@pytest.fixture(scope="module")
def writer(tmp_path_factory):
    """A character-level language model of one story."""
    folder = tmp_path_factory.mktemp("writer")
    (folder / "story.txt").write_text("You are here.\n> go\nYou go.\n> stay\nYou stay.\n" * 60)
    small = "--dim 32 --hidden 32 --heads 2 --layers 1 --context 32 --tokenizer characters --evals 1"
    args = [
        "train",
        "write",
        "--data",
        folder / "story.txt",
        "--output-dir",
        folder / "run",
        "--cache",
        folder / "cache",
    ]
    assert main([*map(str, args), *small.split(), "--steps", "150", "--batch-tokens", "512", "--lr", "0.02"]) == 0
    return folder / "run"


def test_score_caches_tokens_in_the_named_folder(writer, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    story = broken(tmp_path, "other.txt", "You are here.\n> stay\nYou stay.\n" * 9)
    os.utime(story, (0, 1e9))  # so old that its length and hash are stored
    code, _, _ = run(capsys, "score", writer, story, "--cache", tmp_path / "cache", "--max-new-tokens", "5")
    assert code == 0
    assert {file.suffix for file in (tmp_path / "cache").glob("*/*")} == {".tokens", ".json"}
    assert len([*(tmp_path / "cache" / "summaries").iterdir()]) == 1
    assert not (tmp_path / "home").exists()


def test_only_tasks_that_cache_tokens_have_the_option(small_run, pairs_file, capsys, tmp_path):
    code, out, err = run(capsys, "score", small_run, pairs_file, "--cache", tmp_path)
    assert code == 2
    assert "--cache" in out + err


def test_a_story_is_played_in_turns(writer, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("go\nstay\n\n"))
    code, out, _ = run(capsys, "run", writer, "You are here.", "--play", "--temperature", "0", "--max-new-tokens", "40")
    assert code == 0
    assert out.splitlines() == ["You are here.", "You go.", "You stay.", "You are here."]


def test_a_prompt_longer_than_the_context_is_continued(writer, capsys):
    prompt = "You are here.\n> go\nYou go.\n> stay\nYou stay.\n"
    code, out, _ = run(capsys, "run", writer, prompt, "--temperature", "0", "--max-new-tokens", str(len(prompt)))
    assert (code, out) == (0, 2 * prompt + "\n")


def test_embed_prints_one_vector_per_text(tmp_path, capsys):
    (tmp_path / "rows.tsv").write_text("".join(f"tea {i}\thot\nmilk {i}\tcold\n" for i in range(40)))
    small = ["--model", "pooled", "--dim", "6", "--hidden", "5", "--steps", "2", "--evals", "1"]
    assert (
        run(capsys, "train", "classify", "--data", tmp_path / "rows.tsv", "--output-dir", tmp_path / "run", *small)[0]
        == 0
    )
    code, out, _ = run(capsys, "run", tmp_path / "run", "--embed", "tea", "milk")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [line["source"] for line in rows] == ["tea", "milk"]
    assert all(len(line["vector"]) == 6 for line in rows)
    assert run(capsys, "run", tmp_path / "run", "--play")[0] == 2


def test_one_model_translates_both_ways(pairs_file, small, tmp_path, capsys):
    folder = tmp_path / "run"
    options = ["--both-ways", "--steps", "60", "--batch-tokens", "600", "--lr", "0.02", "--evals", "1", *small]
    code, out, _ = run(capsys, "train", "translate", "--data", pairs_file, "--output-dir", folder, *options)
    assert code == 0
    assert "bleu_back" in out
    forward = run(capsys, "run", folder, "tea and water 3", "--num-beams", "1")[1]
    back = run(capsys, "run", folder, "Tee und Wasser 3", "--num-beams", "1", "--back")[1]
    assert forward != back
    assert run(capsys, "run", folder, "tea", "--reverse")[0] == 2


def test_a_unidirectional_translator_refuses_the_reverse(small_run, capsys):
    code, _, err = run(capsys, "run", small_run, "Tee", "--back")
    assert code == 2
    assert "--both-ways" in err


# Very long lines.


class Line(io.RawIOBase):
    """A line of 100 MB that counts the bytes read of it."""

    def __init__(self):
        self.left, self.size = 100 << 20, 0

    def readable(self):
        return True

    def readinto(self, room):
        count = min(len(room), self.left)
        room[:count] = b"a" * count
        self.left, self.size = self.left - count, self.size + count
        return count


def test_a_very_long_line_of_standard_input_is_refused_early():
    line = Line()
    with pytest.raises(ValueError, match="line 1: the line exceeds 1 MB, the maximum length of an input"):
        list(stream_chunks(read_lines(io.BufferedReader(line))))
    assert line.size < 4 << 20
    just = b"a" * (1 << 20)
    assert sum(list(stream_chunks(read_lines(io.BytesIO(just + b"\r\n" + just + b"\nb")))), []) == [
        *[just.decode()] * 2,
        "b",
    ]


@pytest.mark.parametrize("packed", [False, True])
def test_a_very_long_line_of_a_file_is_refused_early(small_run, capsys, tmp_path, packed):
    text = b"tea\n" + b"a" * (3 << 20)
    file = tmp_path / "in.txt"
    file.write_bytes(gzip.compress(text) if packed else text)
    code, _, err = run(capsys, "run", small_run, "--file", file)
    assert code == 2
    assert f"{file}:2: the line exceeds 1 MB, the maximum length of an input" in err


def test_a_very_long_turn_is_refused(writer, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("a" * (3 << 20)))
    code, _, err = run(capsys, "run", writer, "You are here.", "--play", "--temperature", "0", "--max-new-tokens", "4")
    assert code == 2
    assert "standard input: the line exceeds 1 MB" in err


# Closed streams, arguments that are not UTF-8, too little memory.

REGARD = [sys.executable, "-m", "regard"]


def training(pairs_file, small, folder):
    options = ["--steps", "6", "--evals", "3", "--threads", "1", "--batch-tokens", "300"]
    return [*REGARD, "train", "translate", "--data", str(pairs_file), "--output-dir", str(folder), *options, *small]


def is_whole(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "loss" in line] == [1, 2, 3, 4, 5, 6]
    assert (folder / "README.md").is_file()
    assert (folder / "model.safetensors").is_file()


def test_training_continues_after_its_pipe_closes(pairs_file, small, tmp_path):
    """As with | head -1."""
    command = training(pairs_file, small, tmp_path / "run")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout.readline()
        process.stdout.close()
        assert process.wait() == 0
    is_whole(tmp_path / "run")


def test_standard_streams_may_be_closed(pairs_file, small, tmp_path):
    command = training(pairs_file, small, tmp_path / "run")
    assert subprocess.run(["sh", "-c", '"$@" <&- >&- 2>&-', "sh", *command]).returncode == 0
    is_whole(tmp_path / "run")


@pytest.mark.parametrize("args", [["run", "somewhere"], ["train", "translate", "--data"], []])
def test_an_argument_that_is_not_utf8_is_refused(args):
    process = subprocess.run([*REGARD, *args, b"caf\xe9"], capture_output=True)
    rows = (
        f"regard: argument {len(args) + 1} is not UTF-8 at byte 4: b'caf\\xe9'; convert the text or rename the file\n"
    )
    assert (process.returncode, process.stdout, process.stderr.decode()) == (2, b"", rows)


@pytest.mark.parametrize("megabytes", [200, 480, 570])
def test_too_little_memory_for_pytorch_is_one_message(megabytes):
    """Depending on the limit, the import fails or PyTorch calls abort()."""

    def limited():
        resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))

    process = subprocess.run([*REGARD, "models"], capture_output=True, text=True, preexec_fn=limited)
    assert (process.returncode, process.stdout) == (2, "")
    assert process.stderr.startswith("regard: out of memory")
    assert f"raise the limit of {megabytes} MB (ulimit -v)" in process.stderr
    assert process.stderr.count("\n") == 1


def test_a_later_allocation_failure_is_one_message(monkeypatch, capsys):
    import torch

    from regard.cli import models

    monkeypatch.setattr(models, "main", lambda _: torch.empty(1 << 60))
    code, _, err = run(capsys, "models")
    assert code == 2
    assert err.startswith("regard: out of memory (")
    assert err.count("\n") == 1
