"""How a model is asked by default: generation_config.json and config.json, which must not contradict each other.

A rule is a sentence that must not be true of what the two files say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from regard.check.check_result import Status, Verdict
from regard.hub.files import read_json, there

SAMPLING = {"temperature": 1.0, "top_p": 1.0, "top_k": 50, "min_p": None, "typical_p": 1.0}  # what means nothing
BEAMS = {"early_stopping": False, "length_penalty": 1.0}


class Asking(NamedTuple):
    """What the two files say, and what the model is."""

    config: Mapping[str, Any]
    generation: Mapping[str, Any]
    vocab: int
    context: int
    translates: bool
    start: int | None  # the token that the task itself begins with, if it is known

    def said(self, key: str, usual: Any = None) -> Any:
        found = self.generation.get(key, self.config.get(key))
        return usual if found is None else found

    def number(self, key: str, usual: float) -> float:
        found = self.said(key, usual)
        return found if isinstance(found, int | float) else usual


Contradiction = tuple[Status, str, str]  # how bad, what is wrong, what to do


def settings(asking: Asking) -> list[Verdict]:
    found = [*tokens(asking), *lengths(asking), *sampling(asking), *starts(asking)]
    if not found:
        files = "generation_config.json and config.json agree" if asking.generation else "config.json says all there is"
        return [Verdict("settings", "ok", files, 0, 0)]
    return [Verdict("settings", status, says, 1, 0, advice) for status, says, advice in found]


def tokens(asking: Asking) -> Iterator[Contradiction]:
    for name, said in (("config.json", asking.config), ("generation_config.json", asking.generation)):
        for key, value in said.items():
            if key.endswith(("_token_id", "suppress_tokens", "_words_ids")):
                wrong = [i for i in flat(value) if not 0 <= i < asking.vocab and (key, i) != ("pad_token_id", -1)]
                if wrong:
                    advice = f"There is no token {wrong[0]}: the ids of this model end at {asking.vocab - 1}."
                    yield "FAILS", f"{name}: {key} is {value}", advice
    ends, other = flat(asking.generation.get("eos_token_id")), flat(asking.config.get("eos_token_id"))
    if not ends and not other:
        yield "FAILS", "no eos_token_id", "Nothing ends a text: write into generation_config.json which token does."
    elif ends and other and not {*ends} & {*other}:
        advice = (
            "The two files end a text with different tokens: the first one counts, so correct the one that is wrong."
        )
        yield "FAILS", f"eos_token_id is {ends} in generation_config.json, {other} in config.json", advice


def flat(value: Any) -> list[int]:
    if isinstance(value, list):
        return [number for one in value for number in flat(one)]
    return [value] if type(value) is int else []


def lengths(asking: Asking) -> Iterator[Contradiction]:
    least = max(asking.number("min_length", 0), asking.number("min_new_tokens", 0))
    for key in ("max_length", "max_new_tokens"):
        most = asking.number(key, 1)
        if most < 1:
            yield (
                "FAILS",
                f"{key} is {most}",
                "No answer can be shorter than one token: set it to what you want at most.",
            )
        elif asking.said(key) is not None and most < least:
            advice = f"Answers would have to be at least {least} tokens long and at most {most}: lower the first."
            yield "FAILS", f"{key} is {most}, below the least of {least}", advice
        elif asking.said(key) is not None and most > asking.context:
            advice = f"The model sees {asking.context} tokens at once: what is longer is refused or forgotten."
            yield "note", f"{key} is {most}", advice


def sampling(asking: Asking) -> Iterator[Contradiction]:
    samples, beams = bool(asking.said("do_sample", False)), asking.number("num_beams", 1)
    unused = [key for key, nothing in SAMPLING.items() if asking.said(key, nothing) not in (nothing, 0)]
    if unused and not samples:
        key = unused[0]
        advice = f"Nothing is sampled, so {key} does nothing: set do_sample to true, or take {key} out."
        yield "FAILS", f"do_sample is false, {key} is {asking.said(key)}", advice
    if samples and asking.number("temperature", 1.0) <= 0:
        yield (
            "FAILS",
            f"temperature is {asking.said('temperature')}",
            "Sampling divides by it: set do_sample to false instead.",
        )
    if not 0 < asking.number("top_p", 1.0) <= 1:
        yield "FAILS", f"top_p is {asking.said('top_p')}", "It is a probability, above 0 and at most 1."
    if samples and beams > 1:
        advice = "Beams that are drawn at random find neither the best text nor a fair sample: choose one of the two."
        yield "note", f"do_sample is true, num_beams is {beams}", advice
    unused = [key for key, nothing in BEAMS.items() if asking.said(key, nothing) != nothing]
    if unused and beams == 1:
        advice = f"With one beam {unused[0]} does nothing: set num_beams, or take it out."
        yield "note", f"num_beams is 1, {unused[0]} is {asking.said(unused[0])}", advice
    if not samples and asking.number("num_return_sequences", 1) > beams:
        many = asking.said("num_return_sequences")
        yield "FAILS", f"num_return_sequences is {many}", f"{beams} beams cannot end in {many} answers: use more beams."


def starts(asking: Asking) -> Iterator[Contradiction]:
    """Where a translation begins."""
    if not asking.translates:
        return
    key = "decoder_start_token_id"
    first, other = asking.generation.get(key), asking.config.get(key)
    if first is None and other is None and asking.said("bos_token_id") is None:
        yield "FAILS", f"no {key}", "Nobody says how a translation begins: write it into generation_config.json."
    elif first is not None and other is not None and first != other:
        yield (
            "FAILS",
            f"{key} is {first}, in config.json {other}",
            "The first one counts: correct the one that is wrong.",
        )
    elif asking.start is not None and asking.said(key, asking.start) != asking.start:
        advice = (
            "It was trained to begin with another token: other programs will get other translations from this folder."
        )
        yield "FAILS", f"{key} is {asking.said(key)}, task.json begins with {asking.start}", advice


def said_in(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """config.json, and generation_config.json if there is one."""
    file = folder / "generation_config.json"
    return read_json(folder / "config.json"), read_json(file) if there(file) else {}
