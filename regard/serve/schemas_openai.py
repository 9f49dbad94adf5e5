"""Requests and answers of the OpenAI routes; the types validate requests and generate the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from regard.serve.schemas_run import ModelDescription

MAX_CHOICES, MAX_STOPS, MAX_PROMPTS, MAX_MESSAGES, MAX_INPUTS = 16, 4, 64, 1024, 2048
Choices = Annotated[int, Meta(ge=1, le=MAX_CHOICES, description="answers; with temperature 0, the best of n beams")]
Count = Annotated[int, Meta(ge=1, le=100_000)]
Penalty = Annotated[float, Meta(ge=-2, le=2, description="only 0; `repetition_penalty` is supported")]
Stop = Annotated[str, Meta(min_length=1, max_length=200)]
FinishReason = Literal["stop", "length"]
ModelId = Annotated[str, Meta(min_length=1, description="an id of /v1/models")]


class StreamOptions(Struct, forbid_unknown_fields=True):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class SamplingFields(Struct, kw_only=True, forbid_unknown_fields=True):
    """What completions and chat completions share. Values that are left out follow from the model's folder."""

    model: ModelId
    n: Choices | None = 1
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=1e-6, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    repetition_penalty: Annotated[float, Meta(ge=0.01, le=100)] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: Stop | Annotated[list[Stop], Meta(max_length=MAX_STOPS)] | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    frequency_penalty: Penalty | None = 0
    presence_penalty: Penalty | None = 0
    logit_bias: dict[str, float] | None = None
    user: str | None = None
    store: bool | None = None
    metadata: dict[str, str] | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None


class CompletionRequest(SamplingFields, kw_only=True, forbid_unknown_fields=True):
    prompt: str | Annotated[list[str], Meta(min_length=1, max_length=MAX_PROMPTS)] = ""
    max_tokens: Count | None = 16
    echo: bool | None = False
    logprobs: Annotated[int, Meta(ge=0, le=5, description="0, or 1 with temperature 0")] | None = None
    best_of: Annotated[int, Meta(ge=1, le=20, description="only 1")] | None = None
    suffix: Annotated[str, Meta(description="only empty")] | None = None


class TextPart(Struct):
    type: Literal["text"]
    text: str


class ChatMessage(Struct):
    """A message of a conversation. The chat template of the model says which roles exist."""

    role: Annotated[str, Meta(min_length=1, max_length=64)]
    content: str | list[TextPart] | None = None
    name: str | None = None


class ResponseFormat(Struct):
    type: Annotated[str, Meta(description="only text")]


class ChatRequest(SamplingFields, kw_only=True, forbid_unknown_fields=True):
    messages: Annotated[list[ChatMessage], Meta(min_length=1, max_length=MAX_MESSAGES)]
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    logprobs: bool | None = False
    top_logprobs: Annotated[int, Meta(ge=0, le=20, description="0, or 1 with temperature 0")] | None = None
    response_format: ResponseFormat | None = None
    tools: Annotated[list[Raw], Meta(description="only an empty list")] | None = None
    tool_choice: str | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None


class TokenUsage(Struct):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class CompletionLogprobs(Struct):
    tokens: list[str]
    token_logprobs: list[float]
    text_offset: list[int]
    top_logprobs: list[dict[str, float]] | None = None


class CompletionChoice(Struct):
    text: str
    index: int
    finish_reason: FinishReason | None
    logprobs: CompletionLogprobs | None = None


class CompletionResponse(Struct, kw_only=True):
    """A completion; also a chunk of a streamed one."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    system_fingerprint: str
    choices: list[CompletionChoice]
    usage: TokenUsage | None | UnsetType = UNSET


class TopLogprob(Struct):
    token: str
    logprob: float
    bytes: list[int]


class ChatTokenLogprob(TopLogprob):
    top_logprobs: list[TopLogprob]


class ChatLogprobs(Struct):
    content: list[ChatTokenLogprob]


class AnswerMessage(Struct):
    content: str
    role: Literal["assistant"] = "assistant"
    refusal: None = None


class ChatChoice(Struct):
    index: int
    message: AnswerMessage
    finish_reason: FinishReason
    logprobs: ChatLogprobs | None = None


class ChatResponse(Struct, kw_only=True):
    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChoice]
    usage: TokenUsage


class ChatDelta(Struct, omit_defaults=True):
    """What a chunk adds to the message."""

    role: Literal["assistant"] | None = None
    content: str | None = None


class ChatChunkChoice(Struct):
    index: int
    delta: ChatDelta
    finish_reason: FinishReason | None = None
    logprobs: ChatLogprobs | None = None


class ChatChunk(Struct, kw_only=True):
    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChunkChoice]
    usage: TokenUsage | None | UnsetType = UNSET


class EmbeddingRequest(Struct, forbid_unknown_fields=True):
    model: ModelId
    input: (
        Annotated[str, Meta(min_length=1)]
        | Annotated[list[Annotated[str, Meta(min_length=1)]], Meta(min_length=1, max_length=MAX_INPUTS)]
    )
    encoding_format: Literal["float", "base64"] | None = "float"
    dimensions: Annotated[int, Meta(ge=1, description="only the width of the model's vectors")] | None = None
    user: str | None = None


class EmbeddingItem(Struct):
    index: int
    embedding: Annotated[list[float] | str, Meta(description="numbers, or float32 little-endian in base64")]
    object: Literal["embedding"] = "embedding"


class EmbeddingUsage(Struct):
    prompt_tokens: int
    total_tokens: int


class EmbeddingResponse(Struct):
    data: list[EmbeddingItem]
    model: str
    usage: EmbeddingUsage
    object: Literal["list"] = "list"


class ModelCard(ModelDescription, kw_only=True):
    """A served model: OpenAI's fields, then what the page and the native route need."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelList(Struct):
    data: list[ModelCard]
    object: Literal["list"] = "list"


class TranscriptionRequest(Struct, forbid_unknown_fields=True):
    """The fields of the form beside the part `file`."""

    model: ModelId
    response_format: Literal["json", "text", "verbose_json"] = "json"
    temperature: Annotated[float, Meta(ge=0, le=1)] | None = None
    language: str | None = None
    prompt: Annotated[str, Meta(description="only empty")] | None = None


class TranscriptionResponse(Struct, omit_defaults=True):
    """`task`, `language` and `duration` are part of verbose_json only."""

    text: str
    task: Literal["transcribe"] | None = None
    language: str | None = None
    duration: float | None = None
