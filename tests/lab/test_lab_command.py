"""regard lab on the command line: the list, one experiment with its options, all on a page, errors."""

import re
from dataclasses import fields, replace
from html import escape
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from regard import lab as lab_package
from regard.cli import lab, main
from regard.lab import EXPERIMENTS, claim, experiment, mask, options_class, softmax
from regard.lab.result import LabResult, no_progress
from regard.lab.results_page import LabEntry, render_results
from regard.options import options_of

PNG = b"\x89PNG"
EVERY = pytest.mark.parametrize("name", EXPERIMENTS)


def run(capsys, *args):
    """Exit code, standard output, standard error."""
    try:
        code = main(["lab", *map(str, args)])
    except SystemExit as exit_:
        code = exit_.code
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize("args", [(), ("--help",), ("-h",)])
def test_without_a_name_the_command_lists_all_experiments(args, capsys):
    code, out, _ = run(capsys, *args)
    assert code == 0
    for name in EXPERIMENTS:
        assert re.search(rf"^  {name} +{re.escape(claim(name))}$", out, re.MULTILINE)


def test_every_experiment_is_listed():
    files = Path(lab_package.__file__).parent.glob("*.py")
    assert sorted(EXPERIMENTS) == sorted(file.stem for file in files if "\nQUICK = " in file.read_text("utf-8"))


@EVERY
def test_an_experiment_has_at_most_130_lines(name):
    assert Path(experiment(name).__file__).read_text("utf-8").count("\n") <= 130


@EVERY
def test_an_experiment_documents_its_claim_and_its_options(name):
    module = experiment(name)
    assert module.__doc__.startswith(f"{name}: ")
    assert re.search(r"^Claim \(deck [AMNRT]", module.__doc__, re.MULTILINE)
    kind = options_class(name)
    assert isinstance(module.QUICK, kind)
    assert [name for name, option in options_of(kind).items() if not option.help] == []
    assert {"output_dir"}.isdisjoint(field.name for field in fields(kind))


def test_an_unknown_name_is_refused_with_a_suggestion(capsys):
    code, out, err = run(capsys, "partty")
    assert (code, out) == (2, "")
    assert "unknown experiment 'partty': did you mean party?" in err


def test_one_experiment_prints_its_summary_and_writes_its_figure(quick, capsys, tmp_path):
    code, out, _ = run(capsys, "softmax", "--output-dir", tmp_path / "a" / "b")
    assert code == 0
    assert quick("softmax").summary in out
    assert f"It holds: {quick('softmax').expected}" in out
    assert "0.8808" in out
    assert [file.name for file in (tmp_path / "a" / "b").iterdir()] == ["softmax.png"]
    assert (tmp_path / "a" / "b" / "softmax.png").read_bytes().startswith(PNG)


def test_figures_go_to_runs_lab_by_default(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(capsys, "softmax")[0] == 0
    assert Path("runs/lab/softmax.png").exists()


def test_a_failed_claim_has_exit_code_1(capsys, tmp_path):
    code, out, _ = run(capsys, "softmax", "--width", "16", "--output-dir", tmp_path)
    assert code == 1
    assert "112 and 96 become 28 and 24" in out
    assert "It does NOT hold: 14 and 12" in out


def test_an_option_may_have_several_values(capsys, tmp_path):
    code, out, _ = run(
        capsys, "gradients", "--eigenvalues", "0.5", "1.5", "--steps", "40", "--dim", "4", "--output-dir", tmp_path
    )
    assert code == 0
    assert "if the largest eigenvalue is 0.5" in out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("party", "--people", "1"), "people must be at least 4, not 1"),
        (("saturation", "--dims", "4"), "dims must be two or more, each at least 1, not (4,)"),
        (("bottleneck", "--words", "3"), "words must be at least longest, since no word repeats, not 3"),
    ],
)
def test_an_option_out_of_range_is_refused_before_anything_is_written(args, message, capsys, tmp_path):
    code, out, err = run(capsys, *args, "--output-dir", tmp_path / "new")
    assert (code, out) == (2, "")
    assert message in err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("party", "--poeple", "9"), "--people"),
        (("party", "--people", "many"), "--people"),
        (("--all", "--people", "9"), "--people"),
    ],
)
def test_an_unknown_option_is_refused(args, message, capsys):
    code, out, err = run(capsys, *args)
    assert code == 2
    assert message in out + err


def test_help_has_the_claim_and_the_options(capsys):
    code, out, _ = run(capsys, "party", "--help")
    assert code == 0
    assert "who was it that I met first?" in out
    assert "--gamma" in out
    assert "after each guest" in out


