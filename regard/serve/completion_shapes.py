"""OpenAI's shapes of a generated text: a completion or a chat completion, as a whole or in chunks."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
from starlette.requests import Request

from regard import __version__
from regard.data.tokenizer import Tokenizer
from regard.scheduler import Token
from regard.serve.access_log import record_of
from regard.serve.registry import ServedModel
from regard.serve.schemas_openai import (
    AnswerMessage,
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatDelta,
    ChatLogprobs,
    ChatResponse,
    ChatTokenLogprob,
    CompletionChoice,
    CompletionLogprobs,
    CompletionResponse,
    FinishReason,
    TokenUsage,
    TopLogprob,
)

FINGERPRINT = f"regard-{__version__}"


class TextEvent(NamedTuple):
    """A part of one choice; the last one has a finish reason and the whole text."""

    choice: int
    text: str
    token: Token | None = None
    finish_reason: FinishReason | None = None
    whole: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0


class TokenText(NamedTuple):
    """A token as clients see it: what it adds to the text, where, and its log-probability."""

    text: str
    offset: int
    logprob: float


def token_texts(tokenizer: Tokenizer, prompt: str, tokens: Sequence[Token]) -> Iterator[TokenText]:
    """Decoded after the token before it, so that no token loses its space."""
    [ids] = tokenizer.encode([prompt])
    before, offset = ids[-1:], 0
    for token in tokens:
        text = tokenizer.decode_continuation(before, [token.id])
        yield TokenText(text, offset, token.logprob)
        before, offset = [token.id], offset + len(text)


class ResponseShape(ABC):
    """Makes the responses to one request.

    Args:
        request: the request.
        served: the model.
        prompts: the prompts, each of which has `count` choices.
        count: choices of a prompt.
        top: how many alternatives of each token the client wants: 0 or 1; None without log-probabilities.
        echo: the answer begins with the prompt.
    """

    prefix: str

    def __init__(
        self,
        request: Request,
        served: ServedModel,
        prompts: Sequence[str],
        count: int,
        top: int | None,
        echo: bool = False,
    ):
        self.id, self.created = f"{self.prefix}-{record_of(request.scope).id}", int(time.time())
        self.model, self.tokenizer = served.name, served.loaded.task.tokenizer
        self.prompts, self.count, self.top, self.echo = prompts, count, top, echo
        self._tokens: dict[int, list[Token]] = {}  # of each choice, so far
        self._started: set[int] = set()

    def prompt(self, choice: int) -> str:
        return self.prompts[choice // self.count]

    def tokens(self, choice: int, whole: str | None, events: Sequence[TextEvent]) -> list[TokenText]:
        """The tokens of some events of a choice; those after a stop text do not count."""
        new = [event.token for event in events if event.choice == choice and event.token is not None]
        before = self._tokens.setdefault(choice, [])
        texts = [*token_texts(self.tokenizer, self.prompt(choice), [*before, *new])][len(before) :]
        before += new
        return [text for text in texts if whole is None or text.offset < len(whole)]

    def starts(self, choice: int) -> bool:
        """Whether this is the first chunk of a choice."""
        is_first = choice not in self._started
        self._started.add(choice)
        return is_first

    @abstractmethod
    def whole(self, events: Sequence[TextEvent]) -> msgspec.Struct:
        """The response, from all events."""

    @abstractmethod
    def chunks(self, event: TextEvent) -> Iterator[msgspec.Struct]:
        """What an event adds to a stream."""

    @abstractmethod
    def usage_chunk(self, usage: TokenUsage) -> msgspec.Struct:
        """The last chunk, if the client wants to know the usage."""


def add_usage(events: Sequence[TextEvent]) -> TokenUsage:
    prompt = sum(event.prompt_tokens for event in events)
    completion = sum(event.completion_tokens for event in events)
    return TokenUsage(prompt, completion, prompt + completion)


def last_events(events: Sequence[TextEvent]) -> list[TextEvent]:
    """The last event of each choice, in order."""
    return sorted((event for event in events if event.finish_reason is not None), key=lambda event: event.choice)


class CompletionShape(ResponseShape):
    prefix = "cmpl"

    def whole(self, events: Sequence[TextEvent]) -> CompletionResponse:
        choices = [
            CompletionChoice(
                self.prompt(end.choice) * self.echo + end.whole,
                end.choice,
                end.finish_reason,
                self.logprobs(end.choice, end.whole, events),
            )
            for end in last_events(events)
        ]
        return self.response(choices, add_usage(events))

    def chunks(self, event: TextEvent) -> Iterator[CompletionResponse]:
        text = self.prompt(event.choice) * (self.echo and self.starts(event.choice)) + event.text
        logprobs = self.logprobs(event.choice, None, [event]) if event.token else None
        if text or logprobs or event.finish_reason:
            yield self.response([CompletionChoice(text, event.choice, event.finish_reason, logprobs)])

    def usage_chunk(self, usage: TokenUsage) -> CompletionResponse:
        return self.response([], usage)

    def response(self, choices: list[CompletionChoice], usage: TokenUsage | None = None) -> CompletionResponse:
        return CompletionResponse(
            id=self.id,
            created=self.created,
            model=self.model,
            system_fingerprint=FINGERPRINT,
            choices=choices,
            usage=usage,
        )

    def logprobs(self, choice: int, whole: str | None, events: Sequence[TextEvent]) -> CompletionLogprobs | None:
        if self.top is None:
            return None
        tokens = self.tokens(choice, whole, events)
        return CompletionLogprobs(
            [token.text for token in tokens],
            [token.logprob for token in tokens],
            [token.offset for token in tokens],
            [{token.text: token.logprob} for token in tokens] if self.top else None,
        )


class ChatShape(ResponseShape):
    prefix = "chatcmpl"

    def whole(self, events: Sequence[TextEvent]) -> ChatResponse:
        choices = [
            ChatChoice(
                end.choice,
                AnswerMessage(end.whole),
                end.finish_reason or "stop",
                self.logprobs(end.choice, end.whole, events),
            )
            for end in last_events(events)
        ]
        return ChatResponse(
            id=self.id,
            created=self.created,
            model=self.model,
            system_fingerprint=FINGERPRINT,
            choices=choices,
            usage=add_usage(events),
        )

    def chunks(self, event: TextEvent) -> Iterator[ChatChunk]:
        if self.starts(event.choice):
            yield self.chunk([ChatChunkChoice(event.choice, ChatDelta("assistant", ""))])
        logprobs = self.logprobs(event.choice, None, [event]) if event.token else None
        if event.text or logprobs:
            yield self.chunk([ChatChunkChoice(event.choice, ChatDelta(content=event.text), None, logprobs)])
        if event.finish_reason:
            yield self.chunk([ChatChunkChoice(event.choice, ChatDelta(), event.finish_reason)])

    def usage_chunk(self, usage: TokenUsage) -> ChatChunk:
        return self.chunk([], usage)

    def chunk(self, choices: list[ChatChunkChoice], usage: TokenUsage | None = None) -> ChatChunk:
        return ChatChunk(
            id=self.id,
            created=self.created,
            model=self.model,
            system_fingerprint=FINGERPRINT,
            choices=choices,
            usage=usage,
        )

    def logprobs(self, choice: int, whole: str | None, events: Sequence[TextEvent]) -> ChatLogprobs | None:
        if self.top is None:
            return None
        tokens = self.tokens(choice, whole, events)
        tops = [TopLogprob(token.text, token.logprob, list(token.text.encode())) for token in tokens]
        pairs = zip(tokens, tops, strict=True)
        return ChatLogprobs(
            [ChatTokenLogprob(t.text, t.logprob, best.bytes, [best] if self.top else []) for t, best in pairs]
        )
