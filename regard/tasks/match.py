"""Match: which picture and which text belong together? Each looks for the other among all of its batch.

    loss = - ½ Σ_i (log softmax_j(s[i, :])[i] + log softmax_j(s[:, i])[i]),   s[i, j] = score(picture i, text j)

All other texts of a batch are wrong answers to a picture (Radford et al. 2021), but for those that are known to belong
to it too: these are left out of the softmax, so a pair learns as if they were not there. So are pictures for a text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from regard.data.batches import ByLength, Ints, Ragged, handfuls, to_device
from regard.data.bundled import shapes
from regard.data.files import Rows
from regard.data.images import FORMATS, Captioned, Pixels, digest, open_picture, read_captioned
from regard.data.lines import UTF8, Dialect
from regard.data.pictures import Pictures
from regard.data.pieces import Pieces
from regard.data.tokens import Tokenizer
from regard.data.views import Views
from regard.metrics import recall_at
from regard.parts.heads import Model, must_be_finite
from regard.tasks.contrast import alike, contrast, distinct, places
from regard.tasks.inputs import Drawn, ImageInput, TextInput, Written, finite_vectors, fit_tokenizer, in_order, told
from regard.tasks.task import Answer, Choices, Loss, Task, learnt, samples
from regard.validate import check_fields

TOGETHER = 50  # pairs among which the loss of a check is measured


@dataclass(frozen=True)
class Prompting(Choices):
    """How labels are put to the model, and how many are wanted."""

    prompt: str = "{}"  # each label is put into this, such as "a photo of a {}"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self, prompt=("{}" in self.prompt, "a text with {} in it, where the label goes"))


class Pairs(NamedTuple):
    pixels: Tensor  # (B,C,H,W)
    ids: Tensor  # (B,T)
    mask: Tensor  # (B,1,1,T), True = a token
    alike: Tensor  # (B,B), True = of two pairs, but the picture has this text too


class Matched(ByLength):
    """Pictures and texts, each held once. All pairs count as equally long: a text must meet others of any length."""

    def __init__(self, drawn: Drawn, written: Written, pairs: Ints):
        self.drawn, self.written = drawn, written
        self.pairs = pairs  # (2,N), the numbers of picture and text
        self.units = pairs.shape[1]
        self.lengths = np.full((self.units, 1), max(drawn.lengths.max(), written.lengths.max()))


@dataclass
class Match(Task):
    tokenizer: Tokenizer = learnt()
    pictures: Pictures = learnt()
    views: dict[str, Any] | None = learnt(None)  # how pictures are looked at in training

    about = "a picture and some labels in, the label that fits best out"
    takes = "a .tsv of picture files and captions, or a folder with captions.tsv"
    ships = "shapes, with captions"
    asks = ("matches",)
    default = "clip"
    counts = "pairs"
    shares = ("recall_at_1",)
    looks = 1000
    ways = Prompting

    @classmethod
    def groups(cls, ability: str) -> tuple[type, ...]:
        return (Pieces, Views)

    @classmethod
    def rows(
        cls, paths: tuple[str, ...], fields: tuple[str, ...] | None, ability: str, dialect: Dialect = UTF8, **aim: Any
    ) -> Rows:
        return read_captioned(paths, fields, dialect)

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
        return cls(**aim, tokenizer=tokenizer, pictures=pictures, views=told(Views, reading))

    @property
    def seen(self) -> ImageInput:
        return ImageInput(self.pictures, Views(**self.views or {}))

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
        pictures, seen = distinct((self.pictures.prepare([row.pixels])[0] for row in rows), digest)
        texts, said = distinct(self.tokens([row.caption for row in rows], context), tuple)
        return Matched(Drawn(np.stack(pictures), None), Written(Ragged(texts), None), np.stack([seen, said]))

    def tokens(self, texts: Sequence[str], context: int) -> list[list[int]]:
        return self.tokenizer.encode(texts, context)

    def batch(self, examples: Matched, rows: Ints) -> Pairs:
        pairs = examples.pairs[:, rows]
        pixels, _ = self.seen.given(examples.drawn, pairs[0], training=True)
        ids, mask = self.said.given(examples.written, pairs[1], training=True)
        assert mask is not None
        return Pairs(pixels, ids, mask, alike(examples.pairs, rows))

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
            return finite_vectors(model.body.text(ids, mask))

        return in_order(texts.lengths[:, 0], vectors)  # (N,E)

    @torch.inference_mode()
    def picture_vectors(self, model: Model, pictures: Drawn) -> Tensor:
        device = next(model.parameters()).device

        def vectors(rows: Ints) -> Tensor:
            return finite_vectors(model.body.image(self.seen.given(pictures, rows, training=False).x.to(device)))

        return in_order(pictures.lengths[:, 0], vectors)  # (N,E)

    def embed_texts(self, model: Model, texts: Sequence[str]) -> Tensor:
        """(N,E), each of length 1."""
        return self.text_vectors(model, Written(Ragged(self.tokens(texts, model.body.config.context)), None))

    def embed_pictures(self, model: Model, pictures: Sequence[Pixels]) -> Tensor:
        """(N,E), each of length 1."""
        return self.picture_vectors(model, Drawn(self.pictures.prepare(pictures), None))

    def search(self, model: Model, rows: Sequence[Captioned], query: str | Pixels) -> list[tuple[Captioned, float]]:
        """All rows with their cosines, best first: a text looks for their pictures, a picture for their texts."""
        if isinstance(query, str):
            found = self.embed_pictures(model, [row.pixels for row in rows]) @ self.embed_texts(model, [query])[0]
        else:
            found = self.embed_texts(model, [row.caption for row in rows]) @ self.embed_pictures(model, [query])[0]
        return [(rows[i], found[i].item()) for i in found.argsort(descending=True, stable=True).tolist()]

    @torch.inference_mode()
    def score(self, model: Model, rows: Sequence[Captioned], how: Prompting | None = None) -> dict[str, Any]:
        """Each picture looks for one of its texts among all, and each text for one of its pictures."""
        examples = self.prepare(rows, model.body.config.context)
        pictures, texts = self.picture_vectors(model, examples.drawn), self.text_vectors(model, examples.written)
        device, total = next(model.parameters()).device, 0.0
        for i in range(0, len(rows), TOGETHER):
            some = slice(i, i + TOGETHER)
            seen, said = examples.pairs[:, some]
            scores = model.body.scores(pictures[seen].to(device), texts[said].to(device)).cpu()
            total += contrast(scores, alike(examples.pairs, some)).item()
        seen, said = examples.pairs
        cosines = pictures @ texts.T  # (pictures, texts)
        right = torch.zeros_like(cosines, dtype=torch.bool)
        right[seen, said] = True
        numbers = {"loss": total / len(rows)}
        for name, found in ("text", places(cosines, right)), ("picture", places(cosines.T, right.T)):
            numbers |= {f"{name}_recall_at_{k}": recall_at(found, k) for k in (1, 5, 10)}
        both = {"recall_at_1": (numbers["text_recall_at_1"] + numbers["picture_recall_at_1"]) / 2}
        captions = {text: row.caption for text, row in zip(said.tolist(), rows, strict=True)}
        answers = [captions[text] for text in cosines.argmax(1)[seen].tolist()]
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
            for line, (_, *labels) in enumerate(asked, first + 1):
                if not labels or not all(label.strip() for label in labels):
                    told = some[line - first - 1][:60]
                    raise ValueError(f"input:{line}: give a picture file and labels, with tabs between, not {told!r}")
            first += len(some)
            texts = list(dict.fromkeys(label for _, *labels in asked for label in labels))
            place = {label: i for i, label in enumerate(texts)}
            prompts = self.embed_texts(model, [how.prompt.replace("{}", label) for label in texts])
            pictures = self.embed_pictures(model, [open_picture(file) for file, *_ in asked])
            scores = must_be_finite(model.body.scores(pictures.to(device), prompts.to(device)).cpu())  # (lines, labels)
            for row, (_, *labels) in zip(scores, asked, strict=True):
                names = list(dict.fromkeys(labels))
                best = row[[place[name] for name in names]].log_softmax(-1).topk(min(how.num_return, len(names)))
                pairs = zip(best.values.tolist(), best.indices.tolist(), strict=True)
                yield [Answer(names[i], logp, float(np.exp(logp))) for logp, i in pairs]
