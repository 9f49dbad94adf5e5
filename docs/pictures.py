"""Draws the pictures of these pages with the package's own functions.

python docs/pictures.py                            all that need no run
python docs/pictures.py --runs runs                also those of trained models: of the runs below that are in there
python docs/pictures.py --lab                      also one of each experiment, as `regard lab NAME` does it
python docs/pictures.py --lab recall depth         of these experiments only

regard demo && regard train classify --model vit && regard train match && regard train predict &&
regard train decide --returns
regard train predict --env CartPole-v1 --out runs/cart
regard train tag --model chain --out runs/tag-chain
regard train regress --model graph --out runs/paths
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import fill
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from matplotlib import rcParams
from matplotlib.figure import Figure
from PIL import Image
from rdkit.Chem.rdDepictor import Compute2DCoords
from torch import Tensor

from regard.data.bundled import ball as bundled_ball
from regard.data.bundled import cart as bundled_cart
from regard.data.bundled import chains, paths, phrasebook, voices
from regard.data.bundled import shapes as bundled_shapes
from regard.data.episodes import video
from regard.data.films import save_told
from regard.data.hearing import Hearing, hidden
from regard.data.mels import Mels, normal
from regard.data.molecules import asked_for, rdkit
from regard.lab import EXPERIMENTS, experiment, options_class
from regard.lab.optimize import lr_schedule, optimize
from regard.lab.result import no_progress
from regard.lab.toy_language import MASK, PAD, SENTENCE, WORDS, all_sentences
from regard.load import LoadedModel, load
from regard.look import look
from regard.models.gpt import GPT, GPTConfig
from regard.parts.attention import weights_openly
from regard.parts.heads import Model
from regard.parts.positions import Alibi, RelativeBias, Rotary, sinusoids
from regard.parts.stems import Patches
from regard.rl.cartpole import CartPole
from regard.rl.environment import Environment
from regard.rl.environment import rollout as act
from regard.rl.policy import Policy, greedy_policy
from regard.rl.sequence_policy import SequencePolicy, play_in_parallel
from regard.tasks.decide import Wishes
from regard.tasks.rollout import rolled
from regard.training import schedule
from regard.training.run import Run
from regard.view import render_cartpole
from regard.view.alignment import save_alignment
from regard.view.attention_rollout import pooling_weights, rollout
from regard.view.figures import lens_figure
from regard.view.logit_lens import logit_lens
from regard.view.loss_curve import loss_curve
from regard.view.report import page
from regard.view.return_curves import plot_returns
from regard.view.trace import trace_text

HERE = Path(__file__).parent / "pictures"
BIKE = "The nice boys bought their bike because it was cheap."  # never seen in training
rcParams.update({"font.size": 9, "axes.titlesize": 9})


def positions(file: Path) -> None:
    """20 positions of 512 numbers: half of the columns are sines, half cosines, each half from fast to slow."""
    figure = Figure(figsize=(8, 2.6), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(sinusoids(20, 512), cmap="RdBu", vmin=-1, vmax=1, aspect="auto", interpolation="nearest")
    axes.axvline(255.5, color="k", linewidth=0.8)
    axes.set_xticks([0, 128, 256, 384, 511])
    axes.set_yticks([0, 5, 10, 15, 19])
    axes.set_xlabel("column of 512: sines, then cosines")
    axes.set_ylabel("position")
    figure.colorbar(image, ticks=[-1, 0, 1], pad=0.01)
    figure.savefig(file, dpi=100)


def counter(file: Path) -> None:
    """A binary counter beside sines: from column to column both turn about half as fast."""
    rows, columns, dim = 16, 4, 24
    binary = np.arange(rows)[:, None] >> np.arange(columns) & 1
    sines = sinusoids(rows, dim)[:, :columns].numpy()
    figure = Figure(figsize=(6, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.imshow(binary, cmap="Greys", vmin=-0.3, vmax=1.6, aspect="auto")
    for (row, column), bit in np.ndenumerate(binary):
        left.text(column, row, str(bit), ha="center", va="center", color="w" if bit else "k")
    left.set_title("binary counter")
    left.set_xticks(range(columns), [f"period {2 ** (c + 1)}" for c in range(columns)], rotation=20)
    right.imshow(sines, cmap="RdBu", vmin=-1, vmax=1, aspect="auto")
    for (row, column), sine in np.ndenumerate(sines):
        right.text(column, row, f"{sine:.1f}", ha="center", va="center", color="w" if abs(sine) > 0.6 else "k")
    right.set_title(f"sinusoids({rows}, {dim}), its first {columns} columns")
    periods = [2 * np.pi * 10_000 ** (2 * c / dim) for c in range(columns)]
    right.set_xticks(range(columns), [f"period {p:.1f}" for p in periods], rotation=20)
    for axes in (left, right):
        axes.set_yticks(range(rows))
        axes.set_ylabel("position")
    figure.savefig(file, dpi=100)


def distance(file: Path) -> None:
    table = sinusoids(400, 512)
    figure = Figure(figsize=(7, 3), layout="constrained")
    axes = figure.subplots()
    for start, colour, width in ((100, "lightsteelblue", 8), (150, "tab:orange", 4), (300, "k", 1)):
        away = torch.arange(-100, 100)
        axes.plot(
            away, table[start + away] @ table[start], color=colour, linewidth=width, label=f"from position {start}"
        )
    axes.set_xlabel("distance")
    axes.set_ylabel("dot product")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(file, dpi=100)


def schedules(file: Path) -> None:
    steps, warmup = 1000, 100
    number = range(steps)
    figure = Figure(figsize=(7, 2.8), layout="constrained")
    axes = figure.subplots()
    axes.plot(number, [schedule.decay(n, steps, warmup, 0.6) for n in number], label="decay")
    axes.plot(number, [schedule.inverse_square_root(n, warmup) for n in number], label="inverse-square-root")
    axes.set_xlabel(f"step of {steps}, {warmup} of them warm-up")
    axes.set_ylabel("share of --rate")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(file, dpi=100)


def causal(file: Path) -> None:
    """Four words with made-up queries and keys: scores, mask, weights."""
    words = ["Tee", "und", "Wasser", "bitte"]
    made = torch.Generator().manual_seed(4)
    q, k = (torch.randn(1, 1, 4, 8, generator=made) * 1.5 for _ in range(2))
    scores = (q @ k.mT / 8**0.5)[0, 0]
    seen = torch.ones(4, 4, dtype=torch.bool).tril()
    tables = {
        "scores / √E": scores,
        "masked": scores.masked_fill(~seen, -torch.inf),
        "weights: each row sums to 1": weights_openly(q, k, causal=True)[0, 0],
    }
    figure = Figure(figsize=(8, 3), layout="constrained")
    for axes, (title, table) in zip(figure.subplots(1, 3), tables.items(), strict=True):
        weights = title.startswith("weights")
        axes.imshow(table, cmap="Blues" if weights else "RdBu", vmin=0 if weights else -4, vmax=1 if weights else 4)
        for (row, column), value in np.ndenumerate(table.numpy()):
            dark = value > 0.5 if weights else 2.4 < abs(value) < np.inf
            text = f"{value:.2f}".replace("-inf", "-∞")
            axes.text(column, row, text, ha="center", va="center", color="w" if dark else "k")
        axes.set_title(title)
        axes.set_xticks(range(4), words)
        axes.set_yticks(range(4), words)
        axes.set_xlabel("answers")
        axes.set_ylabel("asks")
    figure.savefig(file, dpi=100)


def relative(file: Path) -> None:
    """What three kinds of positions do to a score, by distance: rotary, ALiBi, relative bias."""
    figure = Figure(figsize=(8, 2.9), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    ones = torch.ones(1, 1, 201, 64)
    q, k = Rotary(64, 201)(ones, ones, 0)
    scores = (q @ k.mT)[0, 0]
    for start, colour, width in ((100, "lightsteelblue", 7), (150, "tab:orange", 3), (200, "k", 1)):
        left.plot(scores[start].flip(0)[200 - start :][:100], color=colour, linewidth=width, label=f"from {start}")
    left.set_title("rotary: score of two equal vectors")
    left.legend()
    for slope, bias in zip(("1/4", "1/16", "1/64", "1/256"), Alibi(4)(1, 64)[0, :, 0], strict=True):
        middle.plot(bias.flip(0), label=f"slope {slope}")
    middle.set_title("ALiBi: what each of 4 heads adds")
    middle.legend(loc="lower left", handlelength=1)
    right.step(range(200), RelativeBias(1, causal=True).buckets(1, 200)[0].flip(0), where="mid")
    right.set_title("relative bias: which of 32 numbers")
    for axes in (left, middle, right):
        axes.set_xlabel("distance")
        axes.grid(alpha=0.3)
    figure.savefig(file, dpi=100)


def patches(file: Path) -> None:
    """A stem whose matrix is the identity gives the pixels back: what a model sees is a row of small pictures."""
    patch = 8
    pixels = torch.from_numpy(bundled_shapes.shapes(1)[0].pixels).permute(2, 0, 1)[None] / 255  # (1,3,32,32)
    width = 3 * patch * patch
    stem = Patches(3, patch, width, bias=False)
    stem.map.weight.data = torch.eye(width).view(width, 3, patch, patch)
    squares = stem(pixels)[0].detach().view(-1, 3, patch, patch).permute(0, 2, 3, 1)  # (P,8,8,3)
    figure = Figure(figsize=(8, 2.7), layout="constrained")
    halves: Any = figure.subfigures(1, 2, width_ratios=(1, 2))
    left, right = halves
    whole = left.subplots()
    whole.imshow(pixels[0].permute(1, 2, 0))
    for edge in range(patch, pixels.size(-1), patch):
        whole.axvline(edge - 0.5, color="w", linewidth=2)
        whole.axhline(edge - 0.5, color="w", linewidth=2)
    whole.set_title(f"32 x 32 pixels, --patch {patch}")
    right.suptitle(f"the sequence: {len(squares)} tokens of {width} numbers", fontsize=9)
    row = list(right.subplots(2, len(squares) // 2).flat)
    for number, (axes, square) in enumerate(zip(row, squares, strict=True), 1):
        axes.imshow(square, vmin=0, vmax=1)
        axes.set_xlabel(number)
    for axes in (whole, *row):
        axes.set_xticks([])
        axes.set_yticks([])
    figure.savefig(file, dpi=100)


def shapes(file: Path) -> None:
    figure = Figure(figsize=(8, 6), layout="constrained")
    for axes, scene in zip(figure.subplots(2, 4).flat, bundled_shapes.shapes(8), strict=True):
        axes.imshow(scene.pixels, interpolation="nearest")
        axes.set_title(scene.label)
        axes.set_xlabel(fill(scene.caption, 27))
        axes.set_xticks([])
        axes.set_yticks([])
    figure.savefig(file, dpi=100)


def speech(file: Path) -> None:
    """A bundled voice that says seven, and the same as it may be heard in training: by one change each, then by all."""
    clip = next(clip for clip in voices.voices("test") if clip.word == "seven")
    frames = Mels(voices.RATE, 40, 2, 256, 80).frames(clip.samples)
    none = {"shift": 0, "tempo": 0.0, "tract": 0.0, "pitch": 0.0, "colour": 0.0, "noise": -100.0, "masks": 0.0}
    ways: dict[str, dict[str, Any]] = {
        "as it is": none,
        "--tempo 0.4": none | {"tempo": 0.4},
        "--tract 0.3 --pitch 4": none | {"tract": 0.3, "pitch": 4.0},
        "--noise -10": none | {"noise": -10.0},
        "--masks 0.3": none | {"masks": 0.3},
        "all, as usual": {},
    }
    figure = Figure(figsize=(8, 3.6), layout="constrained")
    for seed, (panel, (title, how)) in enumerate(zip(figure.subplots(2, 3).flat, ways.items(), strict=True)):
        torch.manual_seed(seed)
        heard, lengths = Hearing(**how).heard(torch.from_numpy(frames)[None], torch.tensor([len(frames)]))
        shown = torch.from_numpy(normal(heard[0].numpy()))[None]
        if how.get("masks", 0.1):
            shown = hidden(shown, lengths, how.get("masks", 0.1))
        panel.imshow(shown[0].T, origin="lower", aspect="auto", extent=(0, len(shown[0]) / 100, 0, 40), cmap="magma")
        panel.set(title=title, xlim=(0, 0.8), xlabel="seconds" if seed > 2 else "", ylabel="" if seed % 3 else "mels")
    small(figure, file, 128)


def best_words(columns: list[str], chances: Tensor, wanted: list[str], file: Path, told: Tensor | None = None) -> None:
    """The five likeliest words of each column, the wanted one framed, with what is `told` of each."""
    best = chances.detach().topk(5)
    figure = Figure(figsize=(8, 2.6), layout="constrained")
    axes = figure.subplots()
    axes.imshow(best.values.T, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for (column, rank), chance in np.ndenumerate(best.values.numpy()):
        word = int(best.indices[column, rank])
        text = f"{WORDS[word] or 'end'} {chance:.2f}" + ("" if told is None else f" ({told[column, word]:.2f})")
        right = {"boxstyle": "round", "facecolor": "none", "edgecolor": "tab:orange", "linewidth": 2}
        axes.text(
            column, rank, text, ha="center", va="center", fontsize=8,
            color="w" if chance > 0.5 else "k", bbox=right if WORDS[word] == wanted[column] else None,
        )  # fmt: skip
    axes.set_xticks(range(len(columns)), columns)
    axes.xaxis.tick_top()
    axes.set_yticks([])
    small(figure, file)


def bert(file: Path) -> None:
    """What the model of `regard lab heads` guesses for each word of a sentence that it has never seen."""
    heads = experiment("heads")
    torch.manual_seed(1)
    sentences = all_sentences()
    model = heads.train(sentences[1:], heads.HeadsOptions(), no_progress)
    hidden = sentences[:1, :5].repeat(5, 1).fill_diagonal_(MASK)
    chances = model(hidden).diagonal().T.softmax(-1)  # (5,V)
    gaps = [["___" if i == j else word for j, word in enumerate(SENTENCE)] for i in range(5)]
    best_words([f"{' '.join(gap[:3])}\n{' '.join(gap[3:])}" for gap in gaps], chances, SENTENCE, file)


def gpt(file: Path) -> None:
    """The next word after each beginning of the same sentence, beside what counting in the whole language gives."""
    torch.manual_seed(1)
    sentences = F.pad(F.pad(all_sentences(), (1, 0), value=MASK), (0, 1), value=PAD)  # a start and an end
    body = GPT(GPTConfig(len(WORDS), 9, 64, layers=2, heads=4, hidden=128, dropout=0.0))
    model = Model(body, body.vocabulary())

    def lesson() -> Tensor:
        ids = sentences[1 + torch.randint(len(sentences) - 1, (32,))]
        real = (ids[:, :-1] != PAD).flatten()
        return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1)[real], ids[:, 1:].flatten()[real])

    optimize(model, lesson, lr_schedule(0.01, 400))
    chances, counted = model(sentences[:1, :6])[0].softmax(-1), torch.zeros(6, len(WORDS))
    for t in range(6):
        alike = sentences[(sentences[:, : t + 1] == sentences[0, : t + 1]).all(1), t + 1]
        counted[t] = alike.bincount(minlength=len(WORDS)) / len(alike)
    begun = ["...", *(f"... {word}" for word in SENTENCE)]
    best_words(begun, chances, [*SENTENCE, ""], file, counted)


def unseen_scenes(count: int) -> list[bundled_shapes.Scene]:
    return [scene for scene in bundled_shapes.shapes() if bundled_shapes.split(scene) == "test"][:count]


def vit(classifier: LoadedModel, file: Path) -> None:
    """Pictures that it has not seen, and the patches that its answers are made of."""
    task: Any = classifier.task
    model, scenes = classifier.model, unseen_scenes(6)
    pixels = torch.from_numpy(task.pictures.prepare([scene.pixels for scene in scenes]))  # (B,C,H,W)
    with torch.inference_mode(), look(model) as seen:
        chances = model(task.pictures.normal(pixels)).softmax(-1)
    weights = torch.stack([w for name, w in seen.items() if name.endswith("mixer.inner.weights")], 1)  # (B,L,H,T,T)
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    for i, (above, below) in enumerate(figure.subplots(2, len(scenes)).T):
        reached = (pooling_weights(task.pooling, seen, weights.size(-1)) @ rollout(weights[i]))[-1, 1:]  # (P,)
        side = round(len(reached) ** 0.5)
        above.imshow(scenes[i].pixels)
        best = int(chances[i].argmax())
        above.set_title(f"{task.labels[best]} {chances[i, best]:.2f}")
        below.imshow(scenes[i].pixels)
        veil = np.zeros((side, side, 4))
        veil[..., 3] = 0.9 * (1 - (reached / reached.max()).view(side, side))
        below.imshow(veil, extent=(-0.5, 31.5, 31.5, -0.5), interpolation="nearest")
        for axes in (above, below):
            axes.set_xticks([])
            axes.set_yticks([])
    small(figure, file, 256)


def clip(matcher: LoadedModel, file: Path) -> None:
    """Pictures and captions that it has not seen: who belongs to whom?"""
    task: Any = matcher.task
    model, scenes = matcher.model, unseen_scenes(6)
    pictures = task.embed_pictures(model, [scene.pixels for scene in scenes])
    texts = task.embed_texts(model, [scene.caption for scene in scenes])
    cosines = (pictures @ texts.T).T  # (texts,pictures)
    with torch.inference_mode():
        chances = model.body.scores(pictures, texts).softmax(-1).T
    figure = Figure(figsize=(8, 4.4), layout="constrained")
    tops, table = figure.subplots(2, 1, height_ratios=(1, 5), sharex=True)
    table.imshow(chances, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for (row, column), chance in np.ndenumerate(chances.numpy()):
        text = f"{chance:.2f}\n{cosines[row, column]:.2f}"
        table.text(column, row, text, ha="center", va="center", color="w" if chance > 0.5 else "k", fontsize=8)
    table.set_yticks(range(len(scenes)), [fill(scene.caption, 40) for scene in scenes], fontsize=8)
    for column, scene in enumerate(scenes):
        tops.imshow(scene.pixels, extent=(column - 0.36, column + 0.36, 0, 1), aspect="auto")
    tops.set_xlim(-0.5, len(scenes) - 0.5)
    tops.set_ylim(0, 1)
    tops.set_axis_off()
    table.set_xticks([])
    small(figure, file, 256)


def foreseen(predictor: LoadedModel, file: Path) -> None:
    """20 frames of videos that it has not seen, beside what came; as a strip, and as a film."""
    task: Any = predictor.task
    films = bundled_ball.balls(2, 40, seed=5).frames
    found = rolled(predictor.model, task.senses, [video(one, "ball", 1) for one in films], 10, 20)
    for ending in (".png", ".gif"):
        save_told(str(file.with_suffix(ending)), found, task.senses.low, task.senses.high)


def proteins(tagger: LoadedModel, file: Path) -> None:
    """A made-up protein that was not trained on: letters dark if they shun water, its states, and what is said."""
    unseen = [one for one in chains.chains() if chains.split(one) == "test" and 60 <= len(one.residues) <= 75]
    one = next(protein for protein in unseen if {*protein.states} == {*"HEC"})
    said = tagger(one.residues)
    colours = {"H": "tab:red", "E": "tab:blue", "C": "lightgrey"}
    figure = Figure(figsize=(9, 2.8), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(1, 1.4))
    for i, (letter, state, guess) in enumerate(zip(one.residues, one.states, said, strict=True)):
        fat = letter in chains.FAT["H"]
        for row, sign, back in ((2, letter, "dimgrey" if fat else "w"), (1, state, None), (0, guess, None)):
            above.barh(row, 1, 1, i - 0.5, color=back or colours[sign])
            above.text(i, row, sign, ha="center", va="center", size=6, color="w" if row == 2 and fat else "k")
    above.set_yticks([2, 1, 0], ["residue", "state", "answer"])
    chances = tagger.task.log_probs(tagger.model, [tagger.task.words(one.residues)])[0].exp()  # type: ignore[attr-defined]
    for tag, chance in zip(tagger.task.tags, chances.T, strict=True):  # type: ignore[attr-defined]
        below.plot(chance, color=colours[tag] if tag != "C" else "grey", label=tag)
    below.set_ylabel("probability")
    below.legend(ncol=3, loc="upper right", frameon=False)
    below.set_xlim(-0.5, len(said) - 0.5)
    figure.savefig(file, dpi=100)


def molecules(counter: LoadedModel, file: Path) -> None:
    """What a model that counts bonds between marked atoms has learnt of distances, and where a marked atom looks."""
    task: Any = counter.task
    chosen = [path for path in paths.paths() if paths.split(path) == "test" and path.length == 6 and "1" in path.bare][
        0
    ]
    row, made = asked_for(chosen.smiles), rdkit().MolFromSmiles(chosen.smiles)
    with torch.inference_mode(), look(counter.model) as seen:
        counter.model(*task.input.given(task.prepare([row], 0), np.array([0]), training=False))
    marked = [i for i, atom in enumerate(row.graph.atoms) if "marked" in atom]
    layers = [w[0] for name, w in seen.items() if name.endswith("mixer.inner.weights")]  # (H,T,T) each
    layer, head = max(
        ((i, h) for i, w in enumerate(layers) for h in range(len(w))), key=lambda at: layers[at[0]][at[1]][*marked]
    )
    weights = layers[layer][head][marked[0]]
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    bias = counter.model.body.pairs.weight.detach().unflatten(1, (len(layers), -1))[:, 0]  # (kinds, H)
    far = [0, 1, *range(6, len(bias) - 1)]  # itself, a single bond, then 2 bonds apart and more
    left.plot(range(len(far)), bias[far] - bias[far].mean(0))
    left.set_title("bias of the heads of the first layer")
    left.set_xlabel("bonds between two atoms")
    left.set_xticks(range(0, len(far), 4))
    Compute2DCoords(made)
    place = made.GetConformer().GetPositions()[:, :2]
    for bond in made.GetBonds():
        right.plot(*place[[bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()]].T, color="0.6", zorder=1)
    right.scatter(*place.T, s=60 + 900 * weights, color="tab:orange", zorder=2)
    for i, atom in enumerate(row.graph.atoms):
        ring = (
            {"edgecolor": "tab:blue", "facecolor": "white", "boxstyle": "circle", "alpha": 0.8} if i in marked else None
        )
        right.text(*place[i], atom[0], ha="center", va="center", bbox=ring)
    right.set_title(f"where a marked atom looks: layer {layer + 1}, head {head + 1}")
    right.axis("equal")
    right.axis("off")
    small(figure, file, 128)


def aligned(translator: LoadedModel, file: Path) -> None:
    unseen = (p for p in phrasebook.phrases() if phrasebook.split(p) == "test" and p.kind == "subordinate")
    save_alignment(translator, next(unseen).english, file)


def lens(translator: LoadedModel, file: Path) -> None:
    """What a translator would write if it stopped after a block."""
    guesses = logit_lens(trace_text(translator, BIKE))
    assert guesses is not None
    lens_figure(guesses).savefig(file, dpi=90)


def photograph(translator: LoadedModel, file: Path) -> None:
    """Of the page, as a browser shows it, if there is one."""
    browser = shutil.which("chromium")
    if browser is None:
        print("no chromium here, so no photograph of the page")
        return
    with TemporaryDirectory() as folder:
        html, whole = page(translator, BIKE).save(Path(folder, "look.html")), Path(folder, "whole.png")
        how = ["--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1000,1210"]
        command = [browser, *how, "--virtual-time-budget=9000", f"--screenshot={whole}", html.as_uri()]
        subprocess.run(command, check=True, capture_output=True)
        Image.open(whole).convert("RGB").crop((0, 200, 1000, 1210)).quantize(48).save(file, optimize=True)


def wishes(decider: LoadedModel, file: Path) -> None:
    """What comes of each wish in our cart, beside the returns of the episodes that were learnt from."""
    task: Any = decider.task
    wished = np.array([20, 40, 80, 120, 160, 200, 300, 400, 500])
    got = [
        [one.rewards.sum() for one in play_in_parallel([CartPole() for _ in range(20)], player, seed=5)]
        for player in (SequencePolicy(decider.model, task, Wishes(wish=float(wish))) for wish in wished)
    ]
    figure = Figure(figsize=(5.2, 3.4), layout="constrained")
    axes = figure.subplots()
    axes.plot(wished, wished, color="0.7", linewidth=0.8)
    axes.plot(wished, np.mean(got, 1), "C0-o", markersize=4)
    axes.fill_between(wished, np.quantile(got, 0.1, 1), np.quantile(got, 0.9, 1), color="C0", alpha=0.15, linewidth=0)
    learnt = [one.rewards.sum() for one in bundled_cart.carts() if bundled_cart.split(one) == "train"]
    axes.plot(learnt, np.full(len(learnt), -20), "k|", markersize=7, alpha=0.3)
    axes.set(xlabel="target return; below, the returns of the recorded episodes", ylabel="return obtained")
    axes.spines[["top", "right"]].set_visible(False)
    small(figure, file)


def acting(folder: Path, file: Path) -> None:
    """Predicted and real returns by round, and the first steps of an episode of the last policy."""
    policy, metadata = Policy.load(folder / "policy")
    environment, states = Environment(metadata["env"], tuple(metadata["hide"])), []
    for trajectory in act(environment, greedy_policy(policy), 7):
        states.append(environment.full_observation.copy())
        if len(trajectory.actions) == 100:
            break
    figure = Figure(figsize=(7, 5.2), layout="constrained")
    returns, *stills = (figure.add_subplot(place) for place in spots(figure))
    plot_returns(returns, Run(folder).metrics())
    for axes, number in zip(stills, (0, 20, 40, 60, 80, 99), strict=True):
        axes.imshow(render_cartpole.as_image(states[number]), cmap="gray")
        axes.set_title(f"step {number + 1}")
        axes.axis("off")
    small(figure, file)


def spots(figure: Figure) -> list[Any]:
    grid = figure.add_gridspec(3, 3, height_ratios=(3, 1, 1))
    return [grid[0, :], *(grid[row, column] for row in (1, 2) for column in range(3))]


def of_runs(runs: Path) -> None:
    """Those that are there."""
    if (runs / "cart").exists():
        acting(runs / "cart", HERE / "acting.png")
    if (runs / "demo").exists():
        loss_curve(Run(runs / "demo").metrics(), HERE / "loss.png")
    for run, picture, draw in (
        ("demo", "alignment", aligned),
        ("demo", "lens", lens),
        ("demo", "look", photograph),
        ("classify", "vit", vit),
        ("match", "clip", clip),
        ("predict", "ball", foreseen),
        ("decide", "deciding", wishes),
        ("tag-chain", "proteins", proteins),
        ("paths", "molecules", molecules),
    ):
        if (runs / run).exists():
            draw(load(runs / run, device="cpu"), HERE / f"{picture}.png")


def small(figure: Figure, file: Path, colours: int = 64) -> None:
    """With few colours a file is a quarter as large."""
    whole = BytesIO()
    figure.savefig(whole, dpi=100)
    Image.open(whole).convert("RGB").quantize(colours).save(file, optimize=True)


def of_the_lab(names: list[str]) -> None:
    """What each says is told too: the pages quote it."""
    for name in names or EXPERIMENTS:
        found = experiment(name)
        finding = found.run(options_class(name)(), no_progress)
        small(finding.figure, HERE / f"lab-{name}.png")
        print(f"{name}: {finding.summary} {'It holds' if finding.holds else 'It does NOT hold'}: {finding.expected}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, help="a folder of runs")
    parser.add_argument("--lab", nargs="*", choices=EXPERIMENTS, help="experiments, all if none is named")
    given = parser.parse_args()
    HERE.mkdir(exist_ok=True)
    for draw in (positions, counter, distance, relative, schedules, causal, patches, shapes, speech, bert, gpt):
        draw(HERE / f"{draw.__name__}.png")
    if given.runs is not None:
        of_runs(given.runs)
    if given.lab is not None:
        of_the_lab(given.lab)


if __name__ == "__main__":
    main()
