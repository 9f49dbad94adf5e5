"""Residues: the letters of proteins, and the tokenizer that makes a token of each.

    MKTAYIAKQR  ->  [CLS] M K T A Y I A K Q R [SEP]

Twenty amino acids have a letter each, and X is one that nobody knows. The rare ones and those that leave a choice (B,
J, O, U, Z) are read as X. A small letter is a capital one, a * at the end only says that the chain ends there.
"""

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Engine

from regard.data.pieces import READING
from regard.data.tokens import Tokenizer, special

USUAL = "ACDEFGHIKLMNPQRSTVWY"
RARE = "BJOUZ"
UNKNOWN = "X"
LETTERS = frozenset(USUAL + RARE + UNKNOWN)
EXAMPLE = "MKTAYIAKQRQISFVKSHFSRQLEERLGLIEVQ"


def protein_tokenizer() -> Tokenizer:
    """Always the same one: there is nothing to learn about letters."""
    names = [*READING.first, *USUAL, UNKNOWN]
    engine = Engine(models.WordLevel({name: i for i, name in enumerate(names)}, READING.roles["unk_token"]))
    engine.normalizer = normalizers.Replace(Regex(f"[{RARE}]"), UNKNOWN)
    engine.pre_tokenizer, engine.decoder = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated"), decoders.Fuse()
    engine.add_special_tokens(special(READING.first))
    engine.post_processor = processors.TemplateProcessing(
        single=READING.single,
        pair=READING.pair,
        special_tokens=[(token, engine.token_to_id(token)) for token in READING.first],
    )
    return Tokenizer(engine, READING.roles)


def is_protein_tokenizer(tokenizer: Tokenizer) -> bool:
    """Whether a tokenizer is one for residues."""
    return {*tokenizer.pieces(range(len(tokenizer)))} - {*tokenizer.roles.values()} == {*USUAL, UNKNOWN}


def strange(text: str) -> str | None:
    """The first of a chain's letters that stands for no amino acid."""
    return next((letter for letter in text if letter not in LETTERS), None)


def parse_protein(text: str) -> str:
    """A chain as a user types it."""
    chain = "".join(text.split()).upper().removesuffix("*")
    if letter := strange(chain):
        raise ValueError(
            f'{letter!r} is no amino acid: a chain is written in the letters {USUAL}, X if unknown, not "{text[:60]}"'
        )
    return chain
