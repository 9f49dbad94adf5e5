"""The quick run of each experiment, cached for all tests of the laboratory."""

from functools import cache

import pytest

from regard.lab import experiment
from regard.lab.result import no_progress


@pytest.fixture(scope="session")
def quick():
    """The result of an experiment with QUICK options."""

    @cache
    def run_quick(name):
        return experiment(name).run(experiment(name).QUICK, no_progress)

    return run_quick
