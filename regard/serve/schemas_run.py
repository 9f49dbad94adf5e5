"""Requests and answers of the native API: one shape for every task and modality."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

OptionValue = bool | int | float | str | list[str] | None
FieldKind = Literal["text", "texts", "file"]
InputKind = Literal["text", "fields", "file", "file+texts"]


class RunRequest(Struct, forbid_unknown_fields=True):
    """One input. As multipart/form-data: the same names, `file` as a file, `options` as JSON."""

    input: str | list[str] | dict[str, str | list[str]] | None = None  # a text, the fields in order, or by name
    file: str | None = None  # the input file in base64, of models that read files
    filename: str | None = None  # of which only the suffix is used
    options: dict[str, OptionValue] = {}  # decode options of the task, by name
    stream: bool = False  # answer with server-sent events
    alignment: bool = False  # also the word alignment of a translation
    attention: bool = False  # also the attention weights of every layer, the mean of its heads


class LookRequest(RunRequest):
    """The input of a look page."""

    target: str | None = None  # translation to look at; default: the model's own
    link: bool = False  # answer with the address of the page, which is valid for some minutes, instead of the page


class PageLink(Struct):
    url: str


class Usage(Struct):
    prompt_tokens: int
    completion_tokens: int


class AlignedWord(Struct):
    """A word of a text and its place in it; null if the tokenizer changed its letters."""

    text: str
    start: int | None
    end: int | None


class LineAlignment(Struct):
    """The words of one line and of its translation. weights[t][s]: attention of target word t to source word s."""

    source: list[AlignedWord]
    target: list[AlignedWord]
    weights: list[list[float]]


class AttentionWeights(Struct):
    """weights[layer][query][key], the mean over the heads of a layer."""

    name: str
    queries: list[str]
    keys: list[str]
    weights: list[list[list[float]]]


class RunAnswer(Struct):
    """The answer to one input; a prediction has text, logprob, score and what its task adds."""

    model: str
    task: str
    predictions: list[dict[str, Any]]
    finish_reasons: list[str]
    usage: Usage
    vector: list[float] | UnsetType = UNSET  # of an input without candidates, if the model embeds
    alignment: list[LineAlignment] | UnsetType = UNSET
    attention: list[AttentionWeights] | UnsetType = UNSET
    receipt: dict[str, Any] | UnsetType = UNSET


class InputField(Struct):
    """A field of the input."""

    name: str
    kind: FieldKind
    label: str
    required: bool = True
    formats: tuple[str, ...] = ()  # suffixes of a file
    inline: bool = False  # the field `input` may hold the content as JSON instead of a file


class DecodeOption(Struct):
    name: str
    type: Literal["boolean", "integer", "number", "string"]
    default: OptionValue
    help: str


class ModelDescription(Struct):
    """What a client has to know of a model to send it an input."""

    task: str
    modality: str
    description: str
    input: InputKind
    fields: list[InputField]
    streams: bool
    looks: bool  # it has a look page, if it has attention
    aligns: bool  # its translations have a word alignment, if it has cross-attention
    loaded: bool
    example: dict[str, str | list[str]]
    options: list[DecodeOption]
