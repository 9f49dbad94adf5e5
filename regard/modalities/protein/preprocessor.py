"""Proteins as model inputs: one token for each residue."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from regard.data.rows import Row
from regard.modalities.protein.protein_alphabet import EXAMPLE, parse_protein
from regard.modalities.protocols import Target, request_row
from regard.modalities.synthetic import chains
from regard.modalities.token_preprocessor import TokenPreprocessor

MAX_PROBE = 24  # residues of a probe


class ProteinPreprocessor(TokenPreprocessor):
    modality = "protein"
    example = EXAMPLE
    separator = ""

    def texts(self, row: Row[Any, object]) -> str:
        return str(row.input)

    def normalize(self, text: str) -> str:
        return parse_protein(text)

    words = normalize

    @cached_property
    def word_starts(self) -> Tensor:
        return torch.ones(len(self.tokenizer), dtype=torch.bool)

    def parse(self, raw: str, target: Target) -> Row[str, None]:
        return request_row(parse_protein(raw), raw)

    def probes(self, count: int, target: Target) -> list[Row[Any, object]]:
        return [self.parse(protein.residues[:MAX_PROBE], target) for protein in chains.chains(count)]
