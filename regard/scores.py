"""Scores: BLEU and chrF by sacreBLEU, with the signature that says how they were counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF


class Score(NamedTuple):
    value: float
    signature: str


def bleu(answers: Sequence[str], wanted: Sequence[str], lowercase: bool = False, tokenize: str = "13a") -> Score:
    metric = BLEU(lowercase=lowercase, tokenize=tokenize, force=True)
    return Score(metric.corpus_score(list(answers), [list(wanted)]).score, str(metric.get_signature()))


def chrf(answers: Sequence[str], wanted: Sequence[str]) -> Score:
    metric = CHRF()
    return Score(metric.corpus_score(list(answers), [list(wanted)]).score, str(metric.get_signature()))
