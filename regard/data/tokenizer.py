"""Tokens: text in pieces from a fixed list, and back. The engine is the `tokenizers` library, or answers as it does."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Encoding
from tokenizers import Tokenizer as Engine

from regard.atomic import replace_file, write_json
from regard.data import hf_tokenizers
from regard.data.hf_tokenizers import blaming
from regard.data.sentencepiece_model import Marian


class Tokenizer:
    """An engine with the roles of its special tokens. A text that says </s> or <pad> only says so, whoever made the
    tokenizer: what a user types never ends a document or hides a word.

    No call changes the engine, so that threads can share a tokenizer.

    `files` are those it was made of, as they were; `most` is the length it was made for; `name` stands in messages;
    `typed` tells whether a model is given the type_ids of a pair.
    """

    def __init__(
        self,
        engine: Any,
        roles: dict[str, str],
        files: dict[str, bytes] | None = None,
        most: float = math.inf,
        name: str = "this tokenizer",
        typed: bool = True,
    ):
        self.backend_tokenizer, self.roles, self.files, self.model_max_length, self.name = (
            engine,
            roles,
            files,
            most,
            name,
        )
        engine.encode_special_tokens = True
        with blaming(name):
            self.size = max(engine.get_vocab().values(), default=-1) + 1
        self.eos_token_id = self.token_id(roles.get("eos_token") or roles.get("sep_token", "</s>"))
        self.pad_token_id = (
            self.token_id(roles["pad_token"]) if "pad_token" in roles else self.eos_token_id
        )  # it is masked anyway
        plain = [token for token in roles.values() if self.token_id(token) not in engine.get_added_tokens_decoder()]
        engine.add_special_tokens(added_tokens(plain))
        [self.template_ids] = self.encode([""])  # what stands around every text
        self.types = self.types_of_pair() if typed and hasattr(engine, "post_processor") else [(0, 0)]

    def token_id(self, token: str) -> int:
        number = self.backend_tokenizer.token_to_id(token)
        if number is None:
            where = f" ({self.name})" if self.files else ""
            raise ValueError(f"this tokenizer has no {token}: it was made for another kind of model{where}")
        return number

    def types_of_pair(self) -> list[tuple[int, int]]:
        """Of each token of a pair: how many separators are before it, and its type id."""
        text, separator = " ".join([*self.backend_tokenizer.get_vocab()][:100]), self.roles.get("sep_token")
        [pair] = self.encodings([(text, text)])
        ends = [separator is not None and token == self.token_id(separator) for token in pair.ids]
        return sorted({(sum(ends[:i]), kind) for i, kind in enumerate(pair.type_ids)})

    @property
    def segment_start(self) -> int:
        """Separators before the second segment of a pair, by its type_ids; 0 if all of them are 0."""
        return next((before for before, kind in self.types if kind), 0)

    def validate_pairs(self) -> None:
        """Refuse pairs whose segments no separator tells apart: a body sees separators, and not the type_ids."""
        start = self.segment_start
        if any(kind != (0 < start <= before) for before, kind in self.types):
            raise ValueError(
                f"{self.name} gives a pair of texts type_ids that do not change behind its sep_token: give its "
                'TemplateProcessing a pair like "[CLS] $A [SEP] $B:1 [SEP]:1", or ask about single texts'
            )

    @property
    def bos_token_id(self) -> int:
        """What opens a document."""
        opens = self.roles.get("cls_token") or self.roles.get("bos_token")
        return self.token_id(opens) if opens and self.token_id(opens) in self.template_ids else self.eos_token_id

    @property
    def mask_token_id(self) -> int:
        return self.token_id(self.roles.get("mask_token", "[MASK]"))

    @property
    def all_special_ids(self) -> list[int]:
        return [self.token_id(token) for token in self.roles.values()]

    @property
    def suppress_tokens(self) -> list[int]:
        """What is not to be written: padding and the unknown, unless they are the end as well."""
        named = {self.token_id(self.roles[role]) for role in ("pad_token", "unk_token") if role in self.roles}
        return sorted(named - {self.eos_token_id})

    def __len__(self) -> int:
        """Rows that a model needs: one more than the largest id."""
        return self.size

    def encode(
        self, texts: Sequence[str] | Sequence[tuple[str, str]], max_length: int | None = None
    ) -> list[list[int]]:
        """The ids of each text or pair of texts, with what the layout puts around them. With `max_length`, what is
        longer than this, or than the tokenizer was made for, is truncated; of a pair, the longer text first."""
        return self._encoded(self.backend_tokenizer, texts, max_length)

    def encode_targets(self, texts: Sequence[str], max_length: int | None = None) -> list[list[int]]:
        """The ids of translations: a tokenizer of two languages cuts the second in another way."""
        return self._encoded(
            getattr(self.backend_tokenizer, "target", None) or self.backend_tokenizer, texts, max_length
        )

    def _encoded(self, engine: Any, texts: Sequence[Any], max_length: int | None) -> list[list[int]]:
        most = math.inf if max_length is None else min(max_length, self.model_max_length)
        with blaming(self.name):
            pairs = zip(texts, engine.encode_batch_fast(list(texts)), strict=True)
            return [e.ids if len(e.ids) <= most else truncated(engine, text, int(most)).ids for text, e in pairs]

    def encodings(self, texts: Sequence[Any], words: bool = False) -> list[Encoding]:
        """Ids and where each comes from: places in the text, or, of lists of words, the number of the word."""
        with blaming(self.name):
            return self.backend_tokenizer.encode_batch(list(texts), is_pretokenized=words)

    def encode_with_mask(self, text: str) -> list[int]:
        """The ids of a text in which the mask token stands for itself. All other special tokens are only text."""
        with blaming(self.name):
            [found] = self._marking.encode_batch_fast([text])
            return found.ids

    @cached_property
    def _marking(self) -> Engine:
        """A second engine, to which the mask is a common token. Two threads may both make it: they make the same."""
        described = json.loads(self.backend_tokenizer.to_str())
        for token in described["added_tokens"]:
            token["special"] = token["special"] and token["id"] != self.mask_token_id
        engine = Engine.from_str(json.dumps(described))
        engine.encode_special_tokens = True
        return engine

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        with blaming(self.name):
            return self.backend_tokenizer.decode_batch([list(row) for row in rows], skip_special_tokens=True)

    def decode_continuation(self, before: Sequence[int], ids: Sequence[int]) -> str:
        """The text that ids add to those before them: alone, the first of them might lose its space."""
        start, whole, alone = self.decode([before, [*before, *ids], ids])
        return whole.removeprefix(start) if whole.startswith(start) else alone

    def convert_ids_to_tokens(self, ids: Sequence[int]) -> list[str]:
        return [self.backend_tokenizer.id_to_token(i) or "" for i in ids]

    def save(self, folder: Path) -> None:
        """What came out of files goes back as it was, byte for byte."""
        if self.files is not None:
            for name, content in self.files.items():
                replace_file(folder / name, content)
            return
        replace_file(folder / "tokenizer.json", self.backend_tokenizer.to_str(pretty=True).encode())
        facts = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            **self.roles,
            "clean_up_tokenization_spaces": False,
            "model_input_names": hf_tokenizers.inputs_of(folder),
        }
        write_json(folder / "tokenizer_config.json", facts)

    @classmethod
    def load(cls, folder: Path) -> Tokenizer:
        """From tokenizer.json, or else from the other files that tokenizers come in."""
        file = folder / hf_tokenizers.WHOLE
        files = hf_tokenizers.files_of(folder)
        told = hf_tokenizers.read_told(folder)
        engine = hf_tokenizers.read_engine(file) if file.name in files else hf_tokenizers.build(folder, told)
        engine.no_truncation()  # what the file asks for is not what the model's context asks for
        engine.no_padding()
        name = str(file) if file.name in files else f"the tokenizer of {folder}"
        with blaming(name):
            known = engine.get_vocab()
        most = told.get("model_max_length") or math.inf
        if isinstance(most, bool) or not isinstance(most, int | float) or most < 1:
            raise ValueError(f"{folder / 'tokenizer_config.json'}: model_max_length must be a number, not {most!r}")
        roles = hf_tokenizers.roles_of(folder, told, known)
        made = cls(engine, roles, files, most, name, hf_tokenizers.gives_types(folder, told))
        for number in made.template_ids:
            if engine.id_to_token(number) is None:
                raise ValueError(f"{name} puts token {number} around texts, which is not in its list")
        if len(made.encode([" ".join([*known][:100])])[0]) <= len(made.template_ids):
            raise ValueError(f"{name} makes no tokens even of a text of its own pieces")
        return made

    @staticmethod
    def exists_in(folder: Path) -> bool:
        return hf_tokenizers.holds_tokenizer(folder)


def truncated(engine: Any, text: str | tuple[str, str], max_length: int) -> Any:
    """One text or pair, truncated as the `longest_first` of `tokenizers` does it, which would need a switch of the
    engine that all requests share."""
    if isinstance(engine, Marian):
        return engine.truncated(text, max_length)
    sides = [engine.encode(side, add_special_tokens=False) for side in ((text,) if isinstance(text, str) else text)]
    room = max(0, max_length - engine.num_special_tokens_to_add(len(sides) == 2))
    if len(sides) == 1:
        sides[0].truncate(room)
        return engine.post_process(sides[0])
    short, long = sorted(sides, key=lambda side: len(side.ids))
    kept = min(len(short.ids), room // 2)
    short.truncate(kept)
    long.truncate(room - kept)
    return engine.post_process(*sides)


def added_tokens(names: Iterable[str]) -> list[AddedToken]:
    return [AddedToken(name, special=True, normalized=False) for name in names]
