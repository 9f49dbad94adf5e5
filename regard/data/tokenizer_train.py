"""Train a tokenizer on the training texts.

A `TokenizerLayout` states the special tokens, and whether white space is preserved:

MARIAN_LAYOUT   a b c </s>                          </s> = 0, <unk> = 1, the tokens, <pad> last
BERT_LAYOUT     [CLS] a b c [SEP] d e f [SEP]       [PAD] [UNK] [CLS] [SEP] [MASK], the tokens
GPT_LAYOUT      a b c                               </s> <pad> <unk>, the tokens; preserves all white space
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Backend

from regard.data.hf_tokenizers import template
from regard.data.tokenizer import Tokenizer, added_tokens
from regard.validate import check_fields

VOCAB_SIZES = (250, 500, 1_000, 2_000, 3_000, 4_000, 6_000, 8_000, 12_000, 16_000, 24_000, 32_000)
TEXTS_PER_COUNT = 1_000  # texts that are normalised at once to count words
WORDS_PER_TOKEN = 150  # running words per token; Gowda & May 2020: nearly every token should occur 100 times


@dataclass(frozen=True)
class TokenizerOptions:
    """How text becomes tokens."""

    tokenizer: Literal["bpe", "unigram", "characters", "bytes"] = "bpe"  # tokenizer algorithm
    vocab_size: int | None = None  # maximum tokens in the vocabulary; default: from the amount of text
    lowercase: bool = False  # convert text to lower case

    def __post_init__(self) -> None:
        check_fields(self, vocab_size=(self.vocab_size is None or self.vocab_size >= 1, "at least 1"))


@dataclass(frozen=True)
class TokenizerLayout:
    """The special tokens, their roles, and their places around a text."""

    first: tuple[str, ...]  # special tokens before all others in the vocabulary
    last: tuple[str, ...]  # special tokens after all others
    roles: dict[str, str]  # by the keys of tokenizer_config.json
    single: str | None = None  # template of a text, as in TemplateProcessing
    pair: str | None = None  # template of a pair of texts
    exact: bool = False  # decode(encode(text)) == text for every text


MARIAN_ROLES = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
MARIAN_LAYOUT = TokenizerLayout(("</s>", "<unk>"), ("<pad>",), MARIAN_ROLES, "$A </s>")
BERT_ROLES = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
BERT_ROLES |= {"mask_token": "[MASK]"}
BERT_LAYOUT = TokenizerLayout((*BERT_ROLES.values(),), (), BERT_ROLES, "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1")
GPT_ROLES = {"bos_token": "</s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
GPT_LAYOUT = TokenizerLayout(("</s>", "<pad>", "<unk>"), (), GPT_ROLES, exact=True)


def train_tokenizer(
    texts: Iterable[str], options: TokenizerOptions, layout: TokenizerLayout = MARIAN_LAYOUT
) -> Tokenizer:
    """A tokenizer, trained on `texts`; equal texts give equal tokenizers, in any order."""
    kinds = ("bpe", "characters", "bytes") if layout.exact else ("bpe", "unigram", "characters")
    if options.tokenizer not in kinds:
        raise ValueError(f"--tokenizer {options.tokenizer} is not for this task: choose one of {', '.join(kinds)}")
    backend = _train_exact(texts, options, layout) if layout.exact else _train_word_level(texts, options, layout)
    if options.vocab_size and backend.get_vocab_size() != options.vocab_size:
        problem = f"cannot be reached: this data gives {backend.get_vocab_size()} tokens"
        raise ValueError(f"--vocab-size {options.vocab_size} {problem}. Choose at most that, or leave --vocab-size out")
    if layout.single:
        tokens = layout.first + layout.last
        backend.post_processor = template(backend, layout.single, layout.pair or "$A $B:1", tokens)
    return Tokenizer(backend, layout.roles)


def choose_vocab_size(words: int) -> int:
    """The largest size whose tokens occur often enough on average."""
    return max(size for size in VOCAB_SIZES if size == VOCAB_SIZES[0] or size * WORDS_PER_TOKEN <= words)


def count_words(texts: Iterable[str], backend: Backend) -> Counter[str]:
    """Counts of the pre-tokenized words. No token spans words, so training needs only the counts."""
    normalizer, pre_tokenizer = backend.normalizer, backend.pre_tokenizer
    lines: Counter[str] = Counter()
    source = iter(texts)
    while batch := list(islice(source, TEXTS_PER_COUNT)):
        lines.update(normalizer.normalize_str("\n".join(batch)).split(" "))
    words: Counter[str] = Counter()
    for word, count in lines.items():
        for piece, _ in pre_tokenizer.pre_tokenize_str(word):
            words[piece] += count
    return words


def _train_word_level(texts: Iterable[str], options: TokenizerOptions, layout: TokenizerLayout) -> Backend:
    """A word starts with \u2581, punctuation is separate, and a run of white space counts as one space."""
    unk_token = layout.roles["unk_token"]
    is_unigram = options.tokenizer == "unigram"
    backend = Backend(models.Unigram() if is_unigram else models.BPE(unk_token=unk_token, fuse_unk=True))
    steps = [normalizers.NFC(), *[normalizers.Lowercase()] * options.lowercase]
    normalizer = normalizers.Sequence([*steps, normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()])
    pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation("isolated")])
    backend.normalizer, backend.pre_tokenizer, backend.decoder = normalizer, pre_tokenizer, decoders.Metaspace()
    words = count_words(texts, backend)
    if not words:
        raise ValueError("there is no text to train a tokenizer on")
    min_size = len(set().union(*words)) + len(layout.first) + len(layout.last)  # every character is a token
    if options.vocab_size and options.tokenizer != "characters" and options.vocab_size <= min_size:
        problem = f"cannot contain the characters of this data, {min_size} tokens"
        remedy = "Choose more than that, or leave --vocab-size out"
        raise ValueError(f"--vocab-size {options.vocab_size} {problem}. {remedy}")
    size = max(1, (options.vocab_size or max(min_size, choose_vocab_size(words.total()))) - len(layout.last))
    backend.pre_tokenizer, backend.normalizer = None, None  # the words are pre-tokenized already
    common: dict[str, Any] = {"special_tokens": added_tokens(layout.first), "show_progress": False}
    trainer = {
        "bpe": lambda: trainers.BpeTrainer(vocab_size=size, **common),
        "unigram": lambda: trainers.UnigramTrainer(vocab_size=size, unk_token=unk_token, **common),
        "characters": lambda: trainers.BpeTrainer(vocab_size=0, **common),  # the alphabet, without merges
    }[options.tokenizer]()
    backend.train_from_iterator(([word] * words[word] for word in sorted(words)), trainer)
    if is_unigram:
        backend.model = _make_deterministic(backend, layout)
    backend.pre_tokenizer, backend.normalizer = pre_tokenizer, normalizer
    backend.add_special_tokens(added_tokens(layout.last))
    return backend


def character_backend(names: Iterable[str], layout: TokenizerLayout) -> Backend:
    """A token for each character."""
    backend = Backend(models.WordLevel({name: i for i, name in enumerate(names)}, layout.roles["unk_token"]))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated"), decoders.Fuse()
    backend.add_special_tokens(added_tokens(layout.first))
    return backend


def _train_exact(texts: Iterable[str], options: TokenizerOptions, layout: TokenizerLayout) -> Backend:
    """Byte-level BPE, bytes or characters: decoding restores the text, including white space."""
    lowercase = normalizers.Lowercase() if options.lowercase else None
    num_words, characters = 0, set[str]()

    def count_texts() -> Iterable[str]:
        nonlocal num_words
        for text in texts:
            num_words += len(text.split())
            characters.update(lowercase.normalize_str(text) if lowercase else text)
            yield text

    if options.tokenizer == "characters":
        for _ in count_texts():
            pass
        names = [*layout.first, *sorted(characters)]
        backend = character_backend(names, layout)
    else:
        merges = options.tokenizer == "bpe"
        backend = Backend(models.BPE())
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=merges)
        backend.decoder = decoders.ByteLevel()
        corpus = list(count_texts()) if merges else []
        base_size = len(layout.first) + len(alphabet := sorted(pre_tokenizers.ByteLevel.alphabet()))
        size = options.vocab_size or max(base_size, choose_vocab_size(num_words))
        if merges and size < base_size:
            remedy = f"choose more than {base_size}, or --tokenizer characters"
            raise ValueError(f"--vocab-size {size} cannot contain 256 bytes: {remedy}")
        common: dict[str, Any] = {"special_tokens": added_tokens(layout.first), "show_progress": False}
        trainer = trainers.BpeTrainer(vocab_size=size if merges else 0, initial_alphabet=alphabet, **common)
        backend.train_from_iterator(corpus, trainer)
    if lowercase:
        backend.normalizer = lowercase
    if options.tokenizer != "bytes" and not characters:
        raise ValueError("there is no text to train a tokenizer on")
    return backend


def _make_deterministic(backend: Backend, layout: TokenizerLayout) -> models.Unigram:
    """The trainer iterates over a hash table in random order: every run finds the same pieces, but the last digits of
    scores differ, and pruned characters return in any order, 0.0001 apart. So scores are rounded and sorted."""
    vocab = json.loads(backend.to_str())["model"]["vocab"]
    special_pieces, pieces = vocab[: len(layout.first)], vocab[len(layout.first) :]
    lowest = min(score for _, score in pieces)
    limit = lowest + 0.0001 * len(pieces)
    rounded = [(p, round(lowest if len(p) == 1 and score < limit else score, 4)) for p, score in pieces]
    ordered = [*map(tuple, special_pieces), *sorted(rounded, key=lambda p: (-p[1], p[0]))]
    return models.Unigram(ordered, unk_id=layout.first.index(layout.roles["unk_token"]))
