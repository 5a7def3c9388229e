"""Stored runs that several tests ask about."""

import pathlib

import pytest
import requests_cases

import tb_memplugin
from tb_memplugin.schema import Run

FIXTURES = pathlib.Path(__file__).parents[2] / "fixtures"


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    directory = tmp_path_factory.mktemp("runs")
    requests_cases.write_run(directory / "traced")
    return tb_memplugin.load(directory)["traced"]


@pytest.fixture(scope="session")
def stored() -> Run:
    """A Transformer that was recorded on a CPU with batches of 16."""
    (found,) = tb_memplugin.load(FIXTURES / "batch_sizes" / "cpu" / "Transformer" / "16").values()
    return found


@pytest.fixture(scope="session")
def refit() -> Run:
    return tb_memplugin.load(FIXTURES / "refit")["net"]
