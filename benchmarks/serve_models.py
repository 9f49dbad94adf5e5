"""The models of benchmarks/serve.py, in the formats of all servers, and seeded requests with exact numbers of tokens.

GPT-2 small    12 layers of 768, 50,257 tokens, random weights; a byte-level BPE of the bundled phrasebook, filled up
               with tokens that no text contains. The end token has a zero embedding, so greedy decoding never ends
               early, and every server generates the same number of tokens.
translator     the folder that `regard demo` trains
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from shapes import SHAPES

from regard.bench.peers.gguf import named_tensors
from regard.data.tokenizer import Tokenizer
from regard.data.tokenizer_train import GPT_LAYOUT, TokenizerOptions, train_tokenizer
from regard.load import load
from regard.loaded_model import LoadedModel
from regard.modalities.synthetic import phrasebook
from regard.modalities.text.preprocessor import TextPreprocessor
from regard.models import MODELS
from regard.tasks import TASKS
from regard.tasks.compatibility import body_class

TRAINED_TOKENS = 2_500
SPACE = "\u0120"  # the byte-level alphabet's sign for a space


def gpt_tokenizer(vocab: int) -> Tokenizer:
    """A byte-level BPE of `vocab` tokens. Each of the tokens that no text contains is a word with its space."""
    from tokenizers import Tokenizer as Backend

    texts = [text for p in phrasebook.phrases() for text in (p.english, p.german)]
    trained = train_tokenizer(texts, TokenizerOptions(vocab_size=TRAINED_TOKENS), GPT_LAYOUT)
    state = json.loads(trained.backend_tokenizer.to_str())
    ids = state["model"]["vocab"]
    ids |= {f"{SPACE}unused{i}": i for i in range(len(ids), vocab)}
    return Tokenizer(Backend.from_str(json.dumps(state)), GPT_LAYOUT.roles)


def gpt_folder(workdir: Path) -> Path:
    """The Hugging Face folder of the GPT-2 shape; an existing one is reused."""
    folder = workdir / "gpt2-small"
    if (folder / "model.safetensors").exists():
        return folder
    task_name, family, sizes = SHAPES["gpt2"]
    task = TASKS[task_name](preprocessor=TextPreprocessor(gpt_tokenizer(sizes["vocab"])))
    torch.manual_seed(1)
    config = MODELS[family].config(**(sizes | {"pad": task.tokenizer.pad_token_id}))
    model = task.head(body_class(task, family)(config)).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 2 and "blocks" in name:  # large enough that the output depends on the input
                weight.normal_(std=2 * weight.size(1) ** -0.5)
        model.body.tokens.weight[:3] = 0.0  # </s>, <pad>, <unk>: logits of 0, which are never the largest
    LoadedModel(model, task).save_pretrained(folder)
    return folder


def gguf_file(folder: Path, workdir: Path, precision: str) -> Path:
    """The GPT-2 shape for llama.cpp, F32 or Q8_0, with its tokenizer."""
    import gguf

    file = workdir / f"gpt2-small-{precision}.gguf"
    if file.exists():
        return file
    loaded = load(folder)
    config = loaded.model.body.config
    writer = gguf.GGUFWriter(file, "gpt2")
    writer.add_block_count(config.layers)
    writer.add_context_length(config.context)
    writer.add_embedding_length(config.dim)
    writer.add_feed_forward_length(config.hidden)
    writer.add_head_count(config.heads)
    writer.add_vocab_size(config.vocab)
    writer.add_layer_norm_eps(config.norm_eps)
    add_gguf_tokenizer(writer, json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"])
    for name, tensor in named_tensors(loaded):
        values = np.ascontiguousarray(tensor.detach().float().numpy())
        if precision == "int8" and values.ndim == 2 and name != "position_embd.weight":
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def add_gguf_tokenizer(writer: Any, bpe: dict[str, Any]) -> None:
    import gguf

    tokens = sorted(bpe["vocab"], key=bpe["vocab"].get)
    control = len(GPT_LAYOUT.first)
    kinds = [gguf.TokenType.CONTROL] * control + [gguf.TokenType.NORMAL] * (len(tokens) - control)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in bpe["merges"]])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    writer.add_add_bos_token(False)


def ctranslate2_folder(folder: Path, workdir: Path, precision: str) -> Path:
    from ctranslate2.converters import TransformersConverter

    out = workdir / f"{folder.name}-ctranslate2-{precision}"
    if not out.exists():
        TransformersConverter(str(folder)).convert(str(out), quantization=None if precision == "fp32" else "int8")
    return out


def text_requests(
    folder: Path, seed: int, prompt: tuple[int, int], output: tuple[int, int]
) -> Iterator[dict[str, Any]]:
    """Endless requests: words of the phrasebook, as many tokens as drawn, log-uniformly, from these ranges."""
    encode = load(folder).task.tokenizer.encode
    words = {word for p in phrasebook.phrases() for word in p.english.split() if word.isalpha()}
    whole = sorted(word for word in words if len(encode([f" {word}"])[0]) == 1)  # one token with its space
    rng = random.Random(seed)

    def draw(low: int, high: int) -> int:
        return round(low * (high / low) ** rng.random())

    while True:
        text = "".join(f" {rng.choice(whole)}" for _ in range(draw(*prompt)))
        yield {"prompt": text, "max_tokens": draw(*output)}


def translation_requests(seed: int) -> Iterator[dict[str, Any]]:
    """Endless sentences of the phrasebook."""
    sentences = [p.english for p in phrasebook.phrases()]
    rng = random.Random(seed)
    while True:
        yield {"q": rng.choice(sentences)}
