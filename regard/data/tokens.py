"""Tokens: text in pieces from a fixed list, and back. The engine is the `tokenizers` library, or answers as it does."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Encoding

from regard.data import foreign
from regard.data.foreign import blaming
from regard.places import replace_file, write_json


class Tokenizer:
    """An engine with the roles of its special tokens. A text that says </s> or <pad> only says so, whoever made the
    tokenizer: what a user types never ends a document or hides a word.

    `files` are those it was made of, as they were; `most` is the length it was made for; `name` stands in messages.
    """

    def __init__(
        self,
        engine: Any,
        roles: dict[str, str],
        files: dict[str, bytes] | None = None,
        most: float = math.inf,
        name: str = "this tokenizer",
    ):
        self.engine, self.roles, self.files, self.most, self.name = engine, roles, files, most, name
        engine.encode_special_tokens = True
        with blaming(name):
            self.size = max(engine.get_vocab().values(), default=-1) + 1
        self.end = self.id_of(roles.get("eos_token") or roles.get("sep_token", "</s>"))
        self.pad = self.id_of(roles["pad_token"]) if "pad_token" in roles else self.end  # it is masked anyway
        plain = [token for token in roles.values() if self.id_of(token) not in engine.get_added_tokens_decoder()]
        engine.add_special_tokens(special(plain))
        [self.around] = self.encode([""])  # what stands around every text

    def id_of(self, token: str) -> int:
        number = self.engine.token_to_id(token)
        if number is None:
            where = f" ({self.name})" if self.files else ""
            raise ValueError(f"this tokenizer has no {token}: it was made for another kind of model{where}")
        return number

    @property
    def begin(self) -> int:
        """What opens a document."""
        opens = self.roles.get("cls_token") or self.roles.get("bos_token")
        return self.id_of(opens) if opens and self.id_of(opens) in self.around else self.end

    @property
    def mask(self) -> int:
        return self.id_of(self.roles.get("mask_token", "[MASK]"))

    @property
    def special(self) -> list[int]:
        return [self.id_of(token) for token in self.roles.values()]

    @property
    def never(self) -> list[int]:
        """What is not to be written: padding and the unknown, unless they are the end as well."""
        named = {self.id_of(self.roles[role]) for role in ("pad_token", "unk_token") if role in self.roles}
        return sorted(named - {self.end})

    def __len__(self) -> int:
        """Rows that a model needs: one more than the largest id."""
        return self.size

    def encode(self, texts: Sequence[str] | Sequence[tuple[str, str]]) -> list[list[int]]:
        """The ids of each text or pair of texts, with what the layout puts around them."""
        with blaming(self.name):
            return [e.ids for e in self.engine.encode_batch_fast(list(texts))]

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of translations: a tokenizer of two languages cuts the second in another way."""
        with blaming(self.name):
            return [e.ids for e in (getattr(self.engine, "target", None) or self.engine).encode_batch_fast(list(texts))]

    def encodings(self, texts: Sequence[Any], words: bool = False) -> list[Encoding]:
        """Ids and where each comes from: places in the text, or, of lists of words, the number of the word."""
        with blaming(self.name):
            return self.engine.encode_batch(list(texts), is_pretokenized=words)

    def encode_marked(self, text: str) -> list[int]:
        """The ids of a text in which special tokens stand for themselves."""
        self.engine.encode_special_tokens = False
        try:
            return self.encode([text])[0]
        finally:
            self.engine.encode_special_tokens = True

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        with blaming(self.name):
            return self.engine.decode_batch([list(row) for row in rows], skip_special_tokens=True)

    def more(self, before: Sequence[int], ids: Sequence[int]) -> str:
        """The text that ids add to those before them: alone, the first of them might lose its space."""
        start, whole, alone = self.decode([before, [*before, *ids], ids])
        return whole.removeprefix(start) if whole.startswith(start) else alone

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [self.engine.id_to_token(i) or "" for i in ids]

    def longest(self, tokens: int) -> None:
        """From now on cut what is longer than this, or than the tokenizer was made for."""
        with blaming(self.name):
            self.engine.enable_truncation(int(min(tokens, self.most)), strategy="longest_first")

    def save(self, folder: Path) -> None:
        """What came out of files goes back as it was, byte for byte."""
        self.engine.no_truncation()
        if self.files is not None:
            for name, content in self.files.items():
                replace_file(folder / name, content)
            return
        replace_file(folder / "tokenizer.json", self.engine.to_str(pretty=True).encode())
        facts = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            **self.roles,
            "clean_up_tokenization_spaces": False,
            "model_input_names": ["input_ids", "attention_mask"],
        }
        write_json(folder / "tokenizer_config.json", facts)

    @classmethod
    def load(cls, folder: Path) -> Tokenizer:
        """From tokenizer.json, or else from the other files that tokenizers come in."""
        file = folder / foreign.WHOLE
        files = foreign.files_of(folder)
        told = foreign.read_told(folder)
        engine = foreign.read_engine(file) if file.name in files else foreign.build(folder, told)
        engine.no_truncation()  # what the file asks for is not what the model's context asks for
        engine.no_padding()
        name = str(file) if file.name in files else f"the tokenizer of {folder}"
        with blaming(name):
            known = engine.get_vocab()
        most = told.get("model_max_length") or math.inf
        if isinstance(most, bool) or not isinstance(most, int | float) or most < 1:
            raise ValueError(f"{folder / 'tokenizer_config.json'}: model_max_length must be a number, not {most!r}")
        made = cls(engine, foreign.roles_of(folder, told, known), files, most, name)
        for number in made.around:
            if engine.id_to_token(number) is None:
                raise ValueError(f"{name} puts token {number} around texts, which is not in its list")
        if len(made.encode([" ".join([*known][:100])])[0]) <= len(made.around):
            raise ValueError(f"{name} makes no tokens even of a text of its own pieces")
        return made

    @staticmethod
    def lies_in(folder: Path) -> bool:
        return foreign.holds_tokenizer(folder)


def special(names: Iterable[str]) -> list[AddedToken]:
    return [AddedToken(name, special=True, normalized=False) for name in names]
