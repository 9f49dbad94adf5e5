"""The model family, oldest first: bodies, configs, named sizes, and the abilities from which suitable tasks follow."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import nn

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

ABILITIES = {
    "gathers": "encodes a text as one vector",
    "reads": "encodes every token of a text",
    "fills": "lets every token see both sides",
    "writes": "lets every token see earlier tokens only",
    "translates": "has an encoder and a decoder",
    "sees": "encodes an image",
    "spells": "encodes every residue of a protein",
    "bonds": "encodes the atoms of a molecule",
    "matches": "has an image tower and a text tower",
    "foresees": "encodes past observations and actions",
    "hears": "encodes an audio clip",
    "transcribes": "has an audio encoder and a decoder",
}


class Family(NamedTuple):
    bodies: dict[str, type[nn.Module]]  # by ability
    config: type[Any]
    sizes: dict[str, dict[str, Any]]  # the first is the default


MODELS: dict[str, Family] = {
    "pooled": Family({"gathers": pooled.Pooled}, pooled.PooledConfig, pooled.SIZES),
    "recurrent": Family(
        {
            "reads": recurrent.RecurrentEncoder,
            "fills": recurrent.RecurrentEncoder,
            "writes": recurrent.RecurrentLM,
            "translates": seq2seq.Seq2Seq,
        },
        recurrent.RecurrentConfig,
        recurrent.SIZES,
    ),
    "resnet": Family({"sees": resnet.ResNet}, resnet.ResNetConfig, resnet.SIZES),
    "transformer": Family({"translates": transformer.Transformer}, transformer.TransformerConfig, transformer.SIZES),
    "bert": Family({"reads": bert.Bert, "fills": bert.Bert}, bert.BertConfig, bert.SIZES),
    "gpt": Family({"reads": gpt.GPT, "writes": gpt.GPT}, gpt.GPTConfig, gpt.SIZES),
    "vit": Family({"sees": vit.ViT}, vit.ViTConfig, vit.SIZES),
    "clip": Family({"matches": clip.CLIP}, clip.CLIPConfig, clip.SIZES),
    "graphormer": Family({"bonds": graphormer.Graphormer}, graphormer.GraphormerConfig, graphormer.SIZES),
    "audio_encoder": Family(
        {"hears": audio_encoder.AudioEncoder}, audio_encoder.AudioEncoderConfig, audio_encoder.SIZES
    ),
    "speech2text": Family({"transcribes": speech2text.Speech2Text}, speech2text.Speech2TextConfig, speech2text.SIZES),
    "llama": Family({"reads": llama.Llama, "writes": llama.Llama}, llama.LlamaConfig, llama.SIZES),
    "modernbert": Family(
        {"reads": modernbert.ModernBert, "fills": modernbert.ModernBert}, modernbert.ModernBertConfig, modernbert.SIZES
    ),
    "nanochat": Family(
        {"reads": nanochat.NanoChat, "writes": nanochat.NanoChat}, nanochat.NanoChatConfig, nanochat.SIZES
    ),
    "world_model": Family({"foresees": world_model.WorldModel}, world_model.WorldModelConfig, world_model.SIZES),
    "protein_encoder": Family(
        {"spells": protein_encoder.ProteinEncoder}, protein_encoder.ProteinEncoderConfig, protein_encoder.SIZES
    ),
}


def ability_for(model: str, task: str, requires: tuple[str, ...]) -> str:
    """The first ability in `requires`, those that the task accepts, for which the model has a body."""
    bodies = MODELS[model].bodies
    for ability in requires:
        if ability in bodies:
            return ability
    suitable = [name for name, family in MODELS.items() if set(requires) & set(family.bodies)]
    needs = " or ".join(ABILITIES[ability] for ability in requires)
    raise ValueError(f"{task} needs a model that {needs}, not {model}: choose --model {' or '.join(suitable)}")
