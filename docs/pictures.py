"""Draws the figures of these pages with the package's own functions.

python docs/pictures.py                            all that need no trained model
python docs/pictures.py --runs runs                also those of trained models, from the runs below that exist
python docs/pictures.py --lab                      also one per experiment, as `regard lab NAME` draws it
python docs/pictures.py --lab recall depth         these experiments only

regard demo && regard train classify --model vit && regard train match && regard train predict &&
regard train decide --returns --minutes 2
regard train predict --env CartPole-v1 --output-dir runs/cart
regard train tag --model protein_encoder --minutes 2 --output-dir runs/tag-chain
regard train regress --model graphormer --minutes 2 --output-dir runs/paths
python benchmarks/series.py
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

from regard.data.episodes import observed
from regard.data.rows import Row
from regard.lab import EXPERIMENTS, experiment, options_class
from regard.lab.optimize import lr_schedule, optimize
from regard.lab.result import no_progress
from regard.lab.synthetic_data import MASK, PAD, SENTENCE, WORDS, all_sentences
from regard.load import load
from regard.loaded_model import LoadedModel
from regard.look import look
from regard.modalities.audio.audio_augment import AudioAugment, spec_augment
from regard.modalities.audio.logmel import LogMel, normalize_clip
from regard.modalities.molecule.molecules import parse_molecule, rdkit
from regard.modalities.synthetic import bouncing_balls as bundled_ball
from regard.modalities.synthetic import cart as bundled_cart
from regard.modalities.synthetic import chains, paths, phrasebook, voices
from regard.modalities.synthetic import shapes as bundled_shapes
from regard.models.gpt import GPT, GPTConfig
from regard.parts.attention import attention_weights
from regard.parts.heads import Model
from regard.parts.positions import Alibi, RelativePositionBias, RotaryPositions, sinusoids
from regard.parts.stems import PatchEmbedding
from regard.rl.cartpole import CartPole
from regard.rl.environment import Environment
from regard.rl.environment import rollout as act
from regard.rl.policy import Policy, greedy_policy
from regard.rl.sequence_policy import SequencePolicy, play_in_parallel
from regard.tasks.decide import DecideOptions
from regard.tasks.rollout import rollout_episodes
from regard.training import schedule
from regard.training.run_folder import RunFolder
from regard.view import render_cartpole
from regard.view.alignment import save_alignment
from regard.view.attention_rollout import pooling_weights, rollout
from regard.view.figures import lens_figure
from regard.view.logit_lens import logit_lens
from regard.view.report import page
from regard.view.trace import trace_text
from regard.view.training_history import loss_curve, plot_returns

PICTURES = Path(__file__).parent / "pictures"
BIKE = "The nice boys bought their bike because it was cheap."  # not in the training set
rcParams.update({"font.size": 9, "axes.titlesize": 9})


def positions(file: Path) -> None:
    """20 positions of width 512: sines, then cosines, each from high to low frequency."""
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
    """A binary counter beside sines: from column to column, the frequency is about halved."""
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
        offsets = torch.arange(-100, 100)
        axes.plot(
            offsets,
            table[start + offsets] @ table[start],
            color=colour,
            linewidth=width,
            label=f"from position {start}",
        )
    axes.set_xlabel("distance")
    axes.set_ylabel("dot product")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(file, dpi=100)


def schedules(file: Path) -> None:
    steps, warmup = 1000, 100
    step_numbers = range(steps)
    figure = Figure(figsize=(7, 2.8), layout="constrained")
    axes = figure.subplots()
    axes.plot(step_numbers, [schedule.wsd(n, steps, warmup, 0.6) for n in step_numbers], label="wsd")
    axes.plot(step_numbers, [schedule.inverse_sqrt(n, warmup) for n in step_numbers], label="inverse-sqrt")
    axes.set_xlabel(f"step of {steps}, {warmup} of them warm-up")
    axes.set_ylabel("share of --lr")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(file, dpi=100)


def causal(file: Path) -> None:
    """Four words with random queries and keys: scores, mask, weights."""
    words = ["Tee", "und", "Wasser", "bitte"]
    generator = torch.Generator().manual_seed(4)
    q, k = (torch.randn(1, 1, 4, 8, generator=generator) * 1.5 for _ in range(2))
    scores = (q @ k.mT / 8**0.5)[0, 0]
    visible = torch.ones(4, 4, dtype=torch.bool).tril()
    tables = {
        "scores / √E": scores,
        "masked": scores.masked_fill(~visible, -torch.inf),
        "weights: each row sums to 1": attention_weights(q, k, causal=True)[0, 0],
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
        axes.set_xlabel("keys")
        axes.set_ylabel("queries")
    figure.savefig(file, dpi=100)


def relative(file: Path) -> None:
    """The effect of rotary positions, ALiBi and relative bias on a score, by distance."""
    figure = Figure(figsize=(8, 2.9), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    ones = torch.ones(1, 1, 201, 64)
    q, k = RotaryPositions(64, 201)(ones, ones, 0)
    scores = (q @ k.mT)[0, 0]
    for start, colour, width in ((100, "lightsteelblue", 7), (150, "tab:orange", 3), (200, "k", 1)):
        left.plot(scores[start].flip(0)[200 - start :][:100], color=colour, linewidth=width, label=f"from {start}")
    left.set_title("rotary: score of two equal vectors")
    left.legend()
    for slope, bias in zip(("1/4", "1/16", "1/64", "1/256"), Alibi(4)(1, 64)[0, :, 0], strict=True):
        middle.plot(bias.flip(0), label=f"slope {slope}")
    middle.set_title("ALiBi: bias of each of 4 heads")
    middle.legend(loc="lower left", handlelength=1)
    right.step(range(200), RelativePositionBias(1, causal=True).buckets(1, 200)[0].flip(0), where="mid")
    right.set_title("relative bias: bucket, of 32")
    for axes in (left, middle, right):
        axes.set_xlabel("distance")
        axes.grid(alpha=0.3)
    figure.savefig(file, dpi=100)


def patches(file: Path) -> None:
    """A patch embedding whose matrix is the identity returns the pixels: the sequence of patches."""
    patch = 8
    pixels = torch.from_numpy(bundled_shapes.shapes(1)[0].pixels).permute(2, 0, 1)[None] / 255  # (1,3,32,32)
    width = 3 * patch * patch
    stem = PatchEmbedding(3, patch, width, bias=False)
    stem.map.weight.data = torch.eye(width).view(width, 3, patch, patch)
    patch_pixels = stem(pixels)[0].detach().view(-1, 3, patch, patch).permute(0, 2, 3, 1)  # (P,8,8,3)
    figure = Figure(figsize=(8, 2.7), layout="constrained")
    subfigures: Any = figure.subfigures(1, 2, width_ratios=(1, 2))
    left, right = subfigures
    image = left.subplots()
    image.imshow(pixels[0].permute(1, 2, 0))
    for edge in range(patch, pixels.size(-1), patch):
        image.axvline(edge - 0.5, color="w", linewidth=2)
        image.axhline(edge - 0.5, color="w", linewidth=2)
    image.set_title(f"32 x 32 pixels, --patch-size {patch}")
    right.suptitle(f"the sequence: {len(patch_pixels)} tokens of {width} values", fontsize=9)
    row = list(right.subplots(2, len(patch_pixels) // 2).flat)
    for index, (axes, square) in enumerate(zip(row, patch_pixels, strict=True), 1):
        axes.imshow(square, vmin=0, vmax=1)
        axes.set_xlabel(index)
    for axes in (image, *row):
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
    """A bundled clip of the word seven, with each augmentation, then with all."""
    clip = next(clip for clip in voices.voices("test") if clip.word == "seven")
    frames = LogMel(voices.SAMPLING_RATE, 40, 2, 256, 80).frames(clip.samples)
    none = {"shift": 0, "tempo": 0.0, "vtlp": 0.0, "pitch": 0.0, "random_eq": 0.0, "noise": -100.0, "spec_augment": 0.0}
    variants: dict[str, dict[str, Any]] = {
        "original": none,
        "--tempo 0.4": none | {"tempo": 0.4},
        "--vtlp 0.3 --pitch 4": none | {"vtlp": 0.3, "pitch": 4.0},
        "--noise -10": none | {"noise": -10.0},
        "--spec-augment 0.3": none | {"spec_augment": 0.3},
        "all, defaults": {},
    }
    figure = Figure(figsize=(8, 3.6), layout="constrained")
    for seed, (panel, (title, settings)) in enumerate(zip(figure.subplots(2, 3).flat, variants.items(), strict=True)):
        torch.manual_seed(seed)
        augmented, lengths = AudioAugment(**settings).augment(
            torch.from_numpy(frames)[None], torch.tensor([len(frames)])
        )
        spectrogram = torch.from_numpy(normalize_clip(augmented[0].numpy()))[None]
        if settings.get("spec_augment", 0.1):
            spectrogram = spec_augment(spectrogram, lengths, settings.get("spec_augment", 0.1))
        panel.imshow(
            spectrogram[0].T, origin="lower", aspect="auto", extent=(0, len(spectrogram[0]) / 100, 0, 40), cmap="magma"
        )
        panel.set(title=title, xlim=(0, 0.8), xlabel="seconds" if seed > 2 else "", ylabel="" if seed % 3 else "mels")
    save_png(figure, file, 128)


def draw_top_words(
    columns: list[str], probabilities: Tensor, targets: list[str], file: Path, counts: Tensor | None = None
) -> None:
    """The five most probable words of each column, the target framed, with their relative frequencies in brackets."""
    best = probabilities.detach().topk(5)
    figure = Figure(figsize=(8, 2.6), layout="constrained")
    axes = figure.subplots()
    axes.imshow(best.values.T, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for (column, rank), chance in np.ndenumerate(best.values.numpy()):
        word = int(best.indices[column, rank])
        text = f"{WORDS[word] or 'end'} {chance:.2f}" + ("" if counts is None else f" ({counts[column, word]:.2f})")
        right = {"boxstyle": "round", "facecolor": "none", "edgecolor": "tab:orange", "linewidth": 2}
        axes.text(
            column, rank, text, ha="center", va="center", fontsize=8,
            color="w" if chance > 0.5 else "k", bbox=right if WORDS[word] == targets[column] else None,
        )  # fmt: skip
    axes.set_xticks(range(len(columns)), columns)
    axes.xaxis.tick_top()
    axes.set_yticks([])
    save_png(figure, file)


def bert(file: Path) -> None:
    """Predictions of the model of `regard lab heads` for each masked word of an unseen sentence."""
    heads = experiment("heads")
    torch.manual_seed(1)
    sentences = all_sentences()
    model = heads.train(sentences[1:], heads.HeadsOptions(), no_progress)
    hidden = sentences[:1, :5].repeat(5, 1).fill_diagonal_(MASK)
    probabilities = model(hidden).diagonal().T.softmax(-1)  # (5,V)
    gaps = [["___" if i == j else word for j, word in enumerate(SENTENCE)] for i in range(5)]
    draw_top_words([f"{' '.join(gap[:3])}\n{' '.join(gap[3:])}" for gap in gaps], probabilities, SENTENCE, file)


def gpt(file: Path) -> None:
    """Next-word probabilities after each prefix of the sentence, beside relative frequencies in the language."""
    torch.manual_seed(1)
    sentences = F.pad(F.pad(all_sentences(), (1, 0), value=MASK), (0, 1), value=PAD)  # a start and an end
    body = GPT(GPTConfig(len(WORDS), 9, 64, layers=2, heads=4, hidden=128, dropout=0.0))
    model = Model(body, body.lm_head())

    def batch_loss() -> Tensor:
        ids = sentences[1 + torch.randint(len(sentences) - 1, (32,))]
        real = (ids[:, :-1] != PAD).flatten()
        return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1)[real], ids[:, 1:].flatten()[real])

    optimize(model, batch_loss, lr_schedule(0.01, 400))
    probabilities, frequencies = model(sentences[:1, :6])[0].softmax(-1), torch.zeros(6, len(WORDS))
    for t in range(6):
        continuations = sentences[(sentences[:, : t + 1] == sentences[0, : t + 1]).all(1), t + 1]
        frequencies[t] = continuations.bincount(minlength=len(WORDS)) / len(continuations)
    prefixes = ["...", *(f"... {word}" for word in SENTENCE)]
    draw_top_words(prefixes, probabilities, [*SENTENCE, ""], file, frequencies)


def unseen_scenes(count: int) -> list[bundled_shapes.Scene]:
    return [scene for scene in bundled_shapes.shapes() if bundled_shapes.split(scene) == "test"][:count]


def vit(classifier: LoadedModel, file: Path) -> None:
    """Test images with predictions, and the attention rollout over patches."""
    task: Any = classifier.task
    model, scenes, transform = classifier.model, unseen_scenes(6), task.preprocessor.transform
    pixels = torch.from_numpy(transform.prepare([scene.pixels for scene in scenes]))  # (B,C,H,W)
    with torch.inference_mode(), look(model) as activations:
        probabilities = model(transform.normalize(pixels)).softmax(-1)
    weights = torch.stack(
        [w for name, w in activations.items() if name.endswith("mixer.inner.weights")], 1
    )  # (B,L,H,T,T)
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    for i, (above, below) in enumerate(figure.subplots(2, len(scenes)).T):
        shares = (pooling_weights(task.pooling, activations, weights.size(-1)) @ rollout(weights[i]))[-1, 1:]  # (P,)
        side = round(len(shares) ** 0.5)
        above.imshow(scenes[i].pixels)
        best = int(probabilities[i].argmax())
        above.set_title(f"{task.labels[best]} {probabilities[i, best]:.2f}")
        below.imshow(scenes[i].pixels)
        overlay = np.zeros((side, side, 4))
        overlay[..., 3] = 0.9 * (1 - (shares / shares.max()).view(side, side))
        below.imshow(overlay, extent=(-0.5, 31.5, 31.5, -0.5), interpolation="nearest")
        for axes in (above, below):
            axes.set_xticks([])
            axes.set_yticks([])
    save_png(figure, file, 256)


def clip(matcher: LoadedModel, file: Path) -> None:
    """Probabilities and cosines of test images and captions."""
    task: Any = matcher.task
    model, scenes = matcher.model, unseen_scenes(6)
    pictures = task.embed_inputs(model, [Row(scene.pixels, None, "", 1, scene.caption) for scene in scenes])
    texts = task.embed_texts(model, [scene.caption for scene in scenes])
    cosines = (pictures @ texts.T).T  # (texts,pictures)
    with torch.inference_mode():
        probabilities = model.body.scores(pictures, texts).softmax(-1).T
    figure = Figure(figsize=(8, 4.4), layout="constrained")
    tops, table = figure.subplots(2, 1, height_ratios=(1, 5), sharex=True)
    table.imshow(probabilities, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for (row, column), chance in np.ndenumerate(probabilities.numpy()):
        text = f"{chance:.2f}\n{cosines[row, column]:.2f}"
        table.text(column, row, text, ha="center", va="center", color="w" if chance > 0.5 else "k", fontsize=8)
    table.set_yticks(range(len(scenes)), [fill(scene.caption, 40) for scene in scenes], fontsize=8)
    for column, scene in enumerate(scenes):
        tops.imshow(scene.pixels, extent=(column - 0.36, column + 0.36, 0, 1), aspect="auto")
    tops.set_xlim(-0.5, len(scenes) - 0.5)
    tops.set_ylim(0, 1)
    tops.set_axis_off()
    table.set_xticks([])
    save_png(figure, file, 256)


def draw_forecast(predictor: LoadedModel, file: Path) -> None:
    """20 predicted frames of unseen videos beside the real ones, as a strip and as an animation."""
    task: Any = predictor.task
    films = bundled_ball.balls(2, 40, seed=5).frames
    forecast = rollout_episodes(predictor.model, task.norm, [observed(frames) for frames in films], 10, 20)
    for suffix in (".png", ".gif"):
        task.preprocessor.save_rollouts(str(file.with_suffix(suffix)), forecast)


def draw_temperatures(folder: Path, file: Path) -> None:
    """The last two years of the test set, beside the seasonal-naive forecast."""
    load(folder / "temperatures", device="cpu")(str(folder / "test.csv"), horizon=24, save=str(file))


def proteins(tagger: LoadedModel, file: Path) -> None:
    """A test protein: residues (hydrophobic ones dark), secondary structure, and predictions."""
    test_items = [
        chain for chain in chains.chains() if chains.split(chain) == "test" and 60 <= len(chain.residues) <= 75
    ]
    protein = next(protein for protein in test_items if {*protein.states} == {*"HEC"})
    prediction = tagger(protein.residues)
    colours = {"H": "tab:red", "E": "tab:blue", "C": "lightgrey"}
    figure = Figure(figsize=(9, 2.8), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(1, 1.4))
    for i, (letter, state, guess) in enumerate(zip(protein.residues, protein.states, prediction, strict=True)):
        hydrophobic = letter in chains.HYDROPHOBIC["H"]
        for row, symbol, background in (
            (2, letter, "dimgrey" if hydrophobic else "w"),
            (1, state, None),
            (0, guess, None),
        ):
            above.barh(row, 1, 1, i - 0.5, color=background or colours[symbol])
            above.text(i, row, symbol, ha="center", va="center", size=6, color="w" if row == 2 and hydrophobic else "k")
    above.set_yticks([2, 1, 0], ["residue", "state", "prediction"])
    task: Any = tagger.task
    rows = task.probe_rows([task.preprocessor.parse(protein.residues, task.target)])
    probabilities = task.log_probs(tagger.model, rows)[0].exp()
    for tag, chance in zip(task.tags, probabilities.T, strict=True):
        below.plot(chance, color=colours[tag] if tag != "C" else "grey", label=tag)
    below.set_ylabel("probability")
    below.legend(ncol=3, loc="upper right", frameon=False)
    below.set_xlim(-0.5, len(prediction) - 0.5)
    figure.savefig(file, dpi=100)


def molecules(counter: LoadedModel, file: Path) -> None:
    """The distance bias of a model that counts bonds between marked atoms, and the attention of a marked atom."""
    task: Any = counter.task
    chosen = [
        path
        for path in paths.paths()
        if paths.split(path) == "test" and path.length == 6 and "1" in path.unmarked_smiles
    ][0]
    row, molecule = parse_molecule(chosen.smiles), rdkit().MolFromSmiles(chosen.smiles)
    with torch.inference_mode(), look(counter.model) as activations:
        inputs = task.preprocessor.collate(task.preprocessor.encode([row], 0), np.array([0]), training=False)
        task.forward(counter.model, inputs)
    marked = [i for i, atom in enumerate(row.input.atoms) if "marked" in atom]
    layers = [w[0] for name, w in activations.items() if name.endswith("mixer.inner.weights")]  # (H,T,T) each
    layer, head = max(
        ((i, h) for i, w in enumerate(layers) for h in range(len(w))), key=lambda at: layers[at[0]][at[1]][*marked]
    )
    weights = layers[layer][head][marked[0]]
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    bias = counter.model.body.pair_bias.weight.detach().unflatten(1, (len(layers), -1))[:, 0]  # (kinds, H)
    kinds = [0, 1, *range(6, len(bias) - 1)]  # self, single bond, then distances of 2 bonds and more
    left.plot(range(len(kinds)), bias[kinds] - bias[kinds].mean(0))
    left.set_title("bias of the heads of the first layer")
    left.set_xlabel("bonds between two atoms")
    left.set_xticks(range(0, len(kinds), 4))
    Compute2DCoords(molecule)
    positions_2d = molecule.GetConformer().GetPositions()[:, :2]
    for bond in molecule.GetBonds():
        right.plot(*positions_2d[[bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()]].T, color="0.6", zorder=1)
    right.scatter(*positions_2d.T, s=60 + 900 * weights, color="tab:orange", zorder=2)
    for i, atom in enumerate(row.input.atoms):
        ring = (
            {"edgecolor": "tab:blue", "facecolor": "white", "boxstyle": "circle", "alpha": 0.8} if i in marked else None
        )
        right.text(*positions_2d[i], atom[0], ha="center", va="center", bbox=ring)
    right.set_title(f"attention of a marked atom: layer {layer + 1}, head {head + 1}")
    right.axis("equal")
    right.axis("off")
    save_png(figure, file, 128)


def draw_alignment(translator: LoadedModel, file: Path) -> None:
    test_items = (p for p in phrasebook.phrases() if phrasebook.split(p) == "test" and p.kind == "subordinate")
    save_alignment(translator, next(test_items).english, file)


def draw_lens(translator: LoadedModel, file: Path) -> None:
    """Logit lens of the translator's decoder."""
    guesses = logit_lens(trace_text(translator, BIKE))
    assert guesses is not None
    lens_figure(guesses).savefig(file, dpi=90)


