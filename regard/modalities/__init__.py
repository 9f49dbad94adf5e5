"""The modalities by name: text, image, audio, molecule, protein, trajectory, series."""

from __future__ import annotations

from regard.modalities.audio.modality import AudioModality
from regard.modalities.image.modality import ImageModality
from regard.modalities.molecule.modality import MoleculeModality
from regard.modalities.protein.modality import ProteinModality
from regard.modalities.protocols import Modality
from regard.modalities.series.modality import SeriesModality
from regard.modalities.text.modality import TextModality
from regard.modalities.trajectory.modality import TrajectoryModality

MODALITIES: dict[str, Modality] = {}


def register(modality: Modality) -> None:
    """Make a modality known to all tasks and commands. Of two that recognise a file, the later one reads it."""
    MODALITIES[modality.name] = modality


for kind in (TextModality, ImageModality, AudioModality, MoleculeModality, ProteinModality, TrajectoryModality):
    register(kind())
register(SeriesModality())
