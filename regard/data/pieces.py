"""Learning which pieces there are, from the text itself.

What surrounds a text, and whether every space of it counts, is a `Layout`:

TRANSLATING   a b c </s>                          </s> = 0, <unk> = 1, the pieces, <pad> last: as Marian has it
READING       [CLS] a b c [SEP] d e f [SEP]       [PAD] [UNK] [CLS] [SEP] [MASK], the pieces: as in BERT
WRITING       a b c                               </s> <pad> <unk>, the pieces; every space and line break counts
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Engine

from regard.data.tokens import Tokenizer, special
from regard.validate import check_fields

SIZES = (250, 500, 1_000, 2_000, 3_000, 4_000, 6_000, 8_000, 12_000, 16_000, 24_000, 32_000)
TOGETHER = 1_000  # texts whose words are counted at once
SEEN = 150  # words of running text for each piece; Gowda & May 2020 ask for 100 sightings of nearly every piece


@dataclass(frozen=True)
class Pieces:
    """How text is cut."""

    pieces: Literal["bpe", "unigram", "characters", "bytes"] = "bpe"  # how the tokenizer's pieces are found
    vocab: int | None = None  # pieces in its list; chosen from the data unless given
    lowercase: bool = False  # read capital letters as small ones

    def __post_init__(self) -> None:
        check_fields(self, vocab=(self.vocab is None or self.vocab >= 1, "at least 1"))


@dataclass(frozen=True)
class Layout:
    """The special tokens, the roles they play, and where they stand around a text."""

    first: tuple[str, ...]
    last: tuple[str, ...]
    roles: dict[str, str]  # as tokenizer_config.json calls them
    single: str | None = None
    pair: str | None = None
    exact: bool = False  # decode(encode(text)) == text, whatever the text


TRANSLATING = Layout(
    ("</s>", "<unk>"), ("<pad>",), {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}, "$A </s>"
)
READING = Layout(
    ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    (),
    {
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "mask_token": "[MASK]",
    },
    "[CLS] $A [SEP]",
    "[CLS] $A [SEP] $B:1 [SEP]:1",
)
WRITING = Layout(
    ("</s>", "<pad>", "<unk>"),
    (),
    {"bos_token": "</s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"},
    exact=True,
)


def learn(texts: Iterable[str], pieces: Pieces, layout: Layout = TRANSLATING) -> Tokenizer:
    """A tokenizer from the training side of the data; the same texts give the same one."""
    kinds = ("bpe", "characters", "bytes") if layout.exact else ("bpe", "unigram", "characters")
    if pieces.pieces not in kinds:
        raise ValueError(f"--pieces {pieces.pieces} is not for this task: choose {', '.join(kinds)}")
    engine = _exact(texts, pieces, layout) if layout.exact else _worded(texts, pieces, layout)
    if pieces.vocab and engine.get_vocab_size() != pieces.vocab:
        raise ValueError(
            f"--vocab {pieces.vocab} cannot be learnt from this data: it gives {engine.get_vocab_size()} pieces. "
            f"Take that or fewer, or leave --vocab out"
        )
    if layout.single:
        engine.post_processor = processors.TemplateProcessing(
            single=layout.single,
            pair=layout.pair or "$A $B:1",
            special_tokens=[(token, engine.token_to_id(token)) for token in layout.first + layout.last],
        )
    return Tokenizer(engine, layout.roles)


def fitting_size(words: int) -> int:
    """The largest list whose pieces are seen often enough on average to be learnt."""
    return max(size for size in SIZES if size == SIZES[0] or size * SEEN <= words)


def count_words(texts: Iterable[str], engine: Engine) -> Counter[str]:
    """Words as the tokenizer will see them: pieces never cross them, so their counts are all there is to learn."""
    normal, cut = engine.normalizer, engine.pre_tokenizer
    lines: Counter[str] = Counter()
    source = iter(texts)
    while batch := list(islice(source, TOGETHER)):
        lines.update(normal.normalize_str("\n".join(batch)).split(" "))
    words: Counter[str] = Counter()
    for word, count in lines.items():
        for piece, _ in cut.pre_tokenize_str(word):
            words[piece] += count
    return words


def _worded(texts: Iterable[str], pieces: Pieces, layout: Layout) -> Engine:
    """A word starts with \u2581, punctuation stands alone, and runs of spaces are one."""
    unknown = layout.roles["unk_token"]
    engine = Engine(models.Unigram() if pieces.pieces == "unigram" else models.BPE(unk_token=unknown, fuse_unk=True))
    small = [normalizers.Lowercase()] if pieces.lowercase else []
    normal = normalizers.Sequence(
        [normalizers.NFC(), *small, normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    )
    cut = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation("isolated")])
    engine.normalizer, engine.pre_tokenizer, engine.decoder = normal, cut, decoders.Metaspace()
    words = count_words(texts, engine)
    if not words:
        raise ValueError("there is no text to learn a tokenizer from")
    least = len(set().union(*words)) + len(layout.first) + len(layout.last)  # every letter is a piece
    if pieces.vocab and pieces.pieces != "characters" and pieces.vocab <= least:
        raise ValueError(
            f"--vocab {pieces.vocab} cannot hold the letters of this data: they are {least} pieces by themselves. "
            f"Take more than that, or leave --vocab out"
        )
    size = max(1, (pieces.vocab or max(least, fitting_size(words.total()))) - len(layout.last))
    engine.pre_tokenizer, engine.normalizer = None, None  # the words are cut already
    common: dict[str, Any] = {"special_tokens": special(layout.first), "show_progress": False}
    trainer = {
        "bpe": lambda: trainers.BpeTrainer(vocab_size=size, **common),
        "unigram": lambda: trainers.UnigramTrainer(vocab_size=size, unk_token=unknown, **common),
        "characters": lambda: trainers.BpeTrainer(vocab_size=0, **common),  # the alphabet, and nothing joined
    }[pieces.pieces]()
    engine.train_from_iterator(([word] * words[word] for word in sorted(words)), trainer)
    if pieces.pieces == "unigram":
        engine.model = _settled(engine, layout)
    engine.pre_tokenizer, engine.normalizer = cut, normal
    engine.add_special_tokens(special(layout.last))
    return engine


def _exact(texts: Iterable[str], pieces: Pieces, layout: Layout) -> Engine:
    """Bytes, joined to larger pieces or not, or letters: what is read is given back to the last space."""
    small = normalizers.Lowercase() if pieces.lowercase else None
    seen, letters = 0, set[str]()

    def counted() -> Iterable[str]:
        nonlocal seen
        for text in texts:
            seen += len(text.split())
            letters.update(small.normalize_str(text) if small else text)
            yield text

    if pieces.pieces == "characters":
        for _ in counted():
            pass
        names = [*layout.first, *sorted(letters)]
        engine = Engine(models.WordLevel({name: i for i, name in enumerate(names)}, layout.roles["unk_token"]))
        engine.pre_tokenizer, engine.decoder = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated"), decoders.Fuse()
        engine.add_special_tokens(special(layout.first))
    else:
        joined = pieces.pieces == "bpe"
        engine = Engine(models.BPE())
        engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=joined)
        engine.decoder = decoders.ByteLevel()
        held = list(counted()) if joined else []
        bare = len(layout.first) + len(alphabet := sorted(pre_tokenizers.ByteLevel.alphabet()))
        size = pieces.vocab or max(bare, fitting_size(seen))
        if joined and size < bare:
            raise ValueError(f"--vocab {size} cannot hold the 256 bytes: take more than {bare}, or --pieces characters")
        trainer = trainers.BpeTrainer(
            vocab_size=size if joined else 0,
            special_tokens=special(layout.first),
            initial_alphabet=alphabet,
            show_progress=False,
        )
        engine.train_from_iterator(held, trainer)
    if small:
        engine.normalizer = small
    if pieces.pieces != "bytes" and not letters:
        raise ValueError("there is no text to learn a tokenizer from")
    return engine


def _settled(engine: Engine, layout: Layout) -> models.Unigram:
    """The trainer goes through a hash table, in a random order: each run finds the same pieces, but with other last
    digits, and puts the letters it had thrown away back in any order, 0.0001 apart."""
    found = json.loads(engine.to_str())["model"]["vocab"]
    names, pieces = found[: len(layout.first)], found[len(layout.first) :]
    least = min(score for _, score in pieces)
    near = least + 0.0001 * len(pieces)
    rounded = [(p, round(least if len(p) == 1 and score < near else score, 4)) for p, score in pieces]
    settled = [*map(tuple, names), *sorted(rounded, key=lambda p: (-p[1], p[0]))]
    return models.Unigram(settled, unk_id=layout.first.index(layout.roles["unk_token"]))
