"""Default generation settings: generation_config.json and config.json must not contradict each other.

Each `check_` function yields the contradictions of one kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from regard.check.check_result import CheckResult, Status
from regard.json_files import lexists, read_json

SAMPLING_DEFAULTS = {"temperature": 1.0, "top_p": 1.0, "top_k": 50, "min_p": None, "typical_p": 1.0}  # of transformers
BOUNDARY_IDS = ("bos_token_id", "eos_token_id")  # beyond the vocabulary they are never generated
BEAM_DEFAULTS = {"early_stopping": False, "length_penalty": 1.0}


class GenerationSettings(NamedTuple):
    """The contents of the two files, and facts about the model."""

    config: Mapping[str, object]
    generation: Mapping[str, object]
    vocab: int
    context: int
    is_seq2seq: bool
    start_token: int | None  # decoder start of task.json, if known

    def get(self, key: str, default: object = None) -> object:
        value = self.generation.get(key, self.config.get(key))
        return default if value is None else value

    def get_number(self, key: str, default: float) -> float:
        value = self.get(key, default)
        return value if isinstance(value, int | float) else default


Contradiction = tuple[Status, str, str]  # status, message, advice


def generation_settings(settings: GenerationSettings) -> list[CheckResult]:
    name, checks = "generation settings", (check_token_ids, check_lengths, check_sampling, check_start_token)
    contradictions = [contradiction for check in checks for contradiction in check(settings)]
    if not contradictions:
        agree, alone = "generation_config.json and config.json agree", "config.json holds all settings"
        return [CheckResult(name, "ok", agree if settings.generation else alone, 0, 0)]
    return [CheckResult(name, status, text, 1, 0, advice) for status, text, advice in contradictions]


def check_token_ids(settings: GenerationSettings) -> Iterator[Contradiction]:
    for name, settings_of_file in (("config.json", settings.config), ("generation_config.json", settings.generation)):
        for key, value in settings_of_file.items():
            if key.endswith(("_token_id", "suppress_tokens", "_words_ids")):
                ids = [i for i in flatten_ids(value) if (key, i) != ("pad_token_id", -1)]
                if unknown := [i for i in ids if not 0 <= i < settings.vocab]:
                    advice = f"Token {unknown[0]} does not exist: the ids of this model end at {settings.vocab - 1}."
                    status: Status = "FAILS"
                    if key in BOUNDARY_IDS and min(unknown) >= settings.vocab:
                        status = "note"
                        advice += " No output depends on it: set it to the token that the tokenizer has, or remove it."
                    yield status, f"{name}: {key} is {value}", advice
    eos, config_eos = (flatten_ids(file.get("eos_token_id")) for file in (settings.generation, settings.config))
    if not eos and not config_eos:
        yield "FAILS", "No eos_token_id", "No token ends generation: set eos_token_id in generation_config.json."
    elif eos and config_eos and max(*eos, *config_eos) < settings.vocab and not {*eos} & {*config_eos}:
        advice = "The files disagree on the end of a text, and generation_config.json wins: correct the wrong one."
        yield "FAILS", f"eos_token_id is {eos} in generation_config.json, {config_eos} in config.json", advice


def flatten_ids(value: object) -> list[int]:
    if isinstance(value, list):
        return [token for item in value for token in flatten_ids(item)]
    return [value] if type(value) is int else []


def check_lengths(settings: GenerationSettings) -> Iterator[Contradiction]:
    min_tokens = max(settings.get_number("min_length", 0), settings.get_number("min_new_tokens", 0))
    for key in ("max_length", "max_new_tokens"):
        max_tokens = settings.get_number(key, 1)
        if max_tokens < 1:
            advice = "An answer has at least one token: set it to the longest answer that you want."
            yield "FAILS", f"{key} is {max_tokens}", advice
        elif settings.get(key) is not None and max_tokens < min_tokens:
            advice = f"Answers would need at least {min_tokens} and at most {max_tokens} tokens: lower the minimum."
            yield "FAILS", f"{key} is {max_tokens}, below the minimum of {min_tokens}", advice
        elif settings.get(key) is not None and max_tokens > settings.context:
            advice = f"The model's context is {settings.context} tokens: longer texts are refused or truncated."
            yield "note", f"{key} is {max_tokens}", advice


def check_sampling(settings: GenerationSettings) -> Iterator[Contradiction]:
    samples, beams = bool(settings.get("do_sample", False)), settings.get_number("num_beams", 1)
    unused = [key for key, default in SAMPLING_DEFAULTS.items() if settings.get(key, default) not in (default, 0)]
    if unused and not samples:
        key = unused[0]
        advice = f"Greedy and beam search ignore {key}: set do_sample to true, or remove {key}."
        yield "FAILS", f"do_sample is false, {key} is {settings.get(key)}", advice
    if samples and settings.get_number("temperature", 1.0) <= 0:
        advice = "Sampling divides logits by the temperature: set do_sample to false instead."
        yield "FAILS", f"temperature is {settings.get('temperature')}", advice
    if not 0 < settings.get_number("top_p", 1.0) <= 1:
        yield "FAILS", f"top_p is {settings.get('top_p')}", "top_p is a probability: set it above 0 and at most 1."
    if samples and beams > 1:
        advice = "Sampled beams give neither the likeliest text nor a fair sample: choose one of the two."
        yield "note", f"do_sample is true, num_beams is {beams}", advice
    unused = [key for key, default in BEAM_DEFAULTS.items() if settings.get(key, default) != default]
    if unused and beams == 1:
        advice = f"Only beam search uses {unused[0]}: set num_beams, or remove it."
        yield "note", f"num_beams is 1, {unused[0]} is {settings.get(unused[0])}", advice
    if not samples and settings.get_number("num_return_sequences", 1) > beams:
        count = settings.get("num_return_sequences")
        advice = f"{beams} beams cannot return {count} answers: raise num_beams."
        yield "FAILS", f"num_return_sequences is {count}", advice


def check_start_token(settings: GenerationSettings) -> Iterator[Contradiction]:
    """The first token of the decoder."""
    if not settings.is_seq2seq:
        return
    key = "decoder_start_token_id"
    start, config_start = settings.generation.get(key), settings.config.get(key)
    if start is None and config_start is None and settings.get("bos_token_id") is None:
        yield "FAILS", f"No {key}", "The decoder has no first token: set it in generation_config.json."
    elif start is not None and config_start is not None and start != config_start:
        advice = "generation_config.json wins: correct the wrong one."
        yield "FAILS", f"{key} is {start} in generation_config.json, {config_start} in config.json", advice
    elif settings.start_token is not None and settings.get(key, settings.start_token) != settings.start_token:
        advice = "Training started the decoder with another token: other programs will translate otherwise; correct it."
        yield "FAILS", f"{key} is {settings.get(key)}, in task.json {settings.start_token}", advice


def read_settings(folder: Path) -> tuple[dict[str, object], dict[str, object]]:
    """config.json, and generation_config.json if it exists."""
    file = folder / "generation_config.json"
    return read_json(folder / "config.json"), read_json(file) if lexists(file) else {}
