"""From the sampling fields of OpenAI's requests to the decode options of a `write` model."""

from __future__ import annotations

import secrets

from regard.loaded_model import LoadedModel
from regard.serve.errors import INVALID, ApiError
from regard.serve.schemas_openai import ChatRequest, CompletionRequest, SamplingFields

SEEDS = 2**63
UNSUPPORTED = {  # fields that change an answer, the values with which they do not, and what to do instead
    "frequency_penalty": (0, "use repetition_penalty"),
    "presence_penalty": (0, "use repetition_penalty"),
    "logit_bias": ({}, "leave it out"),
    "best_of": (1, "ask for n answers, and choose"),
    "suffix": ("", "leave it out"),
    "tools": ([], "describe them in a message"),
}


def refuse_unsupported(body: SamplingFields) -> None:
    for name, (neutral, remedy) in UNSUPPORTED.items():
        value = getattr(body, name, None)
        if value is not None and value != neutral:
            raise ApiError(INVALID, f"{name} is not supported: {remedy}", name, "unsupported_value")
    if isinstance(body, ChatRequest):
        if body.response_format is not None and body.response_format.type != "text":
            raise ApiError(INVALID, "response_format must be text: ask for JSON in a message", "response_format")
        if body.tool_choice not in (None, "none", "auto"):
            raise ApiError(INVALID, "tool_choice must be none: this server calls no tools", "tool_choice")


def top_count(body: SamplingFields) -> int | None:
    """How many alternatives of each token the client wants; None without log-probabilities."""
    if isinstance(body, CompletionRequest):
        return body.logprobs
    if isinstance(body, ChatRequest) and body.logprobs:
        return body.top_logprobs or 0
    return None


def check_logprobs(body: SamplingFields, temperature: float) -> None:
    """Only the log-probability of the chosen token is known; it is that of the best one if nothing is sampled."""
    count, name = top_count(body), "logprobs" if isinstance(body, CompletionRequest) else "top_logprobs"
    if isinstance(body, ChatRequest) and body.top_logprobs is not None and not body.logprobs:
        raise ApiError(INVALID, "top_logprobs needs logprobs: set it to true", "top_logprobs")
    if count is None:
        return
    if count > (1 if temperature == 0 else 0):
        problem = f"{name} is {count}, but only the tokens of the answer have log-probabilities"
        raise ApiError(INVALID, f"{problem}: send 0, or 1 with temperature 0", name)
    if (body.n or 1) > 1:
        raise ApiError(INVALID, "log-probabilities of several answers are not supported: send n requests", "n")
    if isinstance(body, CompletionRequest) and body.echo:
        raise ApiError(INVALID, "log-probabilities of the prompt are not supported: leave out echo", "echo")


def stop_texts(stop: str | list[str] | None) -> dict[str, object]:
    texts = [stop] if isinstance(stop, str) else stop or []
    if not texts:
        return {}
    return {"stop": texts[0] if len(texts) == 1 else tuple(texts)}


def write_options(loaded: LoadedModel, body: SamplingFields, max_tokens: int | None, is_reproducible: bool) -> object:
    """The decode options of a request. Without a seed every answer is another one, as clients of OpenAI expect, unless
    the server is reproducible."""
    defaults = loaded.make_options()
    temperature = getattr(defaults, "temperature", 0.0) if body.temperature is None else body.temperature
    refuse_unsupported(body)
    check_logprobs(body, temperature)
    values = {
        "temperature": body.temperature,
        "top_p": body.top_p,
        "top_k": body.top_k,
        "repetition_penalty": body.repetition_penalty,
        "max_new_tokens": max_tokens,
    }
    options: dict[str, object] = {name: value for name, value in values.items() if value is not None}
    options |= stop_texts(body.stop)
    seed = body.seed if body.seed is not None else 0 if is_reproducible else secrets.randbits(32)
    options |= {"seed": seed % SEEDS, "num_return": body.n or 1}
    if temperature == 0:
        options["num_beams"] = body.n or 1
    return loaded.make_options(**options)
