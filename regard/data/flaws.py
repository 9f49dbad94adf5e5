"""What makes a text useless: it is empty, or holds what no text holds."""

from regard.data.lines import Bad, Why

NAME = 500  # characters of a label or a tag
MISSING = "no such file"


def unread(detail: str, otherwise: Why) -> Why:
    """Why a picture or a sound was not read."""
    return "missing file" if detail == MISSING else otherwise


def flaw(name: str, text: str, file: str, line: int) -> Bad | None:
    """Of a sentence or a word."""
    if not text or text.isspace():
        return Bad(file, line, "empty", f"the {name} is empty")
    if bad := unwritable(name, text, file, line):
        return bad
    return Bad(file, line, "control character", f"the {name} holds a lone CR") if "\r" in text else None


def unwritable(name: str, text: str, file: str, line: int) -> Bad | None:
    """Of any text, even one of which every space counts."""
    if "\0" in text:
        return Bad(file, line, "control character", f"the {name} holds NUL")
    try:
        text.encode()
    except UnicodeEncodeError as error:  # JSON and Python can spell half a character; UTF-8 cannot
        return Bad(file, line, "bad UTF-8", f"the {name} holds the lone surrogate \\u{ord(text[error.start]):04x}")
    return None


def misnamed(name: str, text: str, file: str, line: int) -> Bad | None:
    """Of a label or a tag, which names an answer."""
    if len(text) > NAME:
        return Bad(file, line, "over-long", f"the {name} has {len(text)} characters, the limit is {NAME}")
    return flaw(name, text, file, line)
