"""Which size of a language model suits the data and the computation.

loss is least for a number of FLOPs C at D = 20 N tokens for N parameters               Hoffmann et al. 2022
C = 6 N D, therefore N = √(C / 120)
up to 4 epochs over the same data are nearly as good as new data                        Muennighoff et al. 2023
"""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple

TOKENS_PER_PARAMETER = 20
GOOD_EPOCHS = 4


class ScalingAdvice(NamedTuple):
    tokens_per_parameter: float  # of the run
    epochs: float
    size_for_data: float  # parameters for which 4 epochs are as many tokens as is optimal
    size_for_flops: float  # parameters for which the FLOPs of the run are used best


def scaling_advice(parameters: int, flops: float, tokens: float, corpus_tokens: int) -> ScalingAdvice:
    return ScalingAdvice(
        tokens / parameters,
        tokens / corpus_tokens,
        GOOD_EPOCHS * corpus_tokens / TOKENS_PER_PARAMETER,
        sqrt(flops / (6 * TOKENS_PER_PARAMETER)),
    )
