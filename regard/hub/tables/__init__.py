"""One table for each family: its names at Hugging Face on the left, ours on the right.

A family without a table, or a body with a setting that its family does not have, is written under our own names.
"""

from __future__ import annotations

from regard.hub.names import Names, Plain
from regard.hub.tables.bert import BERT, ROBERTA
from regard.hub.tables.clip import CLIP
from regard.hub.tables.gpt import GPT2
from regard.hub.tables.llama import LLAMA, MISTRAL, NANOCHAT, QWEN2
from regard.hub.tables.marian import MARIAN, PEGASUS
from regard.hub.tables.modernbert import MODERNBERT
from regard.hub.tables.vit import VIT
from regard.models import MODELS

KNOWN = {
    names.family: names
    for names in (MARIAN, PEGASUS, GPT2, QWEN2, LLAMA, MISTRAL, NANOCHAT, BERT, ROBERTA, MODERNBERT, VIT, CLIP)
}
PLAIN = {plain.family: plain for plain in map(Plain, MODELS)}
TABLES: dict[str, Names | Plain] = {**KNOWN, **PLAIN}


def table_for(model: str, fields: dict[str, object]) -> Names | Plain:
    """The family that a body of ours is written as: the first that fits."""
    for names in KNOWN.values():
        if names.model == model and all(fields[key] == value for key, value in names.ours.items()):
            return names
    return PLAIN[f"regard-{model}"]
