"""The model family, oldest first: bodies by structure, configs, named sizes and modalities. Suitable tasks follow."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from regard.models import (
    audio_encoder,
    bert,
    clip,
    gpt,
    graphormer,
    llama,
    modernbert,
    nanochat,
    pooled,
    protein_encoder,
    recurrent,
    resnet,
    seq2seq,
    speech2text,
    transformer,
    vit,
    world_model,
)
from regard.parts.heads import Body

Structure = Literal["pooled", "encoder", "decoder", "encoder-decoder", "two-tower", "dynamics"]
STRUCTURES: dict[Structure, str] = {
    "pooled": "one vector for an input",
    "encoder": "an encoder",
    "decoder": "a decoder",
    "encoder-decoder": "an encoder and a decoder",
    "two-tower": "two towers",
    "dynamics": "dynamics: states in, next states out",
}


class Family(NamedTuple):
    bodies: dict[Structure, type[Body]]
    config: type[Any]
    sizes: dict[str, dict[str, Any]]  # the first is the default
    inputs: tuple[str, ...] = ("text",)  # the modality that it is made for; of two towers, both
    output: str = "text"  # the modality that a decoder generates


MODELS: dict[str, Family] = {
    "pooled": Family({"pooled": pooled.Pooled}, pooled.PooledConfig, pooled.SIZES),
    "recurrent": Family(
        {
            "encoder": recurrent.RecurrentEncoder,
            "decoder": recurrent.RecurrentLM,
            "encoder-decoder": seq2seq.Seq2Seq,
        },
        recurrent.RecurrentConfig,
        recurrent.SIZES,
    ),
    "resnet": Family({"encoder": resnet.ResNet}, resnet.ResNetConfig, resnet.SIZES, ("image",)),
    "transformer": Family(
        {"encoder-decoder": transformer.Transformer}, transformer.TransformerConfig, transformer.SIZES
    ),
    "bert": Family({"encoder": bert.Bert}, bert.BertConfig, bert.SIZES),
    "gpt": Family({"decoder": gpt.GPT}, gpt.GPTConfig, gpt.SIZES),
    "vit": Family({"encoder": vit.ViT}, vit.ViTConfig, vit.SIZES, ("image",)),
    "clip": Family({"two-tower": clip.CLIP}, clip.CLIPConfig, clip.SIZES, ("image", "text")),
    "graphormer": Family(
        {"encoder": graphormer.Graphormer}, graphormer.GraphormerConfig, graphormer.SIZES, ("molecule",)
    ),
    "audio_encoder": Family(
        {"encoder": audio_encoder.AudioEncoder}, audio_encoder.AudioEncoderConfig, audio_encoder.SIZES, ("audio",)
    ),
    "speech2text": Family(
        {"encoder-decoder": speech2text.Speech2Text}, speech2text.Speech2TextConfig, speech2text.SIZES, ("audio",)
    ),
    "llama": Family({"decoder": llama.Llama}, llama.LlamaConfig, llama.SIZES),
    "modernbert": Family({"encoder": modernbert.ModernBert}, modernbert.ModernBertConfig, modernbert.SIZES),
    "nanochat": Family({"decoder": nanochat.NanoChat}, nanochat.NanoChatConfig, nanochat.SIZES),
    "world_model": Family(
        {"dynamics": world_model.WorldModel}, world_model.WorldModelConfig, world_model.SIZES, ("trajectory",)
    ),
    "protein_encoder": Family(
        {"encoder": protein_encoder.ProteinEncoder},
        protein_encoder.ProteinEncoderConfig,
        protein_encoder.SIZES,
        ("protein",),
    ),
}
