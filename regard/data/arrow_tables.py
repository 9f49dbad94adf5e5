"""Rows of Parquet and Arrow files (.parquet; .arrow and .feather, as file or stream), read in record batches.

Only the columns that are needed are read. A row is a dict, as from a line of JSON: dictionary-encoded values are
decoded, structs are dicts, lists are lists, decimals are floats. Classes that `datasets` numbers have their names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from decimal import Decimal
from difflib import get_close_matches
from typing import Any

from regard.data.tables import quote_names

PARQUET_SUFFIX = ".parquet"
ARROW_SUFFIXES = (PARQUET_SUFFIX, ".arrow", ".feather")
BATCH_BYTES = 1 << 23  # of a batch of rows, approximately
MAX_BATCH_ROWS = 1 << 12
ROWS_PER_BLOCK = 64  # that are Python objects at once
READ_BUFFER = 1 << 20  # bytes of a column that are read at once
Select = Callable[[Collection[str]], Sequence[str]]  # the fields to read, from the names of the columns
ClassNames = Mapping[str, Sequence[str]]


def is_arrow_file(name: str) -> bool:
    return name.lower().endswith(ARROW_SUFFIXES)


def arrow_rows(file: str, select: Select) -> Iterator[tuple[int, dict[str, object]]]:
    """The number of every row, from 1, and its selected columns. A dotted field selects the column that contains it."""
    pa = import_pyarrow(file)
    number = 0
    try:
        schema, batches = open_parquet(file) if file.lower().endswith(PARQUET_SUFFIX) else open_ipc(file)
        columns = choose_columns(file, schema, select)
        names = class_names(schema)
        for batch in batches(columns):
            batch.validate(full=True)  # a damaged offset would be read as an address
            for start in range(0, batch.num_rows, ROWS_PER_BLOCK):
                block = batch.slice(start, ROWS_PER_BLOCK)
                values = {name: python_values(block.column(name), names.get(name)) for name in columns}
                for row in zip(*values.values(), strict=True):
                    number += 1
                    yield number, dict(zip(columns, row, strict=True))
    except (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError, KeyError) as error:
        place = f" after row {number:,}" if number else ""
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise ValueError(f"{file}: broken{place} ({reason}); copy or download it again") from error
    if not number:
        raise ValueError(f"{file}: the file has no rows")


def import_pyarrow(file: str) -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise ValueError(f"{file}: Parquet and Arrow files need pyarrow: pip install 'regard[parquet]'") from error
    return pyarrow


Batches = Callable[[list[str]], Iterator[Any]]


def open_parquet(file: str) -> tuple[Any, Batches]:
    """Column chunks pass through a buffer, so that memory depends neither on the file nor on its row groups."""
    from pyarrow import parquet

    table = parquet.ParquetFile(file, buffer_size=READ_BUFFER, pre_buffer=False)
    metadata = table.metadata
    size = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
    rows = max(1, min(MAX_BATCH_ROWS, BATCH_BYTES * metadata.num_rows // max(1, size)))
    return table.schema_arrow, lambda columns: table.iter_batches(rows, columns=columns, use_threads=False)


def open_ipc(file: str) -> tuple[Any, Batches]:
    """The file format begins with its name; otherwise it is a stream."""
    import pyarrow as pa

    with open(file, "rb") as stream:
        is_file = stream.read(6) == b"ARROW1"
    opener = pa.ipc.open_file if is_file else pa.ipc.open_stream
    with opener(pa.OSFile(file)) as reader:
        schema = reader.schema

    def batches(columns: list[str]) -> Iterator[Any]:
        options = pa.ipc.IpcReadOptions(included_fields=[schema.get_field_index(name) for name in columns])
        with opener(pa.OSFile(file), options=options) as reader:
            if is_file:
                yield from (reader.get_batch(i) for i in range(reader.num_record_batches))
            else:
                yield from reader

    return schema, batches


def choose_columns(file: str, schema: Any, select: Select) -> list[str]:
    """The columns that contain the selected fields, in their order."""
    names = dict[str, None]()
    for field in select(schema.names):
        root = field if field in schema.names else field.split(".")[0]
        if schema.names.count(root) > 1:
            raise ValueError(f"{file}: {schema.names.count(root)} columns are named {root!r}; rename all but one")
        if root not in schema.names or not has_field(schema.field(root).type, field[len(root) + 1 :]):
            raise missing_column(file, schema, field)
        names[root] = None
    return [*names]


def has_field(kind: Any, path: str) -> bool:
    """Whether a type contains a dotted path of names, and of numbers in lists."""
    for key in path.split(".") if path else ():
        if getattr(kind, "names", None) or str(kind).startswith("struct"):
            index = kind.get_field_index(key)
            if index < 0:
                return False
            kind = kind.field(index).type
        elif key.isdecimal() and hasattr(kind, "value_type"):
            kind = kind.value_type
        else:
            return False
    return True


def field_names(schema: Any) -> list[str]:
    """Columns, and the fields of structs by their dotted names."""
    names: list[str] = []
    for column in schema:
        names.append(column.name)
        if str(column.type).startswith("struct"):
            kind = column.type
            names += [f"{column.name}.{kind.field(i).name}" for i in range(kind.num_fields)]
    return names


def missing_column(file: str, schema: Any, field: str) -> ValueError:
    names = field_names(schema)
    matches = get_close_matches(field, names, 1) or [name for name in names if name.endswith(f".{field}")][:1]
    suggestion = f" (did you mean {matches[0]!r}?)" if matches else ""
    detail = f"{file}: no column is named {field!r}{suggestion}; the file has {quote_names(names) or 'none'}"
    return ValueError(f"{detail}: name the columns to read with --fields, input first and answer last")


def class_names(schema: Any) -> ClassNames:
    """The names of numbered classes, which `datasets` stores beside the schema."""
    try:
        features = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
        kinds = {name: feature.get("feature", feature) for name, feature in features.items()}
        return {name: [*map(str, kind["names"])] for name, kind in kinds.items() if kind.get("_type") == "ClassLabel"}
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}


def python_values(column: Any, names: Sequence[str] | None) -> list[object]:
    values: list[object] = column.to_pylist()
    if names is not None:
        return [name_class(value, names) for value in values]
    if str(column.type).startswith("decimal"):
        return [float(value) if isinstance(value, Decimal) else value for value in values]
    return values


def name_class(value: object, names: Sequence[str]) -> object:
    """The name of a class number, or those of a list; -1 stands for no class."""
    if isinstance(value, list):
        return [name_class(item, names) for item in value]
    if isinstance(value, int) and -1 <= value < len(names):
        return names[value] if value >= 0 else None
    return value
