"""What makes a text useless: it is empty, or holds what no text holds."""

from regard.data.lines import BadRow, Reason

NAME = 500  # characters of a label or a tag
NO_SUCH_FILE = "no such file"


def read_failure(detail: str, otherwise: Reason) -> Reason:
    """Why a picture or a sound was not read."""
    return "missing file" if detail == NO_SUCH_FILE else otherwise


def check_text(name: str, text: str, file: str, line: int) -> BadRow | None:
    """Of a sentence or a word."""
    if not text or text.isspace():
        return BadRow(file, line, "empty", f"the {name} is empty")
    if bad := unwritable(name, text, file, line):
        return bad
    return BadRow(file, line, "control character", f"the {name} holds a lone CR") if "\r" in text else None


def unwritable(name: str, text: str, file: str, line: int) -> BadRow | None:
    """Of any text, even one of which every space counts."""
    if "\0" in text:
        return BadRow(file, line, "control character", f"the {name} holds NUL")
    try:
        text.encode()
    except UnicodeEncodeError as error:  # JSON and Python can spell half a character; UTF-8 cannot
        return BadRow(file, line, "bad UTF-8", f"the {name} holds the lone surrogate \\u{ord(text[error.start]):04x}")
    return None


def misnamed(name: str, text: str, file: str, line: int) -> BadRow | None:
    """Of a label or a tag, which names an answer."""
    if len(text) > NAME:
        return BadRow(file, line, "over-long", f"the {name} has {len(text)} characters, the limit is {NAME}")
    return check_text(name, text, file, line)
