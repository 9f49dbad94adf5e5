"""Match: which picture and which text belong together? Each looks for the other among all of its batch.

    loss = - ½ Σ_i (log softmax_j(s[i, :])[i] + log softmax_j(s[:, i])[i]),   s[i, j] = score(picture i, text j)

All other pairs of a batch are wrong answers (Radford et al. 2021), but for those with the same picture or the same
text: these are left out of the softmax, so a pair learns as if they were not there.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.choose import must
from regard.data.batches import ByLength, Ints, Ragged, handfuls, to_device
from regard.data.bundled import shapes
from regard.data.files import Rows
from regard.data.images import FORMATS, Captioned, Pictures, Pixels, digest, open_picture, read_captioned
from regard.data.tokens import Pieces, Tokenizer
from regard.parts.heads import Model
from regard.scores import ranks, recall_at
from regard.tasks.inputs import Drawn, ImageInput, TextInput, Views, Written, fit_tokenizer, in_order
from regard.tasks.task import Answer, Choices, Loss, Task, learnt, samples

TOGETHER = 50  # pairs among which the loss of a check is measured


@dataclass(frozen=True)
class Prompting(Choices):
    """How labels are put to the model, and how many are wanted."""

    prompt: str = "{}"  # each label is put into this, such as "a photo of a {}"

    def __post_init__(self) -> None:
        super().__post_init__()
        must(self, prompt=("{}" in self.prompt, "a text with {} in it, where the label goes"))


class Pairs(NamedTuple):
    pixels: Tensor  # (B,C,H,W)
    ids: Tensor  # (B,T)
    mask: Tensor  # (B,1,1,T), True = a token
    alike: Tensor  # (B,B), True = another pair, but no wrong answer


class Matched(ByLength):
    """Pictures with their texts. All count as equally long: a text must meet others than those of its own length."""

    def __init__(self, drawn: Drawn, written: Written):
        self.drawn, self.written = drawn, written
        self.units = len(written.rows)
        texts = [written.rows[i].tobytes() for i in range(self.units)]
        self.same = np.stack([numbered(map(digest, drawn.rows)), numbered(texts)])  # (2,N)
        self.lengths = np.full((self.units, 1), max(drawn.lengths.max(), written.lengths.max()))


@dataclass
class Match(Task):
    tokenizer: Tokenizer = learnt()
    pictures: Pictures = learnt()
    shift: int = learnt(0)
    flip: bool = learnt(False)

    about = "a picture and some labels in, the label that fits best out"
    takes = "a .tsv of picture files and captions, or a folder with captions.tsv"
    ships = "shapes, with captions"
    asks = ("matches",)
    default = "clip"
    counts = "pairs"
    looks = 1000
    ways = Prompting

    @classmethod
    def groups(cls, ability: str) -> tuple[type, ...]:
        return (Pieces, Views)

    @classmethod
    def rows(cls, paths: tuple[str, ...], fields: tuple[str, ...] | None, ability: str, **aim: Any) -> Rows:
        return read_captioned(paths, fields)

    @classmethod
    def bundled(cls, ability: str, **aim: Any) -> dict[str, Rows]:
        """Scenes of coloured shapes, and what is to be seen in them."""
        parts: dict[str, list[Any]] = {"train": [], "valid": [], "test": []}
        for line, scene in enumerate(shapes.shapes(), 1):
            parts[shapes.split(scene)].append(Captioned(scene.pixels, scene.caption, "shapes", line))
        return dict(parts)

    @classmethod
    def fit(cls, rows: Any, ability: str, reading: dict[str, Any], readers: dict[str, Any], **aim: Any) -> Match:
        if len({row.caption for row in rows}) < 2:
            raise ValueError(f"there is nothing to tell apart: every picture has the caption {rows[0].caption!r}")
        tokenizer = fit_tokenizer((row.caption for row in rows), reading, readers)
        pictures = readers.get("pictures") or Pictures.fit(rows, reading["side"])
        return cls(**aim, tokenizer=tokenizer, pictures=pictures, shift=reading["shift"], flip=reading["flip"])

    @property
    def seen(self) -> ImageInput:
        return ImageInput(self.pictures, self.shift, self.flip)

    @property
    def said(self) -> TextInput:
        return TextInput(self.tokenizer)

    def sizes(self) -> dict[str, int]:
        return self.said.sizes() | self.seen.sizes()

    def head(self, body: Any) -> Model:
        """The towers end where they meet: there is nothing left to add."""
        return Model(body, nn.Identity())

    def prepare(self, rows: Sequence[Captioned], context: int) -> Matched:
        """A caption that is longer than the context is cut."""
        return Matched(self.drawn([row.pixels for row in rows]), self.written([row.caption for row in rows], context))

    def drawn(self, pictures: Sequence[Pixels]) -> Drawn:
        return Drawn(self.pictures.prepare(pictures), None)

    def written(self, texts: Sequence[str], context: int) -> Written:
        self.tokenizer.longest(context)
        return Written(Ragged(self.tokenizer.encode(texts)), None)

    def batch(self, examples: Matched, rows: Ints) -> Pairs:
        pixels, _ = self.seen.given(examples.drawn, rows, training=True)
        ids, mask = self.said.given(examples.written, rows, training=True)
        assert mask is not None
        return Pairs(pixels, ids, mask, alike(examples.same[:, rows]))

    def loss(self, model: Model, batch: Pairs) -> Loss:
        return Loss(contrast(model(batch.pixels, batch.ids, batch.mask), batch.alike), len(batch.ids))

    def embed(self, model: Model, raw: Iterable[str]) -> Iterator[list[float]]:
        """Where both towers meet; what is no picture file is a text."""
        for line in raw:
            seen = Path(line).suffix.lower() in FORMATS and Path(line).is_file()
            vectors = self.embed_pictures(model, [open_picture(line)]) if seen else self.embed_texts(model, [line])
            yield vectors[0].tolist()

    @torch.inference_mode()
    def text_vectors(self, model: Model, texts: Written) -> Tensor:
        device = next(model.parameters()).device

        def vectors(rows: Ints) -> Tensor:
            ids, mask = to_device(self.said.given(texts, rows, training=False), device)
            return model.body.text(ids, mask).float().cpu()

        return in_order(texts.lengths[:, 0], vectors)  # (N,E)

    @torch.inference_mode()
    def picture_vectors(self, model: Model, pictures: Drawn) -> Tensor:
        device = next(model.parameters()).device

        def vectors(rows: Ints) -> Tensor:
            return model.body.image(self.seen.given(pictures, rows, training=False).x.to(device)).float().cpu()

        return in_order(pictures.lengths[:, 0], vectors)  # (N,E)

    def embed_texts(self, model: Model, texts: Sequence[str]) -> Tensor:
        """(N,E), each of length 1."""
        return self.text_vectors(model, self.written(texts, model.body.config.context))

    def embed_pictures(self, model: Model, pictures: Sequence[Pixels]) -> Tensor:
        """(N,E), each of length 1."""
        return self.picture_vectors(model, self.drawn(pictures))

    def search(self, model: Model, rows: Sequence[Captioned], query: str | Pixels) -> list[tuple[Captioned, float]]:
        """All rows with their cosines, best first: a text looks for their pictures, a picture for their texts."""
        if isinstance(query, str):
            found = self.embed_pictures(model, [row.pixels for row in rows]) @ self.embed_texts(model, [query])[0]
        else:
            found = self.embed_texts(model, [row.caption for row in rows]) @ self.embed_pictures(model, [query])[0]
        return [(rows[i], found[i].item()) for i in found.argsort(descending=True, stable=True).tolist()]

    @torch.inference_mode()
    def score(self, model: Model, rows: Sequence[Captioned], how: Prompting | None = None) -> dict[str, Any]:
        """Each picture looks for its text among all rows, and each text for its picture."""
        examples = self.prepare(rows, model.body.config.context)
        pictures, texts = self.picture_vectors(model, examples.drawn), self.text_vectors(model, examples.written)
        device, total = next(model.parameters()).device, 0.0
        for i in range(0, len(rows), TOGETHER):
            some = slice(i, i + TOGETHER)
            scores = model.body.scores(pictures[some].to(device), texts[some].to(device)).cpu()
            total += contrast(scores, alike(examples.same[:, some])).item()
        cosines = (pictures @ texts.T).masked_fill(alike(examples.same), -torch.inf)  # (N,N)
        numbers = {"loss": total / len(rows)}
        for name, places in zip(("text", "picture"), ranks(cosines.numpy()), strict=True):
            numbers |= {f"{name}_recall_at_{k}": recall_at(places, k) for k in (1, 5, 10)}
        both = {"recall_at_1": (numbers["text_recall_at_1"] + numbers["picture_recall_at_1"]) / 2}
        answers = [rows[i].caption for i in cosines.argmax(1).tolist()]
        asked = [f"{row.file}:{row.line}" for row in rows]
        return {**both, **numbers, "answers": answers, "samples": samples(asked, [r.caption for r in rows], answers)}

    def example(self) -> str:
        return "picture.png\ta cat\ta dog"

    def rank(self, scores: dict[str, Any]) -> tuple[float, ...]:
        return round(scores["recall_at_1"], 3), -round(scores["loss"], 4)

    @torch.inference_mode()
    def predict(self, model: Model, raw: Iterable[str], how: Prompting, first: int = 0) -> Iterator[list[Answer]]:
        """The name of a picture file and labels, with tabs between them: which label fits best, of these alone?"""
        device = next(model.parameters()).device
        for some in handfuls(raw, 256):
            asked = [line.split("\t") for line in some]
            for file, *labels in asked:
                if not labels or not all(label.strip() for label in labels):
                    raise ValueError(f"give a picture file and labels, with tabs between them, not: {file[:60]!r}")
            texts = list(dict.fromkeys(label for _, *labels in asked for label in labels))
            place = {label: i for i, label in enumerate(texts)}
            prompts = self.embed_texts(model, [how.prompt.replace("{}", label) for label in texts])
            pictures = self.embed_pictures(model, [open_picture(file) for file, *_ in asked])
            scores = model.body.scores(pictures.to(device), prompts.to(device)).cpu()  # (lines, labels)
            for row, (_, *labels) in zip(scores, asked, strict=True):
                names = list(dict.fromkeys(labels))
                best = row[[place[name] for name in names]].log_softmax(-1).topk(min(how.n_best, len(names)))
                pairs = zip(best.values.tolist(), best.indices.tolist(), strict=True)
                yield [Answer(names[i], logp, float(np.exp(logp))) for logp, i in pairs]


def numbered(names: Iterable[Hashable]) -> Ints:
    """The same number for the same name."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(name, len(numbers)) for name in names])


def alike(same: Ints) -> Tensor:
    """(B,B), from the numbers of pictures and texts (2,B): True = either is the same, but not the pair itself."""
    equal = torch.from_numpy((same[:, :, None] == same[:, None]).any(0))
    return equal & ~torch.eye(len(equal), dtype=torch.bool)


def contrast(scores: Tensor, alike: Tensor) -> Tensor:
    """Summed over the pairs, the mean of both ways."""
    scores, own = scores.masked_fill(alike, -torch.inf), torch.arange(len(scores), device=scores.device)
    return (F.cross_entropy(scores, own, reduction="sum") + F.cross_entropy(scores.T, own, reduction="sum")) / 2
