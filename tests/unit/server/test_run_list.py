"""The list of runs: one that takes long delays no other by more than the patience; roll-ups say
what histories say."""

import concurrent.futures
import dataclasses
import pathlib
import threading
from collections import Counter
from typing import Any

import pytest
from cluster_cases import Fault, write_cluster
from handlers import Handlers
from reading_cases import make_samples

from tb_memplugin import load
from tb_memplugin.errors import NotFoundError
from tb_memplugin.server.answers import RunInfo
from tb_memplugin.server.run_list import RunList, being_read
from tb_memplugin.storage import Reader, RunTags
from tb_memplugin.storage.files import FileSource, SourceError
from tb_memplugin.storage.write import RunWriter


def catalog(**versions: str) -> dict[str, RunTags]:
    return {name: RunTags(name, version, (), ()) for name, version in versions.items()}


def described(tags: RunTags) -> RunInfo:
    return dataclasses.replace(being_read(tags), version=tags.version, steps=7)


@pytest.fixture
def errors(monkeypatch: pytest.MonkeyPatch) -> dict[str, Exception]:
    """Runs that cannot be described; the others have 7 steps."""
    found: dict[str, Exception] = {}

    def describe(lookup: Any, tags: RunTags) -> RunInfo:
        if tags.name in found:
            raise found[tags.name]
        return described(tags)

    monkeypatch.setattr("tb_memplugin.server.run_list.describe", describe)
    return found


LOOKUP: Any = None
"""Not asked for anything."""


@pytest.mark.parametrize("patience_seconds", [None, 5.0])
def test_a_run_that_cannot_be_described_hides_no_other(errors, patience_seconds) -> None:
    errors["bad"] = OverflowError("a fault of this run")
    listed = RunList(patience_seconds).facts(LOOKUP, catalog(a="1", bad="1", z="1"))
    assert [run.steps for run in listed] == [7, 0, 7]
    assert listed[1].damage == ["run bad could not be read: OverflowError"]
    assert listed[1].version == "1"


