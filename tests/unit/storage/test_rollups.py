"""Roll-ups of workers: read without their histories, and only those that changed."""

import pathlib

import pytest
from cluster_cases import Fault, NotingSource, name_of, write_cluster
from reading_cases import MIB, equal, event_files, make_samples
from rollup_cases import rollups_of
from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
from tensorboard.context import RequestContext

from tb_memplugin.analysis import summarize_session
from tb_memplugin.storage import Reader, RollupReader
from tb_memplugin.storage.files import FileSource, ProviderSource, Source
from tb_memplugin.storage.write import RunWriter


def test_roll_ups_are_read_without_the_histories(tmp_path: pathlib.Path) -> None:
    write_cluster(tmp_path / "run", 5, 2, 60, [], flush_steps=20)
    source, rollups = NotingSource(tmp_path), RollupReader(Reader())
    workers = rollups.workers(source, "run")
    read = rollups.read(source, workers)
    assert sorted(read) == sorted(name_of(at) for at in range(5))
    for worker, of in read.items():
        ((_, _, expected),) = rollups_of(tmp_path, worker)
        assert of.missing is None and equal(of.sessions, (expected,)) and expected.last_step == 59
    assert rollups.workers(source, "other").of_worker == {} and source.asked == set() and source.listed == 0


def test_only_workers_that_recorded_since_are_read_again(tmp_path: pathlib.Path) -> None:
    write_cluster(tmp_path / "run", 4, 1, 20, [])
    source, rollups = NotingSource(tmp_path), RollupReader(Reader())
    workers = rollups.workers(source, "run")
    rollups.read(source, workers)
    assert len(source.ends) == 4
    assert rollups.workers(source, "run").version == workers.version
    # WHEN one is restarted
    writer = RunWriter(tmp_path / "run", worker=name_of(2), summarize=summarize_session)
    writer.samples(make_samples([20, 21], [MIB, MIB], start=2e9))
    writer.end()
    writer.close()
    changed = rollups.workers(source, "run")
    read = rollups.read(source, changed)
    assert changed.version != workers.version
    assert source.ends[4:] == [f"run/memory/{name_of(2)}"]
    assert [rollup.last_step for rollup in read[name_of(2)].sessions] == [19, 21]


def test_a_worker_with_a_damaged_roll_up_says_so(tmp_path: pathlib.Path) -> None:
    write_cluster(tmp_path / "run", 2, 1, 20, [Fault(1, stops=20)], flush_steps=20)
    (path,) = event_files(tmp_path / "run" / "memory" / name_of(0))
    data = bytearray(path.read_bytes())
    data[data.rindex(b"rollups/") + 60] ^= 1
    path.write_bytes(data)
    rollups, source = RollupReader(Reader()), FileSource(tmp_path)
    read = rollups.read(source, rollups.workers(source, "run"))
    assert read[name_of(0)].missing == "its newest roll-up is damaged" and not read[name_of(0)].sessions
    # AND so does one that was killed before its first
    assert read[name_of(1)].missing == "it has no roll-up"


def test_one_worker_is_indexed_alone_and_the_whole_listing_is_right_afterwards(tmp_path: pathlib.Path) -> None:
    write_cluster(tmp_path / "run", 3, 1, 20, [])
    source, reader = FileSource(tmp_path), Reader()
    rollups = RollupReader(reader)
    whole = FileSource(tmp_path).listing()
    tags = rollups.tags(source, rollups.workers(source, "run"), name_of(1))
    assert {entry[0] for entry in tags.tags} == {name_of(1)}
    assert {str(entry[2]) for entry in tags.tags} == set(whole[f"run/memory/{name_of(1)}"])
    assert len(reader.load(source, tags).run.samples) == 20
    assert source.listing() == whole
    # WHEN it goes on THEN the index of all follows, though it was read alone first
    writer = RunWriter(tmp_path / "run", worker=name_of(1))
    writer.samples(make_samples([20], [MIB], start=2e9))
    writer.close()
    rollups.tags(source, rollups.workers(source, "run"), name_of(1))
    assert source.listing() == FileSource(tmp_path).listing() != whole


@pytest.fixture(params=["files", "provider"])
def source(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Source:
    """The files of a directory, or TensorBoard's data provider over the same files."""
    faults = [Fault(2, restarts=30), Fault(1, stops=30)]
    write_cluster(tmp_path / "run", 3, 2, 60, faults, flush_steps=10)
    if request.param == "files":
        return FileSource(tmp_path)
    multiplexer = plugin_event_multiplexer.EventMultiplexer(tensor_size_guidance={"tb_memplugin": 10})
    multiplexer.AddRunsFromDirectory(str(tmp_path))
    multiplexer.Reload()
    return ProviderSource(data_provider.MultiplexerDataProvider(multiplexer, str(tmp_path)), RequestContext(), "")


def test_files_and_tensorboards_reader_give_the_same_roll_ups(source: Source) -> None:
    rollups = RollupReader(Reader())
    read = rollups.read(source, rollups.workers(source, "run"))
    assert {worker: [rollup.last_step for rollup in of.sessions] for worker, of in read.items()} == {
        name_of(0): [59],
        name_of(1): [9],
        name_of(2): [9, 59],
    }
    assert all(of.missing is None for of in read.values())
    assert [one.ended for one in read[name_of(2)].sessions] == [False, True]
    tags = rollups.tags(source, rollups.workers(source, "run"), name_of(2))
    assert len({entry[2].session for entry in tags.tags}) == 2
