"""What the tests of the laboratory share: the quick run of each experiment, made once."""

from functools import cache

import pytest

from regard.lab import experiment
from regard.lab.result import quietly


@pytest.fixture(scope="session")
def quick():
    """What an experiment finds with the knobs for tests."""

    @cache
    def found(name):
        return experiment(name).run(experiment(name).QUICK, quietly)

    return found
