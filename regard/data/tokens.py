"""Tokens: text in pieces from a fixed list, and back.

The engine is the `tokenizers` library. A word starts with ▁, punctuation stands alone, both languages share one list:
    </s> = 0, <unk> = 1, the pieces, <pad> last          (the order that Marian's folders need)
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Engine

from regard.choose import must

END, UNKNOWN, PAD = "</s>", "<unk>", "<pad>"
SIZES = (250, 500, 1_000, 2_000, 3_000, 4_000, 6_000, 8_000, 12_000, 16_000, 24_000, 32_000)
SEEN = 150  # words of running text for each piece; Gowda & May 2020 ask for 100 sightings of nearly every piece


@dataclass(frozen=True)
class Pieces:
    """How text is cut."""

    pieces: Literal["bpe", "unigram", "characters"] = "bpe"  # how the tokenizer's pieces are found
    vocab: int | None = None  # pieces in its list; chosen from the data unless given

    def __post_init__(self) -> None:
        must(self, vocab=(self.vocab is None or self.vocab >= 1, "at least 1"))


class Tokenizer:
    def __init__(self, engine: Engine, pad: str = PAD, end: str = END):
        self.engine = engine
        engine.encode_special_tokens = True  # a text that says </s> or <pad> only says so
        self.pad, self.end = self.id_of(pad), self.id_of(end)

    def id_of(self, token: str) -> int:
        number = self.engine.token_to_id(token)
        if number is None:
            raise ValueError(f"this tokenizer has no {token}: it was made for another kind of model")
        return number

    def __len__(self) -> int:
        return self.engine.get_vocab_size()

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, closed by </s>."""
        return [e.ids for e in self.engine.encode_batch_fast(list(texts))]

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        return self.engine.decode_batch([list(row) for row in rows], skip_special_tokens=True)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [self.engine.id_to_token(i) or "" for i in ids]

    def save(self, folder: Path) -> None:
        self.engine.save(str(folder / "tokenizer.json"))
        facts = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": END,
            "unk_token": UNKNOWN,
            "pad_token": PAD,
            "clean_up_tokenization_spaces": False,
            "model_input_names": ["input_ids", "attention_mask"],
        }
        (folder / "tokenizer_config.json").write_text(json.dumps(facts, indent=2) + "\n")

    @classmethod
    def load(cls, folder: Path) -> Tokenizer:
        file = folder / "tokenizer.json"
        if not file.is_file():
            raise ValueError(f"{folder} has no tokenizer.json, so its model cannot read text")
        try:
            return cls(Engine.from_file(str(file)))
        except BaseException as error:  # the engine's panics are no Exceptions
            if isinstance(error, KeyboardInterrupt | ValueError):
                raise
            raise ValueError(f"{file} is not a tokenizer: {error}") from None


def learn(texts: Iterable[str], pieces: Pieces) -> Tokenizer:
    """A tokenizer from the training side of the data; the same texts give the same one."""
    words = count_words(texts)
    if not words:
        raise ValueError("there is no text to learn a tokenizer from")
    least = len(set().union(*words)) + len((END, UNKNOWN, PAD))  # every letter is a piece
    if pieces.vocab and pieces.pieces != "characters" and pieces.vocab <= least:
        raise ValueError(
            f"--vocab {pieces.vocab} cannot hold the letters of this data: they are {least} pieces by themselves. "
            f"Take more than that, or leave --vocab out"
        )
    engine = _trained(words, pieces.pieces, pieces.vocab or max(least, fitting_size(words)))
    if pieces.vocab and engine.get_vocab_size() != pieces.vocab:
        raise ValueError(
            f"--vocab {pieces.vocab} cannot be learnt from this data: it gives {engine.get_vocab_size()} pieces. "
            f"Take that or fewer, or leave --vocab out"
        )
    return Tokenizer(engine)


def fitting_size(words: Counter[str]) -> int:
    """The largest list whose pieces are seen often enough on average to be learnt."""
    return max(size for size in SIZES if size == SIZES[0] or size * SEEN <= words.total())


def count_words(texts: Iterable[str]) -> Counter[str]:
    """Words as the tokenizer will see them: pieces never cross them, so their counts are all there is to learn."""
    engine = _untrained("bpe")
    normal, cut = engine.normalizer, engine.pre_tokenizer
    lines: Counter[str] = Counter()
    for text in texts:
        lines.update(normal.normalize_str(text).split(" "))
    words: Counter[str] = Counter()
    for word, count in lines.items():
        for piece, _ in cut.pre_tokenize_str(word):
            words[piece] += count
    return words


def _untrained(kind: str) -> Engine:
    model = models.Unigram() if kind == "unigram" else models.BPE(unk_token=UNKNOWN, fuse_unk=True)
    engine = Engine(model)
    engine.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    )
    engine.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation("isolated")])
    engine.decoder = decoders.Metaspace()
    return engine


def _trained(words: Counter[str], kind: str, size: int) -> Engine:
    engine = _untrained(kind)
    cut, normal = engine.pre_tokenizer, engine.normalizer
    engine.pre_tokenizer, engine.normalizer = None, None  # the words are cut already
    special = [AddedToken(END, special=True, normalized=False), AddedToken(UNKNOWN, special=True, normalized=False)]
    common: dict[str, Any] = {"special_tokens": special, "show_progress": False}
    trainer = {
        "bpe": lambda: trainers.BpeTrainer(vocab_size=max(1, size - 1), **common),
        "unigram": lambda: trainers.UnigramTrainer(vocab_size=max(1, size - 1), unk_token=UNKNOWN, **common),
        "characters": lambda: trainers.BpeTrainer(vocab_size=0, **common),  # the alphabet, and nothing joined
    }[kind]()
    engine.train_from_iterator((word for word in sorted(words) for _ in range(words[word])), trainer)
    if kind == "unigram":
        engine.model = _settled(engine)
    engine.pre_tokenizer, engine.normalizer = cut, normal
    engine.add_special_tokens([AddedToken(PAD, special=True, normalized=False)])
    engine.post_processor = processors.TemplateProcessing(
        single=f"$A {END}", special_tokens=[(END, engine.token_to_id(END))]
    )
    return engine


def _settled(engine: Engine) -> models.Unigram:
    """The trainer goes through a hash table, in a random order: each run finds the same pieces, but with other last
    digits, and puts the letters it had thrown away back in any order, 0.0001 apart."""
    end, unknown, *pieces = json.loads(engine.to_str())["model"]["vocab"]
    least = min(score for _, score in pieces)
    near = least + 0.0001 * len(pieces)
    rounded = [(p, round(least if len(p) == 1 and score < near else score, 4)) for p, score in pieces]
    return models.Unigram([tuple(end), tuple(unknown), *sorted(rounded, key=lambda p: (-p[1], p[0]))], unk_id=1)
