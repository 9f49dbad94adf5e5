"""Other programs that read the same folder, where they are installed."""

from __future__ import annotations

from collections.abc import Callable

from regard.bench.backend import Asked, Runner
from regard.bench.peers.ctranslate2 import ctranslate2
from regard.bench.peers.llama_cpp import llama
from regard.bench.peers.onnxruntime import onnx
from regard.bench.peers.transformers import transformers

Peer = Callable[[Asked], list[Runner] | str]  # its runners, or why there are none
PEERS: dict[str, Peer] = {
    "transformers": transformers,
    "CTranslate2": ctranslate2,
    "onnxruntime": onnx,
    "llama.cpp": llama,
}
WIDEST = 160  # letters of an error


def invited(name: str, asked: Asked) -> list[Runner] | str:
    """Whatever goes wrong in another program is told, and the others go on."""
    try:
        return PEERS[name](asked)
    except Exception as error:
        return f"cannot read this folder: {type(error).__name__}: {error}".splitlines()[0][:WIDEST]
