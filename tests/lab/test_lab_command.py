"""regard lab as a user types it: the list, one experiment with its knobs, all of them on a page, what is refused."""

import re
from dataclasses import fields, replace
from html import escape
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from regard import lab as room
from regard.cli import lab, main
from regard.lab import EXPERIMENTS, claim, experiment, mask, softmax
from regard.lab.result import Finding, quietly
from regard.lab.results_page import Shown, site
from regard.training.settings import options_of

PNG = b"\x89PNG"
EVERY = pytest.mark.parametrize("name", EXPERIMENTS)


def run(capsys, *args):
    """Exit code, standard output, standard error."""
    try:
        code = main(["lab", *map(str, args)])
    except SystemExit as left:
        code = left.code
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize("args", [(), ("--help",), ("-h",)])
def test_without_a_name_it_lists_all(args, capsys):
    code, out, _ = run(capsys, *args)
    assert code == 0
    for name in EXPERIMENTS:
        assert re.search(rf"^  {name} +{re.escape(claim(name))}$", out, re.MULTILINE)


def test_every_file_that_is_an_experiment_is_in_the_list():
    files = Path(room.__file__).parent.glob("*.py")
    assert sorted(EXPERIMENTS) == sorted(file.stem for file in files if "class Knobs" in file.read_text("utf-8"))


@EVERY
def test_an_experiment_is_a_file_of_about_a_hundred_lines(name):
    assert Path(experiment(name).__file__).read_text("utf-8").count("\n") <= 125


@EVERY
def test_an_experiment_says_what_it_asks_and_who_claims_it_and_what_its_knobs_are(name):
    found = experiment(name)
    assert found.__doc__.startswith(f"{name}: ")
    assert re.search(r"^Claim \(deck [AMNRT]", found.__doc__, re.MULTILINE)
    assert isinstance(found.QUICK, found.Knobs)
    assert [option for option, told in options_of(found.Knobs).items() if not told.help] == []
    assert {"out"}.isdisjoint(field.name for field in fields(found.Knobs))


def test_an_unknown_name_is_refused_with_the_nearest(capsys):
    code, out, err = run(capsys, "partty")
    assert (code, out) == (2, "")
    assert "there is no experiment named 'partty': did you mean party?" in err


def test_one_experiment_prints_what_it_found_and_keeps_its_figure(quick, capsys, tmp_path):
    code, out, _ = run(capsys, "softmax", "--out", tmp_path / "a" / "b")
    assert code == 0
    assert quick("softmax").says in out
    assert f"It holds: {quick('softmax').wanted}" in out
    assert "0.8808" in out
    assert [file.name for file in (tmp_path / "a" / "b").iterdir()] == ["softmax.png"]
    assert (tmp_path / "a" / "b" / "softmax.png").read_bytes().startswith(PNG)


def test_the_figure_goes_to_runs_lab_unless_told_otherwise(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(capsys, "softmax")[0] == 0
    assert Path("runs/lab/softmax.png").exists()


def test_a_claim_that_does_not_hold_is_exit_code_1(capsys, tmp_path):
    code, out, _ = run(capsys, "softmax", "--width", "16", "--out", tmp_path)
    assert code == 1
    assert "112 and 96 become 28 and 24" in out
    assert "It does NOT hold: 14 and 12" in out


def test_a_knob_may_have_several_numbers(capsys, tmp_path):
    code, out, _ = run(
        capsys, "gradients", "--eigenvalues", "0.5", "1.5", "--steps", "40", "--dim", "4", "--out", tmp_path
    )
    assert code == 0
    assert "if the largest eigenvalue is 0.5" in out


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("party", "--people", "1"), "people must be at least 4, not 1"),
        (("saturation", "--dims", "4"), "dims must be two or more, each at least 1, not (4,)"),
        (("bottleneck", "--words", "3"), "words must be at least longest, since none comes twice, not 3"),
    ],
)
def test_a_knob_out_of_range_is_refused_before_anything_is_written(args, told, capsys, tmp_path):
    code, out, err = run(capsys, *args, "--out", tmp_path / "new")
    assert (code, out) == (2, "")
    assert told in err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("party", "--poeple", "9"), "--people"),
        (("party", "--people", "many"), "--people"),
        (("--all", "--people", "9"), "--people"),
    ],
)
def test_an_option_that_there_is_not_is_refused(args, told, capsys):
    code, out, err = run(capsys, *args)
    assert code == 2
    assert told in out + err