def draw_page(translator: LoadedModel, file: Path) -> None:
    """A screenshot of the page, if chromium is installed."""
    browser = shutil.which("chromium")
    if browser is None:
        print("chromium is not installed: no screenshot of the page")
        return
    with TemporaryDirectory() as folder:
        html, full_png = page(translator, BIKE).save(Path(folder, "look.html")), Path(folder, "whole.png")
        settings = ["--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1000,1210"]
        command = [browser, *settings, "--virtual-time-budget=9000", f"--screenshot={full_png}", html.as_uri()]
        subprocess.run(command, check=True, capture_output=True)
        Image.open(full_png).convert("RGB").crop((0, 200, 1000, 1210)).quantize(48).save(file, optimize=True)


def draw_target_returns(decider: LoadedModel, file: Path) -> None:
    """Obtained return by target return in CartPole, beside the returns of the training episodes."""
    task: Any = decider.task
    target_returns = np.array([20, 40, 80, 120, 160, 200, 300, 400, 500])
    obtained = [
        [episode.rewards.sum() for episode in play_in_parallel([CartPole() for _ in range(20)], player, seed=5)]
        for player in (
            SequencePolicy(decider.model, task, DecideOptions(target_return=float(wish))) for wish in target_returns
        )
    ]
    figure = Figure(figsize=(5.2, 3.4), layout="constrained")
    axes = figure.subplots()
    axes.plot(target_returns, target_returns, color="0.7", linewidth=0.8)
    axes.plot(target_returns, np.mean(obtained, 1), "C0-o", markersize=4)
    axes.fill_between(
        target_returns,
        np.quantile(obtained, 0.1, 1),
        np.quantile(obtained, 0.9, 1),
        color="C0",
        alpha=0.15,
        linewidth=0,
    )
    recorded_returns = [
        episode.rewards.sum() for i, episode in enumerate(bundled_cart.carts()) if bundled_cart.split(i) == "train"
    ]
    axes.plot(recorded_returns, np.full(len(recorded_returns), -20), "k|", markersize=7, alpha=0.3)
    axes.set(xlabel="target return; below, the returns of the recorded episodes", ylabel="return obtained")
    axes.spines[["top", "right"]].set_visible(False)
    save_png(figure, file)


