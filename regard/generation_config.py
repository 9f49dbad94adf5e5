"""Options of generation, and how a generation_config.json of Hugging Face sets them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from regard.sampling import LogitsProcessor
from regard.validate import check_fields

MAX_BEAMS = 10_000  # of num_beams and of num_return
MAX_STRENGTH = 100  # of the length penalty and the temperature: larger ones give only infinities


@dataclass(frozen=True)
class GenerationOptions:
    """How an answer is generated; the names are those of Hugging Face's GenerationConfig."""

    num_beams: int = 4  # beam width; 1 = greedy; no effect if --temperature is above 0
    num_return: int = 1  # answers per input, best first
    length_penalty: float = 1.0  # exponent p of the score log P / length^p; higher values favour longer answers
    temperature: float = 0.0  # sampling temperature; 0 = no sampling; 1 = the model's own distribution
    top_k: int = 0  # sample only from the k most probable tokens; 0 = from all
    top_p: float = 1.0  # sample only from the smallest set of tokens with this total probability
    min_new_tokens: int = 0  # minimum tokens of an answer, without </s>
    max_new_tokens: int | None = None  # maximum tokens of an answer, without </s>; default: 2 · input tokens + 10
    seed: int = 0  # random seed of sampling; each input has its own random stream in any batch
    repetition_penalty: float = 1.0  # above 1 = tokens that the text already contains become less probable
    no_repeat_ngram_size: int = 0  # no n-gram of this size occurs twice; 0 = no limit

    def __post_init__(self) -> None:
        check_fields(
            self,
            num_beams=(1 <= self.num_beams <= MAX_BEAMS, f"at least 1 and at most {MAX_BEAMS:,}"),
            num_return=(1 <= self.num_return <= MAX_BEAMS, f"at least 1 and at most {MAX_BEAMS:,}"),
            length_penalty=(abs(self.length_penalty) <= MAX_STRENGTH, f"from -{MAX_STRENGTH} to {MAX_STRENGTH}"),
            temperature=(
                self.temperature == 0 or 1e-6 <= self.temperature <= MAX_STRENGTH,
                f"0, or at least 1e-6 and at most {MAX_STRENGTH}",
            ),
            top_k=(self.top_k >= 0, "0 or more"),
            top_p=(1e-6 <= self.top_p <= 1, "at least 1e-6 and at most 1"),
            min_new_tokens=(0 <= self.min_new_tokens < 2**63, "0 or more, and below 2^63"),
            max_new_tokens=(
                self.max_new_tokens is None or max(1, self.min_new_tokens) <= self.max_new_tokens < 2**63,
                "1 or more, not below min-new-tokens, and below 2^63",
            ),
            seed=(0 <= self.seed < 2**63, "0 or more, and below 2^63"),
            repetition_penalty=(
                1 / MAX_STRENGTH <= self.repetition_penalty <= MAX_STRENGTH,
                f"from {1 / MAX_STRENGTH} to {MAX_STRENGTH}",
            ),
            no_repeat_ngram_size=(self.no_repeat_ngram_size >= 0, "0 or more"),
        )
        if self.temperature == 0 and self.num_return > self.num_beams:
            raise ValueError(f"num-return ({self.num_return}) must not exceed num-beams ({self.num_beams})")


# Keys of generation_config.json that are options here, under the same names.
SHARED_KEYS = (
    *("num_beams", "length_penalty", "repetition_penalty", "no_repeat_ngram_size", "min_new_tokens", "max_new_tokens"),
)
SAMPLING_DEFAULTS = {"temperature": 1.0, "top_k": 50, "top_p": 1.0}  # of transformers, with do_sample alone
PROCESSOR_KEYS = ("suppress_tokens", "begin_suppress_tokens", "bad_words_ids", "forced_bos_token_id")
OTHER_KEYS = ("do_sample", "max_length", "min_length", "forced_eos_token_id")
SUPPORTED_KEYS = (*SHARED_KEYS, *SAMPLING_DEFAULTS, *PROCESSOR_KEYS, *OTHER_KEYS)
UNSUPPORTED_KEYS = {  # keys that change an answer, and the value with which they do not
    "typical_p": 1.0, "min_p": 0.0, "top_h": None, "epsilon_cutoff": 0.0, "eta_cutoff": 0.0, "penalty_alpha": 0.0,
    "encoder_repetition_penalty": 1.0, "encoder_no_repeat_ngram_size": 0, "exponential_decay_length_penalty": None,
    "sequence_bias": None, "forced_decoder_ids": None, "force_words_ids": None, "constraints": None,
    "num_beam_groups": 1, "diversity_penalty": 0.0, "num_return_sequences": 1, "guidance_scale": 1.0,
    "renormalize_logits": False, "stop_strings": None, "watermarking_config": None, "dola_layers": None,
    "token_healing": False, "max_time": None,
}  # fmt: skip


def options_from_config(config: Mapping[str, object]) -> dict[str, object]:
    """The generation options that a generation_config.json asks for."""
    options = {key: config[key] for key in SHARED_KEYS if config.get(key) is not None}
    if config.get("do_sample"):
        options.pop("num_beams", None)
        return options | {
            key: default if config.get(key) is None else config[key] for key, default in SAMPLING_DEFAULTS.items()
        }
    searched = config.get("do_sample") is False or options.get("num_beams", 1) != 1
    return options | ({"temperature": 0.0} if searched else {})


def processor_from_config(config: Mapping[str, Any]) -> LogitsProcessor:
    return LogitsProcessor(**{key: value for key, value in config.items() if key in PROCESSOR_KEYS})


def unsupported_settings(
    config: Mapping[str, Any], eos_ids: list[int], context: int, is_seq2seq: bool
) -> dict[str, object]:
    """The settings of a generation_config.json that would change an answer and are ignored here."""
    ignored = {key: config[key] for key, neutral in UNSUPPORTED_KEYS.items() if config.get(key) not in (None, neutral)}
    if config.get("do_sample"):
        ignored |= {"num_beams": config["num_beams"]} if (config.get("num_beams") or 1) != 1 else {}
    elif config.get("do_sample") is None:  # transformers ignores them too, with a warning
        ignored |= {
            key: config[key] for key, default in SAMPLING_DEFAULTS.items() if config.get(key) not in (None, default)
        }
    if config.get("early_stopping") not in (None, True, False):
        ignored["early_stopping"] = config["early_stopping"]
    if config.get("forced_eos_token_id") not in (None, eos_ids, *eos_ids):
        ignored["forced_eos_token_id"] = config["forced_eos_token_id"]
    if not is_seq2seq:  # there, lengths include the prompt
        ignored |= {key: config[key] for key in ("min_length",) if config.get(key)}
        ignored |= {"max_length": config["max_length"]} if (config.get("max_length") or context) < context else {}
    return ignored
