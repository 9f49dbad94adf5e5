"""Other backends that read the same folder, where they are installed."""

from __future__ import annotations

from collections.abc import Callable

from regard.bench.backend import Backend, BackendArgs
from regard.bench.peers.ctranslate2 import ctranslate2_backends
from regard.bench.peers.llama_cpp import llama_cpp_backends
from regard.bench.peers.onnxruntime import onnxruntime_backends
from regard.bench.peers.transformers import transformers_backends

OpenPeer = Callable[[BackendArgs], list[Backend] | str]  # its backends, or the reason why there are none
PEERS: dict[str, OpenPeer] = {
    "transformers": transformers_backends,
    "CTranslate2": ctranslate2_backends,
    "onnxruntime": onnxruntime_backends,
    "llama.cpp": llama_cpp_backends,
}
MAX_ERROR_CHARS = 160


def open_peer(name: str, args: BackendArgs) -> list[Backend] | str:
    """Any exception of a peer becomes a reason, and the benchmark goes on."""
    try:
        return PEERS[name](args)
    except Exception as error:
        return f"cannot read this folder: {type(error).__name__}: {error}".splitlines()[0][:MAX_ERROR_CHARS]
