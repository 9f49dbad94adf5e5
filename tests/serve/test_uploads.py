"""Uploads are files of the client only: private, checked, deleted; no client names a file of the server."""

import base64
import io
import json
import os
import stat
import struct
import tempfile
import uuid
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import regard
from regard.modalities import MODALITIES
from regard.serve import uploads

FILE_MODALITIES = [modality for modality in MODALITIES.values() if modality.file_formats]


@pytest.fixture(scope="module")
def media(start_server):
    return start_server("image", "match", "speech")


@pytest.fixture
def upload_folder(tmp_path, monkeypatch):
    """The folder of temporary files; it must be empty after a request."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture(scope="module")
def picture(model_folder):
    return next(model_folder("image").parent.glob("pictures/red/*.png"))


@pytest.fixture(scope="module")
def recording(model_folder):
    return next(model_folder("speech").parent.glob("*.wav"))


def multipart(server, path, parts):
    """Parts (name, content) or (name, content, filename)."""
    boundary, body = uuid.uuid4().hex, b""
    for name, content, *filename in parts:
        disposition = f'form-data; name="{name}"' + "".join(f'; filename="{name}"' for name in filename)
        content = content if isinstance(content, bytes) else content.encode()
        body += f"--{boundary}\r\nContent-Disposition: {disposition}\r\n\r\n".encode() + content + b"\r\n"
    kind = f"multipart/form-data; boundary={boundary}"
    return server.request("POST", path, body + f"--{boundary}--\r\n".encode(), Content_Type=kind)


def error_of(response, status=422):
    assert response.status == status, response.body
    return response.json["error"]


@pytest.mark.parametrize("kind", ["form", "base64", "data url"])
def test_an_uploaded_file_is_answered_as_the_same_file_on_disk(
    media, model_folder, picture, recording, upload_folder, kind
):
    inputs = {"image": (picture, []), "match": (picture, ["a red box", "a blue box"]), "speech": (recording, [])}
    for name, (file, texts) in inputs.items():
        options = {} if name == "speech" else {"num_return": 2}
        expected = regard.load(model_folder(name), speed="exact").generate("\t".join([str(file), *texts]), **options)
        if kind == "form":
            fields = [("options", json.dumps(options)), *(("texts", text) for text in texts)]
            response = multipart(media, f"/v1/run/{name}", [("file", file.read_bytes(), file.name), *fields])
        else:
            content = base64.b64encode(file.read_bytes()).decode()
            content = f"data:image/png;base64,{content}" if kind == "data url" else content
            body = {"file": content, "filename": file.name, "options": options}
            response = media.post(f"/v1/run/{name}", body | ({"input": texts} if texts else {}))
        assert response.status == 200, response.body
        assert [p["text"] for p in response.json["predictions"]] == [p.text for p in expected]
        assert [p["logprob"] for p in response.json["predictions"]] == pytest.approx(
            [p.logprob for p in expected], abs=1e-4
        )
    assert [*upload_folder.iterdir()] == []


def test_the_file_is_private_and_named_by_the_server(picture, upload_folder):
    import anyio

    async def look_at_file():
        async with uploads.saved_upload(picture.read_bytes(), "../../a b.PNG", MODALITIES["image"]) as file:
            assert file.name == "input.png"
            assert file.parent.parent == upload_folder
            assert stat.S_IMODE(os.stat(file.parent).st_mode) == 0o700
            assert file.read_bytes() == picture.read_bytes()
        assert not file.parent.exists()

    anyio.run(look_at_file)


@pytest.mark.parametrize("model", ["image", "match", "speech"])
def test_no_client_names_a_file_of_the_server(media, model_folder, picture, recording, model):
    file = recording if model == "speech" else picture
    assert (
        regard.load(model_folder(model))(f"{file}\ta\tb" if model == "match" else str(file)) is not None
    )  # Python may
    texts = ["a", "b"] if model == "match" else []
    for body in (
        {"input": str(file)},
        {"input": [str(file), *texts]},
        {"input": {"file": str(file)}},
        {"input": {"text": str(file)}},
        {"input": f"{file}\ta\tb"},
        {"input": file.as_uri()},
    ):
        for path in ("run", "look"):
            assert error_of(media.post(f"/v1/{path}/{model}", body))["message"]
    refused = multipart(media, f"/v1/run/{model}", [("input", str(file))])
    assert error_of(refused)["code"] == "file_required"


def test_a_candidate_text_is_a_text_even_if_it_names_a_picture(media, picture):
    parts = [("file", picture.read_bytes(), "x.png"), ("texts", str(picture)), ("texts", "a red box")]
    answer = multipart(media, "/v1/run/match", [*parts, ("options", '{"num_return": 2}')]).json
    assert {p["text"] for p in answer["predictions"]} == {str(picture), "a red box"}


@pytest.mark.parametrize("modality", FILE_MODALITIES, ids=lambda modality: modality.name)
def test_a_path_is_no_inline_input(modality, tmp_path):
    for suffix in modality.file_formats:
        for path in (tmp_path / f"x{suffix}", Path(f"x{suffix}"), Path("/etc/passwd"), Path("1 2 3")):
            assert not modality.is_inline(str(path))


def test_inline_inputs_are_never_opened(monkeypatch):
    """What `is_inline` admits reads no file: a preprocessor that tries to open one fails."""
    from regard.modalities.series.preprocessor import SeriesPreprocessor
    from regard.modalities.trajectory.preprocessor import parse_unfinished

    series, _ = MODALITIES["series"], MODALITIES["trajectory"]
    preprocessor = SeriesPreprocessor([0.0], [1.0], 1)
    opened = []
    monkeypatch.setattr("builtins.open", lambda *args, **_: opened.append(args) or io.StringIO())
    for raw in ("[1, 2, 3]", " [1, 2", "[1, 2]/etc/passwd", '["/etc/passwd"]'):
        assert series.is_inline(raw)
        try:
            preprocessor.parse(raw, None)
        except ValueError:
            continue
    with pytest.raises(ValueError, match="not an episode"):
        parse_unfinished('{"observations": "/etc/passwd"}')
    assert opened == []


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([("file", b"x", "evil.sh")], "not '.sh'"),
        ([("file", b"x", "../../x.png/..")], "not ''"),
        ([("file", b"", "x.png")], "empty"),
        ([("file", b"no picture", "x.png")], "the uploaded file: not an image"),
        ([("texts", "a")], "field 'texts'"),
        ([("file", b"x", "x.png"), ("options", "{")], "options is not valid JSON"),
        ([("file", b"x", "x.png"), ("stream", "perhaps")], "stream"),
        ([], "never a file of the server"),
    ],
)
def test_a_bad_upload_gets_one_message(media, upload_folder, parts, message):
    error = error_of(multipart(media, "/v1/run/image", parts))
    assert message in error["message"]
    assert uploads.PREFIX not in error["message"]
    assert [*upload_folder.iterdir()] == []


def test_a_text_model_takes_no_file(server):
    response = multipart(server, "/v1/run/translate", [("file", b"x", "x.png"), ("input", "tea")])
    assert "no file" in error_of(response)["message"]
    text = multipart(server, "/v1/run/translate", [("input", "tea and milk")])
    assert text.json == server.post("/v1/run/translate", {"input": "tea and milk"}).json


def test_base64_must_be_valid(media):
    assert "base64" in error_of(media.post("/v1/run/image", {"file": "?"}))["message"]


def png(width, height):
    """A picture of one colour, whose pixels are a few kilobytes of zeros."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = zlib.compress(bytes((width // 8 + 1) * height), 9)
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def test_a_picture_bomb_is_refused_and_a_small_picture_of_the_same_kind_is_not(media, picture, upload_folder):
    edge = 8000
    assert edge**2 > uploads.MAX_PIXELS > len(png(edge, edge))
    error = error_of(multipart(media, "/v1/run/image", [("file", png(edge, edge), "bomb.png")]))
    assert "exceeds limit" in error["message"] or "bomb" in error["message"].lower()
    assert multipart(media, "/v1/run/image", [("file", png(64, 64), "fine.png")]).status == 200
    assert multipart(media, "/v1/run/image", [("file", picture.read_bytes(), "next.png")]).status == 200
    assert [*upload_folder.iterdir()] == []


def test_an_upload_above_the_limit_is_refused_before_it_is_parsed(start_server, upload_folder):
    small = start_server("image", max_body_mb=0.01)
    noise = np.random.default_rng(0).integers(0, 256, (100, 100, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).save(file, "PNG")
    assert error_of(multipart(small, "/v1/run/image", [("file", file.getvalue(), "x.png")]), 413)
    assert error_of(small.post("/v1/run/image", {"file": base64.b64encode(file.getvalue()).decode()}), 413)
    assert [*upload_folder.iterdir()] == []


def test_the_look_page_of_a_picture_does_not_name_its_place_on_the_server(media, picture, upload_folder):
    page = multipart(media, "/v1/look/image", [("file", picture.read_bytes(), "x.png")])
    assert page.status == 200, page.body
    assert b"input.png" in page.body
    assert uploads.PREFIX.encode() not in page.body
    assert str(upload_folder).encode() not in page.body
    assert [*upload_folder.iterdir()] == []
