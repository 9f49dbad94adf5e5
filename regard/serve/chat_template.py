"""The prompt of a conversation, as the chat template of the model's folder writes it.

messages ─template─▶ text ─▶ ids        <|im_start|> of the template is a token, the same text of a user is not
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import jinja2
from tokenizers import Tokenizer as Backend

from regard.data.tokenizer import Tokenizer
from regard.serve.errors import INVALID, ApiError
from regard.serve.schemas_openai import ChatMessage
from regard.serve.template_sandbox import TemplateLimit, TemplateRefusal, render
from regard.tasks.decoding import EncodedPrompt

CONFIG, TEMPLATE = "tokenizer_config.json", "chat_template.jinja"
MARK = "\ue000{}\ue001"  # stands for the name of a special token in a message while the template is rendered
_chat_backends: WeakKeyDictionary[Tokenizer, Backend] = WeakKeyDictionary()


def read_template(tokenizer: Tokenizer) -> str:
    """The chat template of a folder: chat_template.jinja, else that of tokenizer_config.json."""
    files = tokenizer.files or {}
    if TEMPLATE in files:
        return files[TEMPLATE].decode("utf-8", "replace")
    template = json.loads(files.get(CONFIG, b"{}")).get("chat_template")
    if isinstance(template, list):  # several, by name
        named = {item.get("name"): item.get("template") for item in template if isinstance(item, dict)}
        template = named.get("default")
    if not isinstance(template, str):
        remedy = f"add {TEMPLATE} to its folder, or use /v1/completions"
        raise ApiError(400, f"this model has no chat template: {remedy}", "model", "no_chat_template")
    return template


def chat_prompt(tokenizer: Tokenizer, messages: Sequence[ChatMessage]) -> EncodedPrompt:
    """The prompt that asks the model for the next message."""
    source = read_template(tokenizer)
    names = special_names(tokenizer)
    marks = {name: MARK.format(i) for i, name in enumerate(names) if any(name in content(m) for m in messages)}
    conversation = [message_values(message, marks) for message in messages]
    roles = {role: token for role, token in tokenizer.roles.items() if isinstance(token, str)}
    variables: dict[str, object] = {
        **roles,
        "messages": conversation,
        "add_generation_prompt": True,
        "tools": None,
        "documents": None,
    }
    text = render_checked(source, variables)
    prompt = EncodedPrompt(restore(text, marks))
    prompt.ids = encode_marked(tokenizer, text, names, marks) if marks else encode_chat(tokenizer, text)
    return prompt


def content(message: ChatMessage) -> str:
    """The text of a message; parts are joined by line breaks."""
    if isinstance(message.content, list):
        return "\n".join(part.text for part in message.content)
    return message.content or ""


def message_values(message: ChatMessage, marks: dict[str, str]) -> dict[str, str]:
    values = {"role": message.role, "content": content(message)}
    if message.name is not None:
        values["name"] = message.name
    return {key: replace_all(value, marks) for key, value in values.items()}


def render_checked(source: str, variables: dict[str, object]) -> str:
    """Every failure of a template is an error of the request or of the folder, with one sentence."""
    try:
        return render(source, variables)
    except TemplateRefusal as error:
        message = f"the chat template of this model refuses the conversation: {error}"
        raise ApiError(INVALID, message, "messages", "refused_by_template") from None
    except TemplateLimit as error:
        raise ApiError(INVALID, f"the chat template of this model is refused: {error}", "messages") from None
    except (jinja2.TemplateError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
        detail = f"{type(error).__name__}: {error}"[:200]
        message = f"the chat template of this model fails on this conversation: {detail}"
        raise ApiError(INVALID, message, "messages", "template_failed") from None
    except (RecursionError, MemoryError):
        raise ApiError(INVALID, "the chat template of this model recurses without end", "messages") from None


def special_names(tokenizer: Tokenizer) -> list[str]:
    """The names of all special tokens, the longest first."""
    added = tokenizer.backend_tokenizer.get_added_tokens_decoder().values()
    return sorted((token.content for token in added if token.special), key=len, reverse=True)


def replace_all(text: str, marks: dict[str, str]) -> str:
    if not marks:
        return text
    return re.sub("|".join(map(re.escape, marks)), lambda match: marks[match[0]], text)


def restore(text: str, marks: dict[str, str]) -> str:
    return replace_all(text, {mark: name for name, mark in marks.items()})


def encode_chat(tokenizer: Tokenizer, text: str) -> list[int]:
    """The tokens of a prompt in which every name of a special token is one."""
    if tokenizer not in _chat_backends:
        backend = Backend.from_str(tokenizer.backend_tokenizer.to_str())
        backend.encode_special_tokens = False
        _chat_backends[tokenizer] = backend
    encoding: Any = _chat_backends[tokenizer].encode(text, add_special_tokens=False)
    return list(encoding.ids)


def encode_marked(tokenizer: Tokenizer, text: str, names: Sequence[str], marks: dict[str, str]) -> list[int]:
    """The tokens of a prompt in which names that stand for themselves are special tokens, and marked ones text."""
    ids: list[int] = []
    for part in re.split(f"({'|'.join(map(re.escape, names))})", text):
        if part in names:
            ids.append(tokenizer.token_id(part))
        elif part:
            encoding: Any = tokenizer.backend_tokenizer.encode(restore(part, marks), add_special_tokens=False)
            ids += encoding.ids
    return ids
