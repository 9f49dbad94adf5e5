"""The amino-acid alphabet of proteins, and its tokenizer with one token per residue.

    MKTAYIAKQR  ->  [CLS] M K T A Y I A K Q R [SEP]

Each of the twenty standard amino acids has a letter, and X is an unknown one. The ambiguous and rare letters B, J, O,
U and Z are read as X. Lower case is read as upper case. A * at the end marks the end of the chain and is dropped.
"""

from tokenizers import Regex, normalizers

from regard.data.hf_tokenizers import template
from regard.data.tokenizer import Tokenizer
from regard.data.tokenizer_train import BERT_LAYOUT, character_backend

AMINO_ACIDS = "ACDEFGHIKLMNPQRSTVWY"
NONSTANDARD = "BJOUZ"
UNKNOWN = "X"
ALPHABET = frozenset(AMINO_ACIDS + NONSTANDARD + UNKNOWN)
EXAMPLE = "MKTAYIAKQRQISFVKSHFSRQLEERLGLIEVQ"


def protein_tokenizer() -> Tokenizer:
    """The one tokenizer of all protein models; it is not trained."""
    backend = character_backend([*BERT_LAYOUT.first, *AMINO_ACIDS, UNKNOWN], BERT_LAYOUT)
    backend.normalizer = normalizers.Replace(Regex(f"[{NONSTANDARD}]"), UNKNOWN)
    backend.post_processor = template(backend, str(BERT_LAYOUT.single), str(BERT_LAYOUT.pair), BERT_LAYOUT.first)
    return Tokenizer(backend, BERT_LAYOUT.roles)


def is_protein_tokenizer(tokenizer: Tokenizer) -> bool:
    tokens = {*tokenizer.convert_ids_to_tokens(range(len(tokenizer)))}
    return tokens - {*tokenizer.roles.values()} == {*AMINO_ACIDS, UNKNOWN}


def find_invalid_residue(text: str) -> str | None:
    """The first letter that is not in the alphabet."""
    return next((letter for letter in text if letter not in ALPHABET), None)


def parse_protein(text: str) -> str:
    """A protein from user input: white space and a final * are dropped, and letters are made upper case."""
    protein = "".join(text.split()).upper().removesuffix("*")
    if letter := find_invalid_residue(protein):
        letters = f"a protein has the letters {AMINO_ACIDS}, X if unknown"
        raise ValueError(f'{letter!r} is no amino acid: {letters}, not "{text[:60]}"')
    return protein
