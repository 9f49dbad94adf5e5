"""Speech-to-text (Radford et al. 2023, Whisper): the Transformer with an audio encoder.

It differs from the Transformer in two things: an audio stem of convolutions replaces the source's token embedding, and
the activation is GELU.
"""

from __future__ import annotations

from dataclasses import dataclass

from regard.models.transformer import Transformer, TransformerConfig
from regard.parts.stems import AudioStem
from regard.validate import check_config


@dataclass(frozen=True)
class Speech2TextConfig:
    vocab: int  # vocabulary size of the transcript
    mels: int = 40  # mel bands per frame
    stride: int = 2  # frames per token
    context: int = 1024  # maximum tokens of a clip, and of its transcript
    dim: int = 128  # model width
    encoder_layers: int = 3  # encoder blocks
    decoder_layers: int = 2  # decoder blocks
    heads: int = 4  # attention heads per block
    hidden: int = 384  # hidden width of the feed-forward
    dropout: float = 0.1  # dropout probability
    pad: int = -1  # padding id; a negative id counts from the end of the vocabulary

    def __post_init__(self) -> None:
        check_config(self)


SIZES: dict[str, dict[str, int]] = {
    "nano": {"encoder_layers": 3, "decoder_layers": 2, "dim": 128, "heads": 4, "hidden": 384},
    # Radford et al. 2023, table 1
    "tiny": {"encoder_layers": 4, "decoder_layers": 4, "dim": 384, "heads": 6, "hidden": 1536},
    "base": {"encoder_layers": 6, "decoder_layers": 6, "dim": 512, "heads": 8, "hidden": 2048},
}


class Speech2Text(Transformer):
    def __init__(self, c: Speech2TextConfig):
        stacks = TransformerConfig(
            vocab=c.vocab,
            context=c.context,
            dim=c.dim,
            encoder_layers=c.encoder_layers,
            decoder_layers=c.decoder_layers,
            heads=c.heads,
            hidden=c.hidden,
            activation="gelu",
            dropout=c.dropout,
            pad=c.pad,
        )
        super().__init__(stacks, stem=AudioStem(c.mels, c.dim, c.stride))
        self.config = c