@pytest.fixture(scope="module")
def everything(quick, tmp_path_factory):
    """All experiments with QUICK options: exit code, folder and entries. Results are those of the quick fixture."""
    folder, shown, runs = tmp_path_factory.mktemp("lab"), [], []
    with pytest.MonkeyPatch.context() as patch:
        for name, module in zip(EXPERIMENTS, map(experiment, EXPERIMENTS), strict=True):
            result = quick(name)
            patch.setattr(module, "run", lambda options, track, result=result: runs.append(options) or result)
        patch.setattr(lab, "options_class", lambda name: lambda: experiment(name).QUICK)
        patch.setattr(lab, "render_results", lambda entries: shown.extend(entries) or render_results(entries))
        code = main(["lab", "--all", "--output-dir", str(folder)])
    assert runs == [experiment(name).QUICK for name in EXPERIMENTS]
    return code, folder, {entry.name: entry for entry in shown}


def test_all_results_are_one_self_contained_page(everything):
    code, folder, _ = everything
    assert code == 0
    page = (folder / "index.html").read_text("utf-8")
    assert f"{len(EXPERIMENTS)} of {len(EXPERIMENTS)} claims" in page
    assert not re.search(r"https?:|src=\"(?!data:)|<script|<link|url\(", page)
    assert page.count('src="data:image/png;base64,') == len(EXPERIMENTS)
    assert "It does NOT hold" not in page


@EVERY
def test_each_result_is_on_the_page_with_its_figure(name, everything):
    _, folder, shown = everything
    page = (folder / "index.html").read_text("utf-8")
    assert f'<a href="#{name}">' in page
    assert f'<h2 id="{name}">{name}</h2><p class="soft">{escape(claim(name))}</p>' in page
    assert (folder / f"{name}.png").read_bytes() == shown[name].png
    assert shown[name].png.startswith(PNG)


@EVERY
def test_experiments_are_deterministic(name):
    """Except for times. A few training steps suffice."""
    options, run = experiment(name).QUICK, experiment(name).run
    if hasattr(options, "steps"):
        options = replace(options, steps=min(options.steps, 20))
    first, second = run(options, no_progress).table, run(options, no_progress).table
    assert len(first) == len(second) > 0
    for row, repeated in zip(first, second, strict=True):
        assert len({*map(tuple, (row, repeated, first[0]))}) == 1  # all rows have the same columns
        for column, value in repeated.items():
            if not column.startswith("ms, "):
                # LAPACK and MKL do not promise the last bit: how memory is aligned may change it.
                near = value if isinstance(value, str) else pytest.approx(value, rel=1e-6, abs=1e-12)
                assert row[column] == near, column


def test_one_failed_claim_of_all_has_exit_code_1(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(lab, "EXPERIMENTS", ("softmax", "mask"))
    options = {"softmax": softmax.SoftmaxOptions(width=16), "mask": mask.QUICK}
    monkeypatch.setattr(lab, "options_class", lambda name: lambda: options[name])
    code, out, _ = run(capsys, "--all", "--output-dir", tmp_path)
    page = (tmp_path / "index.html").read_text("utf-8")
    assert code == 1
    assert "1 of 2 claims" in page
    assert out.count("It does NOT hold") == page.count("It does NOT hold") == 1
    assert out.count("It holds") == page.count("It holds") == 1


def test_the_page_escapes_texts():
    result = LabResult(Figure(), [{"a<b": "<i>", "n": 1234.5678}], 'says "<b>"', "w & w", holds=True)
    page = render_results(
        [LabEntry("mask", "mask: is 1 < 2?\n\n    a < b\n      < c\n\nClaim: so\n`they` < say.\n", result, b"")]
    )
    assert (
        '<p class="soft">is 1 &lt; 2?</p><pre>a &lt; b\n  &lt; c</pre><p>Claim: so\n<code>they</code> &lt; say.</p>'
        in page
    )
    assert "<i>" not in page
    assert "&lt;i&gt;" in page
    assert "a&lt;b" in page
    assert "says &quot;&lt;b&gt;&quot;" in page
    assert "w &amp; w" in page
    assert "<td>1235</td>" in page


def test_the_progress_bar_yields_every_item(monkeypatch):
    for terminal in (True, False):
        monkeypatch.setattr(lab.sys.stdout, "isatty", lambda terminal=terminal: terminal, raising=False)
        assert list(lab.progress_bar([3, 1, 2])) == [3, 1, 2]
