"""The amino-acid alphabet of proteins, and its tokenizer with one token per residue.

    MKTAYIAKQR  ->  [CLS] M K T A Y I A K Q R [SEP]

Each of the twenty standard amino acids has a letter, and X is an unknown one. The ambiguous and rare letters B, J, O,
U and Z are read as X. Lower case is read as upper case. A * at the end marks the end of the chain and is dropped.
"""

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Engine

from regard.data.tokenizer import Tokenizer, added_tokens
from regard.data.tokenizer_train import BERT_LAYOUT

AMINO_ACIDS = "ACDEFGHIKLMNPQRSTVWY"
NONSTANDARD = "BJOUZ"
UNKNOWN = "X"
ALPHABET = frozenset(AMINO_ACIDS + NONSTANDARD + UNKNOWN)
EXAMPLE = "MKTAYIAKQRQISFVKSHFSRQLEERLGLIEVQ"


def protein_tokenizer() -> Tokenizer:
    """The one tokenizer of all protein models; it is not trained."""
    tokens = [*BERT_LAYOUT.first, *AMINO_ACIDS, UNKNOWN]
    engine = Engine(models.WordLevel({token: i for i, token in enumerate(tokens)}, BERT_LAYOUT.roles["unk_token"]))
    engine.normalizer = normalizers.Replace(Regex(f"[{NONSTANDARD}]"), UNKNOWN)
    engine.pre_tokenizer, engine.decoder = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated"), decoders.Fuse()
    engine.add_special_tokens(added_tokens(BERT_LAYOUT.first))
    engine.post_processor = processors.TemplateProcessing(
        single=BERT_LAYOUT.single,
        pair=BERT_LAYOUT.pair,
        special_tokens=[(token, engine.token_to_id(token)) for token in BERT_LAYOUT.first],
    )
    return Tokenizer(engine, BERT_LAYOUT.roles)


def is_protein_tokenizer(tokenizer: Tokenizer) -> bool:
    return {*tokenizer.convert_ids_to_tokens(range(len(tokenizer)))} - {*tokenizer.roles.values()} == {
        *AMINO_ACIDS,
        UNKNOWN,
    }


def find_invalid_residue(text: str) -> str | None:
    """The first letter that is not in the alphabet."""
    return next((letter for letter in text if letter not in ALPHABET), None)


def parse_protein(text: str) -> str:
    """A protein from user input: white space and a final * are dropped, and letters are made upper case."""
    protein = "".join(text.split()).upper().removesuffix("*")
    if letter := find_invalid_residue(protein):
        raise ValueError(
            f'{letter!r} is no amino acid: a protein has the letters {AMINO_ACIDS}, X if unknown, not "{text[:60]}"'
        )
    return protein
