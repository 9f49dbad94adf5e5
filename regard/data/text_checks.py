"""Checks that a text is usable: it is not empty, and UTF-8 can encode it."""

from regard.data.lines import BadRow

MAX_LABEL = 500  # characters of a label or a tag


def check_text(name: str, text: str, file: str, line: int) -> BadRow | None:
    """For a sentence or a word."""
    if not text or text.isspace():
        return BadRow(file, line, "empty", f"the {name} is empty")
    if bad := check_characters(name, text, file, line):
        return bad
    return BadRow(file, line, "control character", f"the {name} contains a lone CR") if "\r" in text else None


def check_characters(name: str, text: str, file: str, line: int) -> BadRow | None:
    """For any text, also for one whose white space counts."""
    if "\0" in text:
        return BadRow(file, line, "control character", f"the {name} contains NUL")
    try:
        text.encode()
    except UnicodeEncodeError as error:  # JSON and Python strings may contain a lone surrogate; UTF-8 may not
        detail = f"the {name} contains the lone surrogate \\u{ord(text[error.start]):04x}"
        return BadRow(file, line, "bad UTF-8", detail)
    return None


def check_label(name: str, text: str, file: str, line: int) -> BadRow | None:
    """For a label or a tag, the name of a class."""
    if len(text) > MAX_LABEL:
        return BadRow(file, line, "over-long", f"the {name} has {len(text)} characters, the limit is {MAX_LABEL}")
    return check_text(name, text, file, line)