def draw_acting(folder: Path, file: Path) -> None:
    """Predicted and real returns by round, and the first steps of an episode of the last policy."""
    policy, metadata = Policy.load(folder / "policy")
    environment, states = Environment(metadata["env"], tuple(metadata["hide"])), []
    for trajectory in act(environment, greedy_policy(policy), 7):
        states.append(environment.full_observation.copy())
        if len(trajectory.actions) == 100:
            break
    figure = Figure(figsize=(7, 5.2), layout="constrained")
    returns, *stills = (figure.add_subplot(place) for place in grid_cells(figure))
    plot_returns(returns, RunFolder(folder).metrics())
    for axes, step in zip(stills, (0, 20, 40, 60, 80, 99), strict=True):
        axes.imshow(render_cartpole.as_image(states[step]), cmap="gray")
        axes.set_title(f"step {step + 1}")
        axes.axis("off")
    save_png(figure, file)


def grid_cells(figure: Figure) -> list[Any]:
    grid = figure.add_gridspec(3, 3, height_ratios=(3, 1, 1))
    return [grid[0, :], *(grid[row, column] for row in (1, 2) for column in range(3))]


def draw_runs(runs: Path) -> None:
    """Figures of the runs that exist."""
    if (runs / "cart").exists():
        draw_acting(runs / "cart", PICTURES / "acting.png")
    if (runs / "demo").exists():
        loss_curve(RunFolder(runs / "demo").metrics(), PICTURES / "loss.png")
    if (runs / "series").exists():
        draw_temperatures(runs / "series", PICTURES / "series.png")
    for run, picture, draw in (
        ("demo", "alignment", draw_alignment),
        ("demo", "lens", draw_lens),
        ("demo", "look", draw_page),
        ("classify", "vit", vit),
        ("match", "clip", clip),
        ("predict", "ball", draw_forecast),
        ("decide", "deciding", draw_target_returns),
        ("tag-chain", "proteins", proteins),
        ("paths", "molecules", molecules),
    ):
        if (runs / run).exists():
            draw(load(runs / run, device="cpu"), PICTURES / f"{picture}.png")


def save_png(figure: Figure, file: Path, colours: int = 64) -> None:
    """Save with few colours: a quarter of the size."""
    full_png = BytesIO()
    figure.savefig(full_png, dpi=100)
    Image.open(full_png).convert("RGB").quantize(colours).save(file, optimize=True)


def draw_experiments(names: list[str]) -> None:
    """Draw the experiments, and print their summaries, which the pages quote."""
    for name in names or EXPERIMENTS:
        module = experiment(name)
        result = module.run(options_class(name)(), no_progress)
        save_png(result.figure, PICTURES / f"lab-{name}.png")
        print(f"{name}: {result.summary} {'It holds' if result.holds else 'It does NOT hold'}: {result.expected}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, help="a folder of runs")
    parser.add_argument("--lab", nargs="*", choices=EXPERIMENTS, help="experiments; default: all")
    args = parser.parse_args()
    PICTURES.mkdir(exist_ok=True)
    for draw in (positions, counter, distance, relative, schedules, causal, patches, shapes, speech, bert, gpt):
        draw(PICTURES / f"{draw.__name__}.png")
    if args.runs is not None:
        draw_runs(args.runs)
    if args.lab is not None:
        draw_experiments(args.lab)


if __name__ == "__main__":
    main()
