"""Tokenizer: text to token ids and back. The backend is a `tokenizers.Tokenizer`, or a `MarianTokenizer`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Encoding
from tokenizers import Tokenizer as Backend

from regard.atomic import replace_file, write_json
from regard.data import hf_tokenizers
from regard.data.hf_tokenizers import TOKENIZER_JSON, read_optional_json
from regard.data.sentencepiece_model import MarianEncoding, MarianTokenizer

CONTINUED_TOKENS = 16  # before a continuation, that are decoded with it
PASSED_ERRORS = (KeyboardInterrupt, SystemExit, MemoryError, TypeError)  # not the fault of a tokenizer file
TOKEN_TYPE_CLASSES = (  # tokenizer classes of transformers that return token_type_ids
    *("Bert", "PreTrained", "Electra", "Deberta", "DebertaV2", "ConvBert", "MobileBert", "SqueezeBert", "Funnel"),
)


class Tokenizer:
    """A backend tokenizer with the roles of its special tokens. The name of a special token inside a text, such as </s>
    or <pad>, is plain text: user input cannot end a document or hide a word.

    No call changes the backend, so threads can share a tokenizer.

    `files` are the files it was loaded from, which `save` copies; `name` is its name in messages; `token_types` says
    whether the model gets the token_type_ids of a pair.
    """

    def __init__(
        self,
        backend: Any,
        roles: dict[str, str],
        files: dict[str, bytes] | None = None,
        model_max_length: float = math.inf,
        name: str = "this tokenizer",
        token_types: bool = True,
    ):
        self.backend_tokenizer, self.roles, self.files, self.name = backend, roles, files, name
        self.model_max_length = model_max_length
        backend.encode_special_tokens = True
        with self._errors():
            self.size = max(backend.get_vocab().values(), default=-1) + 1
        self.eos_token_id = self.token_id(roles.get("eos_token") or roles.get("sep_token", "</s>"))
        self.pad_token_id = self.token_id(roles["pad_token"]) if "pad_token" in roles else self.eos_token_id
        plain = [token for token in roles.values() if self.token_id(token) not in backend.get_added_tokens_decoder()]
        backend.add_special_tokens(added_tokens(plain))
        [self.template_ids] = self.encode([""])  # the special tokens around every text
        self.types = self.pair_types() if token_types and hasattr(backend, "post_processor") else [(0, 0)]

    def _errors(self) -> AbstractContextManager[None]:
        return hf_tokenizers.backend_errors(f"{self.name} failed", PASSED_ERRORS)

    def token_id(self, token: str) -> int:
        number = self.backend_tokenizer.token_to_id(token)
        if number is None:
            source = f" ({self.name})" if self.files else ""
            raise ValueError(f"this tokenizer has no {token}: it was made for another kind of model{source}")
        return number

    def pair_types(self) -> list[tuple[int, int]]:
        """For each token of a pair: the number of separators before it, and its token_type_id."""
        text, separator = " ".join([*self.backend_tokenizer.get_vocab()][:100]), self.roles.get("sep_token")
        [pair] = self.encodings([(text, text)])
        is_separator = [separator is not None and token == self.token_id(separator) for token in pair.ids]
        return sorted({(sum(is_separator[:i]), kind) for i, kind in enumerate(pair.type_ids)})

    @property
    def segment_start(self) -> int:
        """Separators before the second segment of a pair, by its token_type_ids; 0 if all of them are 0."""
        return next((before for before, kind in self.types if kind), 0)

    def validate_pairs(self) -> None:
        """Refuse pairs whose token_type_ids do not follow from separators: a body sees only separators."""
        start = self.segment_start
        if any(kind != (0 < start <= before) for before, kind in self.types):
            problem = f"{self.name} gives a pair of texts type_ids that do not change after its sep_token"
            remedy = 'give its TemplateProcessing a pair like "[CLS] $A [SEP] $B:1 [SEP]:1", or use single texts'
            raise ValueError(f"{problem}: {remedy}")

    @property
    def bos_token_id(self) -> int:
        """The first token of a document: cls_token or bos_token, if the template has it, else eos_token."""
        first = self.roles.get("cls_token") or self.roles.get("bos_token")
        return self.token_id(first) if first and self.token_id(first) in self.template_ids else self.eos_token_id

    @property
    def mask_token_id(self) -> int:
        return self.token_id(self.roles.get("mask_token", "[MASK]"))

    @property
    def all_special_ids(self) -> list[int]:
        return [self.token_id(token) for token in self.roles.values()]

    @property
    def suppress_tokens(self) -> list[int]:
        """Tokens that are never generated: pad_token and unk_token, unless one is also the eos_token."""
        ids = {self.token_id(self.roles[role]) for role in ("pad_token", "unk_token") if role in self.roles}
        return sorted(ids - {self.eos_token_id})

    def __len__(self) -> int:
        """The rows of a model's embedding: one more than the largest id."""
        return self.size

    def encode(self, texts: Sequence[str | tuple[str, str]], max_length: int | None = None) -> list[list[int]]:
        """The ids of each text or pair of texts, with special tokens. With `max_length`, a text longer than that, or
        than model_max_length, is truncated; of a pair, the longer text first."""
        return self._encode(self.backend_tokenizer, texts, max_length)

    def encode_targets(self, texts: Sequence[str], max_length: int | None = None) -> list[list[int]]:
        """The ids of translations; Marian has a second tokenizer for the target language."""
        backend = getattr(self.backend_tokenizer, "target", None) or self.backend_tokenizer
        return self._encode(backend, texts, max_length)

    def _encode(self, backend: Any, texts: Sequence[str | tuple[str, str]], max_length: int | None) -> list[list[int]]:
        limit = math.inf if max_length is None else min(max_length, self.model_max_length)
        with self._errors():
            pairs = zip(texts, backend.encode_batch_fast(list(texts)), strict=True)
            return [e.ids if len(e.ids) <= limit else truncate(backend, text, int(limit)).ids for text, e in pairs]

    def encodings(self, texts: Sequence[object], words: bool = False) -> list[Encoding]:
        """Ids with their offsets in the text or, for lists of words, with the index of their word."""
        with self._errors():
            return self.backend_tokenizer.encode_batch(list(texts), is_pretokenized=words)

    def encode_with_mask(self, text: str) -> list[int]:
        """The ids of a text in which the mask token is a token. All other special tokens are plain text."""
        with self._errors():
            [encoding] = self._mask_backend.encode_batch_fast([text])
            return encoding.ids

    @cached_property
    def _mask_backend(self) -> Backend:
        """A copy of the backend whose mask is no special token. Threads may race to build it; the copies are equal."""
        parts = json.loads(self.backend_tokenizer.to_str())
        for token in parts["added_tokens"]:
            token["special"] = token["special"] and token["id"] != self.mask_token_id
        backend = Backend.from_str(json.dumps(parts))
        backend.encode_special_tokens = True
        return backend

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        with self._errors():
            return self.backend_tokenizer.decode_batch([list(row) for row in rows], skip_special_tokens=True)

    def decode_continuation(self, prefix: Sequence[int], ids: Sequence[int]) -> str:
        """The text that `ids` add to `prefix`. Decoded alone, the first of them might lose its space; the last tokens
        of the prefix suffice."""
        prefix = prefix[-CONTINUED_TOKENS:]
        start, full, alone = self.decode([prefix, [*prefix, *ids], ids])
        return full.removeprefix(start) if full.startswith(start) else alone

    def convert_ids_to_tokens(self, ids: Sequence[int]) -> list[str]:
        return [self.backend_tokenizer.id_to_token(i) or "" for i in ids]

    def save(self, folder: Path) -> None:
        """A tokenizer that was loaded from files is saved as the same files, byte for byte."""
        if self.files is not None:
            for name, content in self.files.items():
                replace_file(folder / name, content)
            return
        replace_file(folder / TOKENIZER_JSON, self.backend_tokenizer.to_str(pretty=True).encode())
        config = {"tokenizer_class": "PreTrainedTokenizerFast", **self.roles, "clean_up_tokenization_spaces": False}
        write_json(folder / "tokenizer_config.json", config | {"model_input_names": model_input_names(folder)})

    @classmethod
    def load(cls, folder: Path) -> Tokenizer:
        """From tokenizer.json, else from the older files of Hugging Face tokenizers."""
        file = folder / TOKENIZER_JSON
        files = hf_tokenizers.tokenizer_files(folder)
        config = hf_tokenizers.read_tokenizer_config(folder)
        in_json = file.name in files
        backend = hf_tokenizers.read_backend(file) if in_json else hf_tokenizers.build_backend(folder, config)
        backend.no_truncation()  # encode truncates to the model's context, not to the length in the file
        backend.no_padding()
        name = str(file) if in_json else f"the tokenizer of {folder}"
        with hf_tokenizers.backend_errors(f"{name} failed", PASSED_ERRORS):
            vocab = backend.get_vocab()
        limit = config.get("model_max_length") or math.inf
        if isinstance(limit, bool) or not isinstance(limit, int | float) or limit < 1:
            raise ValueError(f"{folder / 'tokenizer_config.json'}: model_max_length must be a number, not {limit!r}")
        roles = hf_tokenizers.roles_of(folder, config, vocab)
        tokenizer = cls(backend, roles, files, limit, name, uses_token_types(folder, config))
        for number in tokenizer.template_ids:
            if backend.id_to_token(number) is None:
                raise ValueError(f"{name} puts token {number} around texts, which is not in its vocabulary")
        if len(tokenizer.encode([" ".join([*vocab][:100])])[0]) <= len(tokenizer.template_ids):
            raise ValueError(f"{name} makes no tokens even of a text of its own tokens")
        return tokenizer

    @staticmethod
    def exists_in(folder: Path) -> bool:
        return (folder / TOKENIZER_JSON).is_file() or bool(hf_tokenizers.matching_kinds(folder))


