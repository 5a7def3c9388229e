"""Crafted directories in both of TensorBoard's readers: bounded time and memory, and the honest run
beside is quick."""

import functools
import itertools
import pathlib
from collections.abc import Callable

import pytest
from crafted import CRAFTED, make
from reading_cases import write_small_run
from servers import start
from serving import ROUTES, ask, load_test

MOST_MB = 300
"""What a directory may add to the highest resident memory of the server."""
HONEST_SECONDS = 5.0
"""The limit is one second; the machines of continuous integration are slow."""


QUICK = {("stray bytes", "true"), ("linked directories", "false")}
"""Directory and reader; all pairs of them are marked `long`."""


@pytest.fixture(scope="module")
def logdir_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], pathlib.Path]:
    """Makes a crafted directory once, for both readers."""

    @functools.cache
    def logdir(name: str) -> pathlib.Path:
        directory = tmp_path_factory.mktemp("crafted") / "runs"
        make(name, directory)
        return directory

    return logdir


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("name", "load_fast"),
    [
        pytest.param(*pair, marks=[] if pair in QUICK else pytest.mark.long)
        for pair in itertools.product(sorted(CRAFTED), ("true", "false"))
    ],
)
def test_a_crafted_directory_is_bounded(name, load_fast, logdir_of, tmp_path) -> None:
    with start(logdir_of(name), tmp_path, load_fast) as server:
        asked = ask(server)
    assert asked.honest_seconds < HONEST_SECONDS
    assert asked.memory_mb < MOST_MB
    assert asked.damage or name in ("linked directories", "700,000 strings per frame")


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "load_fast", [pytest.param("true", marks=pytest.mark.long), "false"], ids=["fast", "python"]
)
def test_many_clients_get_no_error_and_memory_stays(load_fast: str, tmp_path: pathlib.Path) -> None:
    for name in ("a", "b", "c"):
        write_small_run(tmp_path / "runs" / name, allocator=True)
    with start(tmp_path / "runs", tmp_path, load_fast) as server:
        result = load_test(server, ROUTES, clients=20, requests=20)
    assert result.requests == 400 and result.errors == 0
    assert result.p95_seconds < 5
    assert result.after_mb - result.before_mb < 100