class Patience:
    """In place of `concurrent.futures.wait`: waits for all but the `held` last futures however long
    that takes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.held = 0
        self.timeouts: list[float | None] = []
        monkeypatch.setattr("tb_memplugin.server.run_list.wait", self._wait)

    def _wait(self, pending: Any, timeout: float | None, return_when: str) -> Any:
        self.timeouts.append(timeout)
        return concurrent.futures.wait(
            pending, None if len(pending) > self.held else 0, return_when
        )


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> Patience:
    return Patience(monkeypatch)


def test_a_slow_run_is_named_and_the_others_are_there_at_once(patience, monkeypatch) -> None:
    # GIVEN a run that takes long among others
    release, read = threading.Event(), []

    def describe(lookup: Any, tags: RunTags) -> RunInfo:
        read.append(tags.name)
        if tags.name == "slow":
            release.wait()
        return described(tags)

    monkeypatch.setattr("tb_memplugin.server.run_list.describe", describe)
    runs = RunList(patience_seconds=0.2)
    patience.held = 1
    first = runs.facts(LOOKUP, catalog(a="1", slow="1", z="1"))
    assert [run.steps for run in first] == [7, 0, 7]
    assert first[1].status == "reading"
    # The first one is waited for, then each of the others for the patience.
    first_wait, *others = patience.timeouts
    assert first_wait is None and all(timeout is not None and timeout <= 0.2 for timeout in others)
    # WHEN it has been read, it is there; nothing was read twice
    release.set()
    patience.held = 0
    assert runs.facts(LOOKUP, catalog(a="1", slow="1", z="1"))[1].steps == 7
    assert sorted(read) == ["a", "slow", "z"]


def test_a_known_run_keeps_its_figures_while_it_is_read_again_after_the_reader_forgot_it(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, patience: Patience
) -> None:
    # GIVEN two runs that the list knows, and a reader whose cache keeps only the newest of anything
    writers = {}
    for name in ("a", "b"):
        writers[name] = RunWriter(tmp_path / name)
        writers[name].samples(make_samples(range(5), [100] * 5))
        writers[name].flush()
    source, reader = FileSource(tmp_path), Reader(cache_bytes=1)
    handlers = Handlers(reader, patience_seconds=0.2)
    known = handlers.runs(source)["runs"]
    assert [run["steps"] for run in known] == [5, 5]
    release = threading.Event()
    original = Reader.load

    def load(self: Reader, source: Any, tags: RunTags, *args: Any, **kwargs: Any) -> Any:
        if tags.name == "a":
            release.wait()
        return original(self, source, tags, *args, **kwargs)

    monkeypatch.setattr(Reader, "load", load)
    writers["a"].samples(make_samples(range(5, 7), [100] * 2))
    writers["a"].close()
    # THEN every poll has the figures known before: never none, and never that it is being read
    patience.held = 1
    for _ in range(3):
        assert handlers.runs(source)["runs"] == known
    release.set()
    patience.held = 0
    assert handlers.runs(source)["runs"][0]["steps"] == 7


@pytest.mark.parametrize("patience_seconds", [None, 5.0])
@pytest.mark.parametrize(
    "error", [SourceError("no such file"), FileNotFoundError("no such file"), NotFoundError("b")]
)
def test_a_run_that_vanishes_before_it_is_read_hides_no_other(
    errors: dict[str, Exception], patience_seconds: float | None, error: Exception
) -> None:
    errors["b"] = error
    runs = RunList(patience_seconds)
    first = runs.facts(LOOKUP, catalog(a="1", b="1", c="1"))
    assert [run.steps for run in first] == [7, 0, 7] and first[1].status == "unknown"
    assert first[1].damage == [f"run b cannot be read now: {error}"] and first[1].version != "1"
    errors.clear()
    assert [run.steps for run in runs.facts(LOOKUP, catalog(a="1", b="1", c="1"))] == [7, 7, 7]
    errors["b"] = error
    assert [run.steps for run in runs.facts(LOOKUP, catalog(a="1", b="2", c="1"))] == [7, 7, 7]


@pytest.mark.parametrize("patience_seconds", [None, 0.1])
def test_errors_of_all_runs_pass(errors, patience_seconds: float | None) -> None:
    errors |= dict.fromkeys("ab", OSError("gone"))
    with pytest.raises(OSError, match="gone"):
        RunList(patience_seconds).facts(LOOKUP, catalog(a="1", b="1"))


def listed(directory: pathlib.Path) -> dict[str, Any]:
    (run,) = Handlers(Reader()).runs(FileSource(directory))["runs"]
    return run


@pytest.mark.parametrize(
    "faults",
    [[], [Fault(2, oom=90), Fault(3, leak_mib=600)], [Fault(1, restarts=60), Fault(4, stops=20)]],
)
def test_the_key_figures_are_those_of_the_histories(tmp_path, monkeypatch, faults) -> None:
    write_cluster(tmp_path / "run", 8, 2, 120, faults, flush_steps=25)
    whole = listed(tmp_path)
    monkeypatch.setattr("tb_memplugin.server.run_list.MANY_WORKERS", 4)
    told = listed(tmp_path)
    differ = {name for name in whole if told[name] != whole[name]}
    # Only the sentences on growth are shorter, and roll-ups have no breakdown of a failure and do
    # not know whether layers are frozen.
    assert differ <= {"findings", "largest_at_failure", "frozen"}
    assert told["largest_at_failure"] is None and told["frozen"] is None
    assert whole["frozen"] == any(
        layer.weight_bytes and not layer.trainable
        for table in load(tmp_path)["run"].layer_tables
        for layer in table.layers
    )
    assert len(told["findings"]) == (1 if any(fault.leak_mib for fault in faults) else 0)
    assert bool(whole["findings"]) == bool(told["findings"])


def test_a_failed_run_names_the_layer_that_held_most(tmp_path: pathlib.Path) -> None:
    write_cluster(tmp_path / "run", 2, 1, 60, [Fault(1, oom=30)])
    run = load(tmp_path)["run"]
    (oom,) = run.ooms
    sums: Counter[str] = Counter()
    for row in oom.ledger:
        sums.update({row.layer: row.bytes} if row.layer else {})
    ((layer, size),) = sums.most_common(1)
    told = listed(tmp_path)["largest_at_failure"]
    assert (told["layer"], told["bytes"], told["at_failure"]) == (layer, size, True)
    assert told["share"] == size / oom.in_use_bytes and layer.endswith(told["name"])
    # AND it is what the run's own answers say.
    answers = Handlers(Reader()).answers(FileSource(tmp_path), "run", oom.device, "train")
    assert answers["largest_layer"] == told
