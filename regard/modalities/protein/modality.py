"""Proteins: sequences of residues in FASTA files, with a label for each residue or none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from regard.data import documents
from regard.data.document_files import TextChunk, usable_lines
from regard.data.documents import DocumentOptions, DocumentStream, RowSet
from regard.data.lines import BadRow, Lines
from regard.data.splits import Data, DataOptions, Rows
from regard.data.tokenizer import Tokenizer
from regard.modalities.protein import fasta
from regard.modalities.protein.fasta import LabelledProtein, is_fasta, labelled_protein, read_sequences
from regard.modalities.protein.preprocessor import ProteinPreprocessor
from regard.modalities.protein.protein_alphabet import is_protein_tokenizer, protein_tokenizer
from regard.modalities.protocols import FitOptions, Modality, Preprocessor, ReadOptions, Target
from regard.modalities.synthetic import chains
from regard.modalities.synthetic.distinct import split_items

FASTA = ".fasta, .fa or .faa of proteins"


class ProteinModality(Modality):
    name = "protein"
    unit = "proteins"
    like = ("text",)
    file = "tokenizer.json"
    size_names = ("vocab", "pad", "sep", "segment_start")
    formats = {Target.TAGS: f"{FASTA}, and another of labels", Target.MASKED: FASTA}
    synthetic_data = {Target.TAGS: "helices and strands of synthetic proteins", Target.MASKED: "synthetic proteins"}
    default_models = {"encoder": "protein_encoder"}
    input_name = "input_ids"

    def option_groups(self, target: Target) -> tuple[type, ...]:
        return (DocumentOptions,) if target is Target.MASKED else ()

    def recognizes(self, path: str) -> bool:
        return is_fasta(path)

    def read(self, paths: Sequence[str], how: ReadOptions) -> Rows:
        return fasta.read_labelled_proteins(paths, how.fields, how.dialect)

    def synthetic(self, target: Target) -> dict[str, list[LabelledProtein]]:
        def make_row(protein: chains.Protein, number: int) -> LabelledProtein:
            return labelled_protein(protein.residues, protein.states, "chains", number)

        return split_items(chains.chains(), chains.split, make_row)

    def read_sets(self, files: DataOptions, how: ReadOptions, output: Modality | None = None) -> Data:
        if how.target is not Target.MASKED:
            return super().read_sets(files, how, output)
        if (unit := how.groups[DocumentOptions].documents) not in (None, "lines"):
            raise ValueError(f"--documents {unit} is for texts: every protein is a document. Leave it out")

        def synthetic() -> dict[str, list[str]]:
            return {name: [row.input for row in rows] for name, rows in self.synthetic(how.target).items()}

        open_stream = partial(open_proteins, how=how, skip_bad=files.skip_bad)
        return documents.read_documents(files, open_stream, synthetic, "lines")

    def read_rows(
        self, paths: Sequence[str], how: ReadOptions, preprocessor: Preprocessor, skip_bad: bool = False
    ) -> RowSet:
        if how.target is not Target.MASKED:
            return super().read_rows(paths, how, preprocessor, skip_bad)
        return open_proteins(paths, how, skip_bad)

    def fit(self, rows: RowSet, how: FitOptions) -> ProteinPreprocessor:
        tokenizer = how.start.tokenizer if how.start else None
        return ProteinPreprocessor(tokenizer or protein_tokenizer(), "lines" if how.target is Target.MASKED else None)

    def load(self, folder: Path, stored: Mapping[str, object]) -> ProteinPreprocessor | None:
        tokenizer = Tokenizer.load(folder) if Tokenizer.exists_in(folder) else None
        if tokenizer is None or not is_protein_tokenizer(tokenizer):
            return None
        return ProteinPreprocessor(tokenizer, "lines" if stored.get("documents") else None)

    def read_requests(self, path: str, encoding: str) -> Iterator[str | BadRow] | None:
        return read_sequences(Lines(path, encoding)) if is_fasta(path) else None


def open_proteins(paths: Sequence[str], how: ReadOptions, skip_bad: bool) -> DocumentStream:
    """Each protein is a document."""
    if texts := [path for path in paths if not is_fasta(path)]:
        raise ValueError(f"{texts[0]}: this model reads proteins, in FASTA files (.fasta, .fa, .faa), not texts")

    def read_file(name: str) -> Iterator[TextChunk]:
        lines = Lines(name, how.dialect.encoding)
        return (TextChunk(protein, True) for protein in usable_lines(read_sequences(lines), skip_bad, lines))

    cache = Path(how.groups[DocumentOptions].cache).expanduser()
    return documents.documents_from_files(paths, read_file, cache, f"protein {skip_bad} {how.dialect.encoding}")
