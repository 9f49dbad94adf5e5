"""Images of every file format are read with their pixels, and preprocessed as in transformers."""

import gzip
import io
import json
import os
import struct
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from regard import json_files
from regard.data import arrays
from regard.data.lines import BadRow, Note
from regard.data.lint import lint
from regard.data.rows import Labels, Row, train_valid_split
from regard.modalities.image.image_files import (
    MAX_EDGE,
    LabelledImage,
    labelled_image,
    open_image,
    read_captioned_images,
    read_images,
)
from regard.modalities.image.image_transform import ImageTransform

SHARED = Path("/work/shared/data")
needs_shared = pytest.mark.skipif(not SHARED.exists(), reason=f"the shared data sets are not in {SHARED}")
N, HIGH, WIDE = 5, 4, 7
GREY = np.random.default_rng(0).integers(0, 256, (N, HIGH, WIDE), dtype=np.uint8)
COLOUR = np.random.default_rng(1).integers(0, 256, (N, HIGH, WIDE, 3), dtype=np.uint8)
LABELS = np.array([3, 1, 4, 1, 9], dtype=np.uint8)


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def write(file: Path, content: str | bytes) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


def draw(file: Path, pixels: np.ndarray, **how: object) -> Path:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "JPEG" if file.suffix == ".jpg" else file.suffix[1:], **how)
    return write(file, out.getvalue())


def same(rows: list[LabelledImage], pixels: np.ndarray, labels: list[str]) -> None:
    assert [row.target for row in rows] == [Labels((label,)) for label in labels]
    for row, single in zip(rows, pixels, strict=True):
        assert row.input.dtype == np.uint8
        np.testing.assert_array_equal(row.input, single.reshape(HIGH, WIDE, -1))


