"""Join tokens to words by the marker with which a tokenizer begins or continues a word.

    ▁Was ser ,       ▁ is the space before a word (SentencePiece; tokenizers trained here)     Kudo & Richardson 2018
    ĠWas ser ,       Ġ is a space; every character is a byte (byte-level BPE)                  Radford et al. 2019
    Was ##ser ,      ## continues a word (WordPiece)                                           Devlin et al. 2019
    M K T A Y        no marker and no spaces: every token is a word

Where spaces are marked, letters continue a word and punctuation is a word of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Literal, NamedTuple

from tokenizers import decoders, pre_tokenizers

from regard.data.tokenizer import Tokenizer

Marker = Literal["▁", "Ġ", "##", ""]
REPLACEMENT = "\ufffd"  # the decoding of an incomplete UTF-8 sequence
BYTE_DECODER = decoders.ByteLevel()
DETOKENIZE: dict[str, Callable[[Sequence[str]], str]] = {
    "▁": lambda tokens: "".join(tokens).replace("▁", " "),
    "Ġ": lambda tokens: str(BYTE_DECODER.decode(list(tokens))),
    "##": lambda tokens: "".join(token.removeprefix("##") for token in tokens),
    "": "".join,
}


class TokenizedText(NamedTuple):
    tokens: list[str]  # as the page displays them
    word_ids: list[int]  # index of each token's word, -1 for special tokens
    words: list[str]


def tokenize_words(tokenizer: Tokenizer, ids: Sequence[int]) -> TokenizedText:
    marker, special_tokens = space_marker(tokenizer), special_ids(tokenizer)
    tokens = tokenizer.convert_ids_to_tokens(ids)
    special = {i for i, token_id in enumerate(ids) if token_id in special_tokens}
    word_ids, words = [-1] * len(tokens), list[str]()
    for word, positions in group_words(tokens, marker, special):
        if positions[0] not in special:
            for i in positions:
                word_ids[i] = len(words)
            words.append(word)
    return TokenizedText([display_token(token, marker) for token in tokens], word_ids, words)


def group_words(
    tokens: Sequence[str], marker: Marker = "▁", special: Collection[int] = ()
) -> list[tuple[str, list[int]]]:
    """Each word with the positions of its tokens. A token at a `special` position belongs to no word."""
    groups: list[list[int]] = []
    for i in range(len(tokens)):
        if i and i not in special and i - 1 not in special and continues_word(tokens[i - 1], tokens[i], marker):
            groups[-1].append(i)
        else:
            groups.append([i])
    return [(DETOKENIZE[marker]([tokens[i] for i in positions]).strip(), positions) for positions in groups]


def continues_word(previous: str, token: str, marker: Marker) -> bool:
    if not marker:
        return False
    if marker == "##":
        return token.startswith("##")
    previous, token = DETOKENIZE[marker]([previous]), DETOKENIZE[marker]([token])
    if not token or token[0].isspace():
        return False
    return previous.isspace() or (is_letter(previous[-1:]) and is_letter(token[0]))


def is_letter(char: str) -> bool:
    return char.isalnum() or char == REPLACEMENT


def display_token(token: str, marker: Marker) -> str:
    """Bytes decoded to text where they form complete, printable characters; spaces keep their markers."""
    if marker != "Ġ":
        return token
    text = DETOKENIZE[marker]([token]).replace(" ", "Ġ").replace("\n", "Ċ")
    return text if text.isprintable() and REPLACEMENT not in text else token


def space_marker(tokenizer: Tokenizer) -> Marker:
    vocab = tokenizer.backend_tokenizer.get_vocab()
    if vocab.keys() >= set(pre_tokenizers.ByteLevel.alphabet()):
        return "Ġ"
    # Other vocabularies hold fragments of arbitrary text, a few of which may start with a foreign marker.
    continued, spaced = (count_prefix(vocab, marker) for marker in ("##", ("▁", " ")))
    return "##" if continued > spaced else "▁" if spaced else ""


def count_prefix(tokens: Collection[str], prefix: str | tuple[str, ...]) -> int:
    return sum(token.startswith(prefix) for token in tokens)


def special_ids(tokenizer: Tokenizer) -> set[int]:
    """Ids of tokens that represent no text. Mask and unknown tokens represent a word."""
    by_role = {role: tokenizer.token_id(name) for role, name in tokenizer.roles.items()}
    words = {by_role.pop(role) for role in ("mask_token", "unk_token") if role in by_role}
    added = tokenizer.backend_tokenizer.get_added_tokens_decoder().items()
    return {token_id for token_id, token in added if getattr(token, "special", True)} - words | {*by_role.values()}
