"""Requests and answers of the LibreTranslate routes."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

MAX_TEXTS, MAX_ALTERNATIVES = 1024, 16
LanguageCode = Annotated[str, Meta(min_length=2, max_length=16, description="a code of /languages")]


class TranslateRequest(Struct, kw_only=True):
    """As JSON, as an urlencoded form, or as query parameters. Other fields are ignored."""

    q: str | Annotated[list[str], Meta(min_length=1, max_length=MAX_TEXTS)]
    source: Annotated[str, Meta(min_length=2, max_length=16, description="a code of /languages, or auto")]
    target: LanguageCode
    format: Literal["text", "html"] | None = "text"
    alternatives: Annotated[int, Meta(ge=0, le=MAX_ALTERNATIVES, description="further translations of each text")] = 0
    api_key: str | None = None
    model: str | None = None


class DetectRequest(Struct):
    q: Annotated[str, Meta(min_length=1)]
    api_key: str | None = None


class DetectedLanguage(Struct):
    confidence: Annotated[float, Meta(ge=0, le=100, description="per cent")]
    language: str


class TranslateResponse(Struct):
    """Lists if `q` was a list."""

    translatedText: str | list[str]  # noqa: N815  LibreTranslate's name
    detectedLanguage: DetectedLanguage | list[DetectedLanguage] | UnsetType = UNSET  # noqa: N815
    alternatives: list[str | list[str]] | UnsetType = UNSET


class Language(Struct):
    code: str
    name: str
    targets: list[str]


class LanguageName(Struct):
    code: str
    name: str


class DefaultLanguages(Struct):
    source: LanguageName
    target: LanguageName


class FrontendSettings(Struct):
    """What LibreTranslate's own clients read before the first translation."""

    charLimit: int  # noqa: N815
    frontendTimeout: int  # noqa: N815
    apiKeys: bool  # noqa: N815
    keyRequired: bool  # noqa: N815
    suggestions: bool
    filesTranslation: bool  # noqa: N815
    supportedFilesFormat: list[str]  # noqa: N815
    language: DefaultLanguages