@pytest.mark.parametrize("pixels", [GREY, COLOUR], ids=["grey", "colour"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_idx_files_are_read_back(tmp_path: Path, pixels: np.ndarray, pack) -> None:
    images = write(tmp_path / "train-images-idx3-ubyte.gz", pack(idx(pixels)))
    labels = write(tmp_path / "train-labels-idx1-ubyte.gz", pack(idx(LABELS)))
    for paths in [images, labels], [labels, images], [tmp_path]:
        rows = [*read_images(paths)]
        same(rows, pixels, ["3", "1", "4", "1", "9"])
        assert [row.line for row in rows] == [1, 2, 3, 4, 5]
        assert {row.file for row in rows} == {str(images)}


@pytest.mark.parametrize("pixels", [GREY, COLOUR], ids=["grey", "colour"])
@pytest.mark.parametrize("names", [("images", "labels"), ("X", "Y"), ("first", "second")])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_files_are_read_back(tmp_path: Path, pixels: np.ndarray, names, save) -> None:
    save(tmp_path / "a.npz", **dict(zip(names, (pixels, np.array(["x", "y", "x", "z", "y"])), strict=True)))
    same([*read_images([tmp_path / "a.npz"])], pixels, ["x", "y", "x", "z", "y"])


@pytest.mark.parametrize("pixels", [GREY, COLOUR], ids=["grey", "colour"])
@pytest.mark.parametrize("kind", [".png", ".bmp", ".webp"])
def test_class_folders_are_read_back(tmp_path: Path, pixels: np.ndarray, kind: str) -> None:
    for i, single in enumerate(pixels):
        draw(tmp_path / "ab"[i % 2] / f"{i}{kind}", single, **({"lossless": True} if kind == ".webp" else {}))
    for litter in ".DS_Store", "a/.DS_Store", "a/Thumbs.db", ".git/x.png", "__MACOSX/a/x.png", "README.txt":
        write(tmp_path / litter, "litter")
    rows = [*read_images([tmp_path])]
    order = [0, 2, 4, 1, 3]
    assert [row.file for row in rows] == [str(tmp_path / "ab"[i % 2] / f"{i}{kind}") for i in order]
    expected = pixels[order]
    if kind == ".webp" and pixels is GREY:  # this format has no grey
        expected = np.repeat(expected[..., None], 3, -1)
    same(rows, expected, ["a", "a", "a", "b", "b"])


def test_images_of_every_colour_mode(tmp_path: Path) -> None:
    flat = np.full((HIGH, WIDE), 100, np.uint8)
    clear = np.where(np.arange(WIDE) < 3, 0, 255).astype(np.uint8) * np.ones((HIGH, 1), np.uint8)
    on_white = np.where(clear == 0, 255, 100)
    palette = Image.fromarray(flat).convert("P")
    cases = {
        "grey-alpha": (Image.merge("LA", [Image.fromarray(flat), Image.fromarray(clear)]), {}, on_white, 1),
        "rgb-alpha": (Image.merge("RGBA", [Image.fromarray(a) for a in (flat, flat, flat, clear)]), {}, on_white, 3),
        "palette": (palette, {}, flat, 3),
        "palette-clear": (palette, {"transparency": palette.getpixel((0, 0))}, flat * 0 + 255, 3),
        "grey-clear": (Image.fromarray(flat), {"transparency": 100}, flat * 0 + 255, 1),
        "black-or-white": (Image.fromarray(clear).convert("1"), {}, clear, 1),
        "sixteen-bits": (Image.fromarray(flat.astype(np.uint16) * 256 + 77), {}, flat, 1),
    }
    for name, (image, how, expected, channels) in cases.items():
        image.save(tmp_path / f"{name}.png", **how)
        pixels = open_image(tmp_path / f"{name}.png")
        assert pixels.shape == (HIGH, WIDE, channels), name
        np.testing.assert_array_equal(pixels, np.repeat(np.asarray(expected)[..., None], channels, -1), err_msg=name)
    image = Image.fromarray(COLOUR[0]).convert("CMYK")
    image.save(tmp_path / "print.jpg")
    assert open_image(tmp_path / "print.jpg").shape == (HIGH, WIDE, 3)


@pytest.mark.parametrize("kind", [".png", ".jpg"])
def test_photos_are_downscaled_as_they_are_read(tmp_path: Path, kind: str) -> None:
    """And all that comes after is as if nothing had been done to it."""
    across = np.linspace(0, 255, 1400)[None, :, None] * np.ones((1000, 1, 1))
    photo = np.concatenate([across, across[:, ::-1], 0 * across + 90], 2).astype(np.uint8)
    draw(tmp_path / "photos" / "a" / f"1{kind}", photo)
    draw(tmp_path / "photos" / "a" / f"2{kind}", photo[:, :, 0])
    write(tmp_path / "photos" / "captions.tsv", f"a/1{kind}\ta slope\n")
    colour, grey = [row.input for row in read_images([tmp_path / "photos"])]
    width = int(1400 * MAX_EDGE / 1000)
    assert (colour.shape, grey.shape) == ((MAX_EDGE, width, 3), (MAX_EDGE, width, 1))
    (row,) = read_captioned_images([tmp_path / "photos"])
    np.testing.assert_array_equal(row.input, colour)
    assert open_image(tmp_path / "photos" / "a" / f"1{kind}").shape == photo.shape, "one alone may be as it is"
    ready = ImageTransform(60, 3, (0.0,) * 3, (1.0,) * 3)
    once, twice = ready.prepare([photo]), ready.prepare([colour])
    assert np.abs(once.astype(int) - twice).max() <= 4


def test_an_image_size_above_the_limit_is_refused() -> None:
    with pytest.raises(
        ValueError, match=f"image-size must be at least 1 and at most {MAX_EDGE}, .* not {MAX_EDGE + 1}"
    ):
        ImageTransform.fit(pictures_of((9, 7, 1)), MAX_EDGE + 1)


def test_animations_give_their_first_frame_and_exif_orientation_is_applied(tmp_path: Path) -> None:
    frames = [Image.fromarray(np.full((HIGH, WIDE), value, np.uint8)) for value in (0, 255)]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert open_image(tmp_path / "a.gif").max() == 0
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees
    draw(tmp_path / "a.png", COLOUR[0], exif=exif)
    np.testing.assert_array_equal(open_image(tmp_path / "a.png"), np.rot90(COLOUR[0], -1))


def test_broken_images_are_reported_and_others_are_read(tmp_path: Path) -> None:
    whole = draw(tmp_path / "a" / "1.png", COLOUR[0]).read_bytes()
    write(tmp_path / "a" / "2.png", whole[:-30])
    write(tmp_path / "a" / "3.jpg", b"no picture")
    write(tmp_path / "a" / "4.png", b"")
    write(tmp_path / "a" / "5.tiff", b"II*\0")
    draw(tmp_path / "a" / "6.png", np.zeros((1, 101), np.uint8))
    write(tmp_path / "loose.png", whole)
    (tmp_path / "b").mkdir()
    rows, report = lint({"train": read_images([tmp_path])}, skip_bad=True)
    assert [Path(row.file).name for row in rows["train"]] == ["1.png"]
    result = {Path(bad.file).name: (bad.reason, bad.detail) for bad in report.bad}
    assert [*result] == ["loose.png", "2.png", "3.jpg", "4.png", "5.tiff", "6.png", "b"]
    assert result["loose.png"][0] == "missing field"
    assert result["b"] == ("empty", "this class has no image")
    assert "'.tiff'" in result["5.tiff"][1]
    assert "101 x 1 pixels: an edge is at most 100" in result["6.png"][1]
    with pytest.raises(ValueError, match=r"2\.png: not an image"):
        open_image(tmp_path / "a" / "2.png")


def test_a_decompression_bomb_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = draw(tmp_path / "a.png", np.zeros((30, 40), np.uint8))
    for limit in 1000, 500:  # pillow warns above the limit, and refuses above its double
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
        with warnings.catch_warnings(record=True) as caught, pytest.raises(ValueError, match="DecompressionBomb"):
            open_image(file)
        assert caught == []


@given(cut=st.integers(0, 2000), places=st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=5))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=15, deadline=None)
def test_any_bytes_give_an_image_or_a_bad_row(tmp_path: Path, cut: int, places: list[tuple[int, int]]) -> None:
    for kind in ".png", ".jpg", ".gif", ".webp", ".bmp":
        content = bytearray(draw(tmp_path / f"a{kind}", COLOUR[0]).read_bytes())
        for place, value in places:
            content[place % len(content)] = value
        write(tmp_path / "pictures" / "x" / f"a{kind}", bytes(content[: cut or None]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pillow's own, about what it could still make out
        items = [*read_images([tmp_path / "pictures"])]
    assert len(items) == 5
    assert {type(item) for item in items} <= {Row, BadRow}


IMAGES, TRUTHS = idx(GREY), idx(LABELS)
# files, their contents, what the message says
BROKEN = {
    "not idx": (["a", "b"], [b"hello", TRUTHS], "a: not an idx file of bytes"),
    "nothing": (["a", "b"], [b"", TRUTHS], "a: not an idx file"),
    "three zeros": (["a", "b"], [b"\0\0\x08", TRUTHS], "a: not an idx file"),
    "idx of floats": (["a", "b"], [b"\0\0\x0d" + IMAGES[3:], TRUTHS], "a: not an idx file of bytes"),
    "cut header": (["a", "b"], [IMAGES[:10], TRUTHS], "a: not an idx file"),
    "cut idx": (["a", "b"], [IMAGES[:-1], TRUTHS], r"a: \[5, 4, 7\] need 156 bytes, but the file has 155"),
    "idx and more": (["a", "b"], [IMAGES + b"x", TRUTHS], "a: .* need 156 bytes, but the file has more"),
    "two pictures": (["a", "b"], [IMAGES, IMAGES], r"one file of images \(idx3\) and one of labels"),
    "two labels": (["a", "b"], [TRUTHS, TRUTHS], r"one file of images \(idx3\) and one of labels"),
    "fewer labels": (["a", "b"], [IMAGES, idx(LABELS[:3])], "5 images, but 3 labels"),
    "cut gzip": (["a", "b"], [gzip.compress(IMAGES)[:-9], TRUTHS], "a: broken gzip"),
    "huge": (["a", "b"], [b"\0\0\x08\x03" + b"\xff" * 12, TRUTHS], "a: .* are over 16 GB"),
    "one idx file": (["a"], [IMAGES], "images come from a folder .* not from a"),
    "three files": (["a", "b", "c"], [IMAGES, TRUTHS, TRUTHS], "not from a b c"),
    "no npz": (["a.npz"], [b"hello"], r"a\.npz: not a \.npz file"),
    "empty npz": (["a.npz"], [b""], r"a\.npz: not a \.npz file"),
}


@pytest.mark.parametrize(("files", "contents", "what"), BROKEN.values(), ids=BROKEN)
def test_errors_name_broken_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files, contents, what) -> None:
    monkeypatch.chdir(tmp_path)
    for file, content in zip(files, contents, strict=True):
        write(Path(file), content)
    with pytest.raises(ValueError, match=what):
        list(read_images(files))


@pytest.mark.parametrize(
    ("named", "what"),
    [
        ({"x": GREY.astype(float), "y": LABELS}, "uint8.* not float64"),
        ({"x": GREY, "y": LABELS.astype(float)}, "labels must be whole numbers or strings, not float64"),
        ({"x": np.zeros((5, 3, 4, 7), np.uint8), "y": LABELS}, r"not \(5, 3, 4, 7\)"),
        ({"x": np.zeros((5, 0, 7), np.uint8), "y": LABELS}, r"not \(5, 0, 7\)"),
        ({"x_train": GREY, "x_test": GREY, "y": LABELS}, r"one array named images or x .* x_train \(5, 4, 7\), x_test"),
        ({"x": GREY}, "one array named labels or y is needed"),
        ({"x": GREY, "y": np.array([None] * 5)}, "not a .npz file of plain arrays"),
    ],
)
def test_arrays_that_are_no_images_are_refused(tmp_path: Path, named: dict, what: str) -> None:
    np.savez(tmp_path / "a.npz", **named)
    with pytest.raises(ValueError, match=what):
        list(read_images([tmp_path / "a.npz"]))


def test_a_compressed_bomb_is_refused_before_it_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "MAX_ARRAYS", 1 << 20)
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros((2000, 40, 40), np.uint8), y=np.zeros(2000, np.uint8))
    with pytest.raises(ValueError, match="not a .npz file of plain arrays: over"):
        list(read_images([tmp_path / "a.npz"]))
    asked, unpack = [], gzip.GzipFile.read

    def count(self: gzip.GzipFile, size: int = -1) -> bytes:
        asked.append(size)
        return unpack(self, size)

    monkeypatch.setattr(gzip.GzipFile, "read", count)
    write(tmp_path / "b", gzip.compress(IMAGES + b"\0" * (50 << 20), 1))
    with pytest.raises(ValueError, match="the file has more"):
        list(read_images([tmp_path / "b", write(tmp_path / "c", TRUTHS)]))
    assert 0 < sum(asked) <= 3 << 20


