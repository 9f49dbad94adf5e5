"""Images: files in folders of their labels, arrays, and tables of image files and captions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from regard.data.media_files import is_folder_of
from regard.data.rows import Labels, Row
from regard.data.splits import Rows
from regard.modalities.image import image_files
from regard.modalities.image.image_augment import ImageAugment
from regard.modalities.image.image_files import Pixels, digest
from regard.modalities.image.image_transform import ImageTransform
from regard.modalities.image.preprocessor import ImagePreprocessor
from regard.modalities.protocols import FitOptions, Modality, ReadOptions, Target, stored_options
from regard.modalities.synthetic import shapes
from regard.modalities.synthetic.distinct import split_items


class ImageModality(Modality):
    name = "image"
    unit = "images"
    file = "preprocessor_config.json"
    size_names = ("image_size", "channels")
    formats = {
        Target.LABELS: "a folder with one folder per label, two idx files, or .npz",
        Target.TEXT: "a .tsv of image files and captions, or a folder with captions.tsv",
    }
    synthetic_data = {Target.LABELS: "shapes", Target.TEXT: "shapes, with captions"}
    default_models = {"encoder": "vit", "two-tower": "clip"}
    input_name = "pixel_values"
    file_formats = tuple(image_files.IMAGE_FORMATS)

    def option_groups(self, target: Target) -> tuple[type, ...]:
        return (ImageAugment,)

    def recognizes(self, path: str) -> bool:
        names = (*image_files.IMAGE_FORMATS,)
        return is_folder_of(path, lambda name: name.endswith(names) or bool(image_files.IDX_NAME.search(name)))

    def read(self, paths: Sequence[str], how: ReadOptions) -> Rows:
        if how.target is Target.TEXT:
            return image_files.read_captioned_images(paths, how.fields, how.dialect)
        return image_files.read_images(paths)

    def synthetic(self, target: Target) -> Mapping[str, Rows]:
        """The main shape of an image, or its caption."""

        def make_row(scene: shapes.Scene, number: int) -> Row[Pixels, Labels | str]:
            label = Labels((scene.label,)) if target is Target.LABELS else scene.caption
            return Row(scene.pixels, label, "shapes", number, digest(scene.pixels))

        return split_items(shapes.shapes(), shapes.split, make_row)

    def fit(self, rows: Sequence[Row[Pixels, object]], how: FitOptions) -> ImagePreprocessor:
        options = how.groups[ImageAugment]
        transform = how.start.transform if isinstance(how.start, ImagePreprocessor) else None
        return ImagePreprocessor(transform or ImageTransform.fit(rows, options.image_size), options)

    def load(self, folder: Path, stored: Mapping[str, object]) -> ImagePreprocessor | None:
        if not ImageTransform.exists_in(folder):
            return None
        options = stored_options(folder, stored, "image_augment", ImageAugment)
        return ImagePreprocessor(ImageTransform.load(folder), options)