def test_help_of_an_experiment_has_its_claim_and_its_knobs(capsys):
    code, out, _ = run(capsys, "party", "--help")
    assert code == 0
    assert "who was it that I met first?" in out
    assert "--gamma" in out
    assert "after each guest" in out


@pytest.fixture(scope="module")
def everything(quick, tmp_path_factory):
    """All of them with the knobs for tests: exit code, folder, and what was found. Their runs are those of the tests
    of each."""
    folder, shown, asked = tmp_path_factory.mktemp("lab"), [], []
    with pytest.MonkeyPatch.context() as patch:
        for name, found in zip(EXPERIMENTS, map(experiment, EXPERIMENTS), strict=True):
            made = quick(name)
            patch.setattr(found, "Knobs", lambda knobs=found.QUICK: knobs)
            patch.setattr(found, "run", lambda knobs, tell, made=made: asked.append(knobs) or made)
        patch.setattr(lab, "site", lambda found: shown.extend(found) or site(found))
        code = main(["lab", "--all", "--out", str(folder)])
    assert asked == [experiment(name).QUICK for name in EXPERIMENTS]
    return code, folder, {one.name: one for one in shown}


def test_all_of_them_are_one_page_that_needs_nothing_else(everything):
    code, folder, _ = everything
    assert code == 0
    page = (folder / "index.html").read_text("utf-8")
    assert f"{len(EXPERIMENTS)} of {len(EXPERIMENTS)} claims" in page
    assert not re.search(r"https?:|src=\"(?!data:)|<script|<link|url\(", page)
    assert page.count('src="data:image/png;base64,') == len(EXPERIMENTS)
    assert "It does NOT hold" not in page


@EVERY
def test_each_has_its_place_on_the_page_and_its_figure_beside_it(name, everything):
    _, folder, shown = everything
    page = (folder / "index.html").read_text("utf-8")
    assert f'<a href="#{name}">' in page
    assert f'<h2 id="{name}">{name}</h2><p class="soft">{escape(claim(name))}</p>' in page
    assert (folder / f"{name}.png").read_bytes() == shown[name].picture
    assert shown[name].picture.startswith(PNG)


@EVERY
def test_the_same_knobs_find_the_same(name):
    """But for time, which is the machine's. A few steps of training are as good as many."""
    knobs, run = experiment(name).QUICK, experiment(name).run
    if hasattr(knobs, "steps"):
        knobs = replace(knobs, steps=min(knobs.steps, 20))
    once, again = run(knobs, quietly).table, run(knobs, quietly).table
    assert len(once) == len(again) > 0
    for row, other in zip(once, again, strict=True):
        assert len({*map(tuple, (row, other, once[0]))}) == 1  # all rows have the same columns
        for column, value in other.items():
            if not column.startswith("ms, "):
                # LAPACK and MKL do not promise the last bit: how memory is aligned may change it.
                near = value if isinstance(value, str) else pytest.approx(value, rel=1e-6, abs=1e-12)
                assert row[column] == near, column


def test_all_is_exit_code_1_if_one_does_not_hold(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(lab, "EXPERIMENTS", ("softmax", "mask"))
    narrow = softmax.Knobs(width=16)
    monkeypatch.setattr(softmax, "Knobs", lambda: narrow)
    monkeypatch.setattr(mask, "Knobs", lambda: mask.QUICK)
    code, out, _ = run(capsys, "--all", "--out", tmp_path)
    page = (tmp_path / "index.html").read_text("utf-8")
    assert code == 1
    assert "1 of 2 claims" in page
    assert out.count("It does NOT hold") == page.count("It does NOT hold") == 1
    assert out.count("It holds") == page.count("It holds") == 1


def test_a_page_escapes_what_it_says():
    finding = Finding(Figure(), [{"a<b": "<i>", "n": 1234.5678}], 'says "<b>"', "w & w", holds=True)
    page = site([Shown("mask", "mask: is 1 < 2?\n\n    a < b\n      < c\n\nClaim: so\n`they` < say.\n", finding, b"")])
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


def test_progress_is_shown_on_a_terminal_and_loses_nothing(monkeypatch):
    for terminal in (True, False):
        monkeypatch.setattr(lab.sys.stdout, "isatty", lambda terminal=terminal: terminal, raising=False)
        assert list(lab.shown([3, 1, 2])) == [3, 1, 2]