def test_arrays_with_an_extreme_compression_ratio_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert json_files.SAFE_UNPACKED <= 300 << 20
    monkeypatch.setattr(json_files, "SAFE_UNPACKED", 1 << 20)
    many = {"x": np.zeros((2000, 40, 40), np.uint8), "y": np.zeros(2000, np.uint8)}
    np.savez(tmp_path / "plain.npz", **many)
    assert len(list(read_images([tmp_path / "plain.npz"]))) == 2000
    np.savez_compressed(tmp_path / "packed.npz", **many)
    with pytest.raises(ValueError, match=r"packed.npz: .* over 100 times .*1 MB\): store it uncompressed"):
        list(read_images([tmp_path / "packed.npz"]))
    header = b"\0\0\x08\x03" + b"".join(n.to_bytes(4, "big") for n in (2000, 40, 40))
    write(tmp_path / "a-idx3-ubyte.gz", gzip.compress(header + bytes(2000 * 1600)))
    with pytest.raises(ValueError, match=r"a-idx3-ubyte.gz: .* over 100 times"):
        list(read_images([tmp_path / "a-idx3-ubyte.gz", write(tmp_path / "c", TRUTHS)]))


def test_a_pipe_among_images_is_refused_without_reading_it(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    os.mkfifo(tmp_path / "cat" / "a.png")
    (tmp_path / "cat" / "b.png").symlink_to("/dev/zero")
    bad = list(read_images([tmp_path]))
    assert [(Path(row.file).name, row.reason) for row in bad] == [("a.png", "not an image"), ("b.png", "not an image")]
    assert all("a pipe or a device" in row.detail for row in bad)
    with pytest.raises(ValueError, match="a pipe or a device"):
        open_image(tmp_path / "cat" / "a.png")


def test_errors_of_wrong_folders_give_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such file or folder"):
        list(read_images([tmp_path / "gone"]))
    with pytest.raises(ValueError, match="put the images of each class into a folder"):
        list(read_images([tmp_path]))
    draw(tmp_path / "train" / "a" / "1.png", GREY[0])
    with pytest.raises(ValueError, match=r"train: folders, but no images; .* name it"):
        list(read_images([tmp_path]))
    for name in "train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte":
        write(tmp_path / "two" / name, b"")
    with pytest.raises(ValueError, match="which two of t10k-images-idx3-ubyte, train-images"):
        list(read_images([tmp_path / "two"]))


def test_captions_are_read_with_their_images(tmp_path: Path) -> None:
    for i, single in enumerate(COLOUR[:2]):
        draw(tmp_path / "pics" / f"{i}.png", single)
    table = write(tmp_path / "captions.tsv", "pics/1.png\ta cat\r\npics/0.png\ta dog\r\npics/1.png\tthe same cat\r\n")
    for path in table, tmp_path:
        rows = [item for item in read_captioned_images([path]) if isinstance(item, Row)]
        assert [(row.target, row.file, row.line) for row in rows] == [
            ("a cat", str(table), 1),
            ("a dog", str(table), 2),
            ("the same cat", str(table), 3),
        ]
        np.testing.assert_array_equal(rows[1].input, COLOUR[0])
        assert rows[0].input is rows[2].input, "a picture should be held once"
        assert rows[0].input_key == rows[2].input_key != rows[1].input_key
    assert [*read_captioned_images([table])][-1] == Note(str(table), "CRLF", 3)
    named = write(tmp_path / "named.tsv", "text\tx\tfile\na cat\t1\tpics/1.png\n")
    for fields in ("file", "text"), ("3", "1"):
        rows = [row for row in read_captioned_images([named], fields) if isinstance(row, Row)]
        assert rows[-1].target == "a cat"


def test_errors_name_broken_captions(tmp_path: Path) -> None:
    draw(tmp_path / "1.png", GREY[0])
    table = write(tmp_path / "a.tsv", b"1.png\tcat\ngone.png\tdog\n1.png\t \n1.png\n\tcat\n\xff\tcat\na.tsv\tcat\n")
    items = [*read_captioned_images([table])]
    assert [item.reason for item in items if isinstance(item, BadRow)] == [
        "missing file", "empty", "missing column", "empty", "bad UTF-8", "not an image",
    ]  # fmt: skip
    assert items[1].detail == "gone.png: no such file"
    for paths, what in ([tmp_path], "captions.tsv: no such file"), ([table, table], "one .tsv"), ([], "from nothing"):
        with pytest.raises(ValueError, match=what):
            list(read_captioned_images(paths))
    with pytest.raises(ValueError, match="fields are image and caption, not 1"):
        list(read_captioned_images([table], ("1",)))


def test_duplicates_and_splits_depend_on_the_pixels() -> None:
    def rows(array: np.ndarray, labels: str) -> list[LabelledImage]:
        return [
            labelled_image(single[..., None], label, "f", i)
            for i, (single, label) in enumerate(zip(array, labels, strict=True))
        ]

    train = rows(GREY[[0, 1, 1, 1, 2]], "aaabb")
    result, report = lint({"train": train, "test": rows(GREY[[2, 3]], "ab")}, skip_bad=True)
    assert report.counts["train"]["duplicates"] == 1
    assert report.counts["train"]["overlap"] == 1
    assert len(result["train"]) == 4
    train_rows, valid_rows = train_valid_split(train, 0.5)
    assert not {row.input_key for row in train_rows} & {row.input_key for row in valid_rows}
    turned = labelled_image(GREY[0].reshape(WIDE, HIGH, 1), "", "f", 1)
    assert turned.input_key != train[0].input_key, "the same bytes in another shape are another picture"


def pictures_of(*shapes: tuple[int, int, int]) -> list[LabelledImage]:
    random = np.random.default_rng(2)
    return [
        labelled_image(random.integers(0, 256, shape, dtype=np.uint8), "", "f", i) for i, shape in enumerate(shapes)
    ]


@pytest.mark.parametrize(
    ("shapes", "side", "channels"),
    [
        ([(9, 7, 1), (9, 5, 1), (6, 6, 1)], 9, 1),
        ([(9, 7, 1), (5, 8, 3), (3, 8, 3)], 8, 3),
        ([(300, 500, 3)], 224, 3),
        ([(300, 500, 3), (310, 410, 3), (640, 301, 3), (16, 16, 3), (16, 9, 3)], 224, 3),
    ],
)
def test_image_size_and_channels_follow_from_the_images(shapes, side: int, channels: int) -> None:
    fitted = ImageTransform.fit(pictures_of(*shapes))
    assert (fitted.image_size, fitted.channels) == (side, channels)
    assert ImageTransform.fit(pictures_of(*shapes), 6).image_size == 6


@pytest.mark.parametrize("channels", [1, 3])
def test_training_images_are_normalized_to_mean_0_and_std_1(channels: int) -> None:
    rows = pictures_of(*[(6, 6, channels)] * 7, (9, 6, 1), (5, 8, 1))
    fitted = ImageTransform.fit(rows)
    ready = fitted.prepare([row.input for row in rows])
    assert ready.shape == (9, channels, 6, 6)
    assert ready.dtype == np.uint8
    normal = fitted.normalize(torch.from_numpy(ready))
    assert normal.dtype == torch.float32
    torch.testing.assert_close(normal.mean((0, 2, 3)), torch.zeros(channels), atol=1e-5, rtol=0)
    torch.testing.assert_close(normal.std((0, 2, 3), unbiased=False), torch.ones(channels))


def test_constant_images_and_no_images() -> None:
    black = [labelled_image(np.zeros((6, 6, 1), np.uint8), "", "f", 1)]
    fitted = ImageTransform.fit(black)
    assert fitted.normalize(torch.from_numpy(fitted.prepare([black[0].input]))).abs().max() == 0
    with pytest.raises(ValueError, match="no images"):
        ImageTransform.fit([])


def test_the_centre_is_cropped_and_images_that_fit_are_unchanged() -> None:
    ready = ImageTransform(4, 1, (0.0,), (1.0,))
    strip = np.arange(40, dtype=np.uint8).reshape(4, 10)[..., None]
    np.testing.assert_array_equal(ready.prepare([strip])[0, 0], strip[:, 3:7, 0])
    np.testing.assert_array_equal(ready.prepare([strip[:, 3:7]])[0, 0], strip[:, 3:7, 0])
    np.testing.assert_array_equal(ImageTransform(4, 3, (0.0,) * 3, (1.0,) * 3).prepare([strip])[0, 2], strip[:, 3:7, 0])
    grey = ImageTransform(4, 1, (0.0,), (1.0,)).prepare([np.repeat(strip, 3, 2)])
    np.testing.assert_array_equal(grey[0, 0], strip[:, 3:7, 0])


@pytest.mark.parametrize("channels", [1, 3])
def test_transformers_gives_the_same_pixels(tmp_path: Path, channels: int) -> None:
    transformers = pytest.importorskip("transformers", reason="parity needs the dev extra")
    rows = pictures_of((31, 50, channels), (50, 31, channels), (16, 16, channels), (9, 13, channels))
    fitted = ImageTransform.fit(rows, 16)
    fitted.save(tmp_path)
    ours = fitted.normalize(torch.from_numpy(fitted.prepare([row.input for row in rows])))
    reference = transformers.AutoImageProcessor.from_pretrained(tmp_path)
    images = [Image.fromarray(row.input[..., 0] if channels == 1 else row.input) for row in rows]
    torch.testing.assert_close(ours, reference(images=images, return_tensors="pt")["pixel_values"], atol=1e-5, rtol=0)


def test_a_saved_transform_is_loaded_back(tmp_path: Path) -> None:
    fitted = ImageTransform.fit(pictures_of((9, 7, 3), (9, 8, 1)))
    fitted.save(tmp_path)
    assert ImageTransform.load(tmp_path) == fitted


PLAIN = {"size": 16, "image_mean": [0.5, 0.4, 0.3], "image_std": [0.1, 0.2, 0.3]}
SQUARE = {"height": 16, "width": 16}
CROPPED = {"size": {"shortest_edge": 20}, "do_center_crop": True, "crop_size": SQUARE}
VIT, CLIP = {"image_processor_type": "ViTImageProcessor"}, {"image_processor_type": "CLIPImageProcessor"}
THEIRS = {
    "vit": VIT,
    "vit square": VIT | {"size": SQUARE, "do_resize": True, "do_rescale": True},
    "vit nearest": VIT | {"resample": 0},
    "vit lanczos": VIT | {"resample": 1},
    "vit shorter edge": VIT | CROPPED,
    "vit squeezed and cut": VIT | CROPPED | {"size": {"height": 20, "width": 20}},
    "clip": CLIP | CROPPED | {"resample": 3, "do_convert_rgb": True},
    "clip of old": {"feature_extractor_type": "CLIPFeatureExtractor", "crop_size": 16, "do_center_crop": True},
    "clip with black around": CLIP | CROPPED | {"size": {"shortest_edge": 11}},
    "clip not resized": CLIP | CROPPED | {"do_resize": False},
    "bytes": VIT | {"do_rescale": False},
    "from -1 to 1": VIT | {"rescale_factor": 1 / 127.5, "image_mean": [1.0] * 3, "image_std": [1.0] * 3},
    "from 0 to 1": VIT | {"do_normalize": False, "image_mean": None},
    "one mean": VIT | {"image_mean": 0.3, "image_std": 0.7},
}


@pytest.mark.parametrize("named", THEIRS)
def test_preprocessor_configs_give_the_pixels_of_transformers(tmp_path: Path, named: str) -> None:
    transformers = pytest.importorskip("transformers", reason="parity needs the dev extra")
    content = json.dumps(PLAIN | THEIRS[named])
    write(tmp_path / "preprocessor_config.json", content)
    reference, ours = transformers.AutoImageProcessor.from_pretrained(tmp_path), ImageTransform.load(tmp_path)
    random = np.random.default_rng(5)
    sizes = [(16, 16), (1, 1), (1, 90), (90, 1), (31, 50), (50, 31), *random.integers(2, 70, (14, 2)).tolist()]
    pixels = [random.integers(0, 256, (high, wide, 3), dtype=np.uint8) for high, wide in sizes]
    expected = reference(images=[Image.fromarray(single) for single in pixels], return_tensors="pt")["pixel_values"]
    torch.testing.assert_close(ours.normalize(torch.from_numpy(ours.prepare(pixels))), expected, atol=1e-5, rtol=1e-6)
    (tmp_path / "again").mkdir()
    ours.save(tmp_path / "again")
    assert (tmp_path / "again" / "preprocessor_config.json").read_text() == content


@pytest.mark.parametrize("mode", ["L", "LA", "RGBA", "P", "1"])
def test_other_colour_modes_give_the_pixels_of_transformers(tmp_path: Path, mode: str) -> None:
    transformers = pytest.importorskip("transformers", reason="parity needs the dev extra")
    write(tmp_path / "preprocessor_config.json", json.dumps(PLAIN | THEIRS["clip"]))
    reference, ours = transformers.AutoImageProcessor.from_pretrained(tmp_path), ImageTransform.load(tmp_path)
    random = np.random.default_rng(6)
    for high, wide in (31, 50), (9, 7), (16, 16):
        image = Image.fromarray(random.integers(0, 256, (high, wide, 4), dtype=np.uint8)).convert(mode)
        image.save(tmp_path / "a.png")
        ready = ours.normalize(torch.from_numpy(ours.prepare([open_image(tmp_path / "a.png")])))
        expected = reference(images=Image.open(tmp_path / "a.png"), return_tensors="pt")["pixel_values"]
        torch.testing.assert_close(ready, expected, atol=1e-5, rtol=0)


def test_processor_config_of_a_text_image_model_is_read(tmp_path: Path) -> None:
    facts = {"image_processor": PLAIN | THEIRS["clip"], "processor_class": "CLIPProcessor"}
    assert not ImageTransform.exists_in(tmp_path)
    write(tmp_path / "processor_config.json", json.dumps(facts))
    assert ImageTransform.exists_in(tmp_path)
    result = ImageTransform.load(tmp_path)
    assert (result.image_size, result.edge, result.resize, result.resample) == (16, 20, "shorter", 3)
    (tmp_path / "again").mkdir()
    result.save(tmp_path / "again")
    assert [file.name for file in (tmp_path / "again").iterdir()] == ["processor_config.json"]


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"do_pad": True}, "do_pad True is not supported"),
        ({"crop_pct": 0.9}, "crop_pct 0.9 is not"),
        ({"do_flip_channel_order": True}, "do_flip_channel_order"),
        ({"rescale_offset": True}, "rescale_offset"),
        ({"size": {"height": 16, "width": 17}}, "size must be a square"),
        ({"size": {"longest_edge": 16}}, "height"),
        ({"size": {"shortest_edge": 16}}, "without do_center_crop"),
        (CROPPED | {"size": {"shortest_edge": 16, "longest_edge": 20}}, "longest_edge"),
        (CROPPED | {"crop_size": {"height": 9, "width": 8}}, "crop_size must be a square"),
        ({"size": 10**9}, "image-size must be at least 1 and at most 512"),
        ({"size": 0}, "image-size must be"),
        ({"size": 16.5}, "size"),
        ({"size": True}, "size must be a square"),
        (CROPPED | {"size": {"shortest_edge": 10**9}}, "edge must be"),
        ({"resample": 9}, "resample must be"),
        ({"do_resize": "no"}, "do_resize must be true or false"),
        ({"image_std": [0, 1, 1]}, "std must be above 0"),
        ({"image_mean": [0.5, 0.4]}, "mean must be a number for each"),
        ({"image_mean": [0.5, 0.5, float("nan")]}, "mean must be"),
        ({"image_mean": "abc"}, "could not convert"),
        ({"rescale_factor": 0}, "scale must be above 0"),
    ],
)
def test_unsupported_settings_are_refused_by_name(tmp_path: Path, changes: dict, what: str) -> None:
    write(tmp_path / "preprocessor_config.json", json.dumps(PLAIN | changes))
    with pytest.raises(ValueError, match=what) as error:
        ImageTransform.load(tmp_path)
    assert str(tmp_path / "preprocessor_config.json") in str(error.value)


