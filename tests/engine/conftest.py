"""Fixtures of small models, of every family that the engine supports."""

import sys
from pathlib import Path

import pytest

from regard.parts.heads import Model

sys.path.append(str(Path(__file__).parent))
from small_models import DECODERS, SEQ2SEQ, build_model  # noqa: E402


@pytest.fixture(params=DECODERS)
def decoder(request: pytest.FixtureRequest) -> Model:
    return build_model(request.param)


@pytest.fixture(params=SEQ2SEQ)
def seq2seq(request: pytest.FixtureRequest) -> Model:
    return build_model(request.param)


@pytest.fixture
def gpt() -> Model:
    return build_model("gpt-wide")