def uses_token_types(folder: Path, config: Mapping[str, object]) -> bool:
    """Whether transformers passes token_type_ids to the model: by tokenizer_config.json, else by the class."""
    names = config.get("model_input_names")
    if names is not None:
        return isinstance(names, list) and "token_type_ids" in names
    if kind := config.get("tokenizer_class"):
        return str(kind).removesuffix("Fast").removesuffix("Tokenizer") in TOKEN_TYPE_CLASSES
    return read_optional_json(folder / "config.json").get("model_type") == "bert"


def model_input_names(folder: Path) -> list[str]:
    """The inputs of the model in a folder: token_type_ids only if it has an embedding for them."""
    types = ["token_type_ids"] if "type_vocab_size" in read_optional_json(folder / "config.json") else []
    return ["input_ids", *types, "attention_mask"]


def truncate(backend: Any, text: str | tuple[str, str], max_length: int) -> Encoding | MarianEncoding:
    """One text or pair, truncated as by `longest_first` of `tokenizers`, which would change the state of the backend
    that all threads share."""
    if isinstance(backend, MarianTokenizer):
        return backend.encode_truncated(text, max_length)
    sides = [backend.encode(side, add_special_tokens=False) for side in ((text,) if isinstance(text, str) else text)]
    room = max(0, max_length - backend.num_special_tokens_to_add(len(sides) == 2))
    if len(sides) == 1:
        sides[0].truncate(room)
        return backend.post_process(sides[0])
    short, long = sorted(sides, key=lambda side: len(side.ids))
    short_length = min(len(short.ids), room // 2)
    short.truncate(short_length)
    long.truncate(room - short_length)
    return backend.post_process(*sides)


def added_tokens(names: Iterable[str]) -> list[AddedToken]:
    return [AddedToken(name, special=True, normalized=False) for name in names]