def test_without_resizing_an_image_must_fit(tmp_path: Path) -> None:
    write(tmp_path / "preprocessor_config.json", json.dumps(PLAIN | {"do_resize": False}))
    result = ImageTransform.load(tmp_path)
    fits = pictures_of((16, 16, 3))[0].input
    np.testing.assert_array_equal(result.prepare([fits])[0], fits.transpose(2, 0, 1))
    with pytest.raises(ValueError, match="an image has 9 x 16 pixels, but this model takes only 16 x 16"):
        result.prepare([fits[:, :9]])


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"size": {}, "image_mean": [1]}', '{"size": 3, "image_mean": 1}'])
def test_an_invalid_preprocessor_config_is_named(tmp_path: Path, content: str) -> None:
    with pytest.raises(ValueError, match=r"has no preprocessor_config\.json"):
        ImageTransform.load(tmp_path)
    write(tmp_path / "preprocessor_config.json", content)
    with pytest.raises(ValueError, match=r"preprocessor_config\.json has no valid settings"):
        ImageTransform.load(tmp_path)


@needs_shared
def test_fashion_mnist_is_read() -> None:
    folder = SHARED / "fashion_mnist"
    rows = [*read_images([folder / "t10k-images-idx3-ubyte.gz", folder / "t10k-labels-idx1-ubyte.gz"])]
    assert len(rows) == 10_000
    assert {label: sum(row.target.names == (label,) for row in rows) for label in "0123456789"} == dict.fromkeys(
        "0123456789", 1000
    )
    assert {row.input.shape for row in rows} == {(28, 28, 1)}
    with pytest.raises(ValueError, match="which two of"):
        list(read_images([folder]))
