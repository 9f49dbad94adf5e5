"""The config files of sentence-transformers: read, written, and refused where regard does not implement them."""

import json
from pathlib import Path

import pytest

from regard.tasks.sentence_transformers_config import SentenceConfig, read_modules, write_modules

TYPES = "sentence_transformers.models."


def write_files(folder: Path, kinds: list[str], pooling: dict[str, object], longest: int | None = 256) -> Path:
    listed = [{"idx": i, "path": "" if not i else f"{i}_{kind}", "type": TYPES + kind} for i, kind in enumerate(kinds)]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": longest}))
    return folder


@pytest.mark.parametrize(
    ("hf_pooling", "pooling"),
    [("mean_tokens", "mean"), ("cls_token", "first"), ("lasttoken", "last")],
)
def test_pooling_normalisation_and_length_are_read(hf_pooling: str, pooling: str, tmp_path: Path) -> None:
    modes = {
        f"pooling_mode_{name}": name == hf_pooling for name in ("cls_token", "mean_tokens", "max_tokens", "lasttoken")
    }
    write_files(tmp_path, ["Transformer", "Pooling", "Normalize"], {"word_embedding_dimension": 8, **modes})
    assert read_modules(tmp_path) == SentenceConfig(pooling, True, 256)
    write_files(tmp_path, ["Transformer", "Pooling"], modes, None)
    assert read_modules(tmp_path) == SentenceConfig(pooling, False, None)


def test_a_folder_without_modules_json_uses_mean_pooling(tmp_path: Path) -> None:
    assert read_modules(tmp_path) == SentenceConfig("mean", False, None)


@pytest.mark.parametrize("unit", [True, False])
@pytest.mark.parametrize("pooling", ["mean", "first", "last"])
def test_written_files_are_read_back(pooling: str, unit: bool, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert", "hidden_size": 8}')
    for more in (False, None), (True, {"similarity_fn_name": "dot"}):
        write_modules(tmp_path, SentenceConfig(pooling, unit, 77, *more))
        assert read_modules(tmp_path) == SentenceConfig(pooling, unit, 77, *more)


def test_a_body_of_our_own_gets_no_files(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "regard-pooled"}')
    write_modules(tmp_path, SentenceConfig("mean", True))
    assert [file.name for file in tmp_path.iterdir()] == ["config.json"]


@pytest.mark.parametrize(
    ("listed", "pooling", "message"),
    [
        ([{"type": TYPES + "Dense", "path": ""}], {}, "Dense is not supported"),
        ([{"type": TYPES + "Pooling", "path": "../1_Pooling"}], {}, "not a plain folder name"),
        ([{"type": TYPES + "Pooling", "path": "/etc"}], {}, "not a plain folder name"),
        ([{"type": TYPES + "Pooling", "path": "1_Pooling"}], {"pooling_mode_max_tokens": True}, "max_tokens is not"),
        (
            [{"type": TYPES + "Pooling", "path": "1_Pooling"}],
            {"pooling_mode_max_tokens": True, "pooling_mode_mean_tokens": True},
            "is not supported, only one of",
        ),
        ({"no": "list"}, {}, "does not list the modules"),
        ([{"path": ""}], {}, "does not list the modules"),
    ],
)
def test_unsupported_modules_are_refused(listed: object, pooling: object, message: str, tmp_path: Path) -> None:
    write_files(tmp_path, [], {})
    (tmp_path / "modules.json").write_text(json.dumps(listed))
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    with pytest.raises(ValueError, match=message):
        read_modules(tmp_path)


@pytest.mark.parametrize(
    ("content", "bad"),
    [
        ({"default_prompt_name": None, "prompts": {"query": "query: "}}, False),
        ({"default_prompt_name": "query", "prompts": {"query": ""}}, False),
        ({"default_prompt_name": "query", "prompts": {"query": "query: "}}, True),
        ({"default_prompt_name": "query"}, True),
    ],
)
def test_a_default_prompt_is_refused(content: dict[str, object], bad: bool, tmp_path: Path) -> None:
    write_files(tmp_path, ["Transformer", "Pooling"], {"pooling_mode_mean_tokens": True})
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(content))
    if not bad:
        assert read_modules(tmp_path).pooling == "mean"
        return
    with pytest.raises(ValueError, match="default_prompt_name is 'query'"):
        read_modules(tmp_path)
