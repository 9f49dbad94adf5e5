"""Uploaded files: each in a private temporary directory, under a name that the server chooses, until its request ends.

    bytes of the client ─▶ …/input.png ─▶ the model reads it ─▶ deleted

Of the client's file name only the suffix counts, and it must be one that the modality reads. No client names a file of
the server: a text is the name of a file only if `Modality.is_inline` denies that it is the input itself, and such texts
are refused.
"""

from __future__ import annotations

import binascii
import os
import shutil
import tempfile
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from anyio import to_thread
from PIL import Image

from regard.modalities.protocols import Modality
from regard.serve.errors import ApiError

PREFIX = "regard-upload-"
UPLOAD_NAME = "the uploaded file"  # in messages, instead of the path on the server
MAX_PIXELS = 1 << 25  # of a picture; more are a decompression bomb


def choose_suffix(filename: str | None, modality: Modality) -> str:
    """The suffix of the client's file name, if the modality reads it; without a name, the first that it reads."""
    if not filename:
        return modality.file_formats[0]
    suffix = os.path.splitext(filename)[1].lower()
    if suffix not in modality.file_formats:
        formats = ", ".join(modality.file_formats)
        raise ApiError(422, f"this model reads {formats} files, not {suffix[:12]!r}: send one of these", param="file")
    return suffix


def decode_file(text: str) -> bytes:
    """The bytes of base64, or of a data URL."""
    if text.startswith("data:"):
        text = text.partition(",")[2]
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        message = "the file is not valid base64: encode its bytes, or send it as multipart/form-data"
        raise ApiError(422, message, param="file") from None


@asynccontextmanager
async def saved_upload(content: bytes, filename: str | None, modality: Modality) -> AsyncIterator[Path]:
    """The path of the uploaded bytes. The file exists until the context ends."""
    if not modality.file_formats:
        raise ApiError(
            422, f"this model reads {modality.unit} as text: send the field input, and no file", param="file"
        )
    if not content:
        raise ApiError(422, "the uploaded file is empty: choose another one", param="file")
    suffix = choose_suffix(filename, modality)
    Image.MAX_IMAGE_PIXELS = MAX_PIXELS  # of the process: regard refuses pictures that exceed it
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))  # readable by this user only
    try:
        file = folder / f"input{suffix}"
        await to_thread.run_sync(file.write_bytes, content)
        yield file
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def without_path(message: str, file: Path | None) -> str:
    """A message without the place of an upload on the server."""
    return message.replace(str(file), UPLOAD_NAME) if file else message
