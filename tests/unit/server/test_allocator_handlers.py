"""Maps, timelines and failures by their place in a run; what is not there is said with what is."""

import pathlib

import pytest
from reading_cases import DEVICE, MIB, make_map, make_timeline, write_small_run

from tb_memplugin.errors import NotFoundError
from tb_memplugin.schema import MISSING
from tb_memplugin.server.allocator_handlers import AllocatorHandlers, MapPlace
from tb_memplugin.storage.files.file_source import FileSource
from tb_memplugin.storage.run_reader import Reader


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> FileSource:
    logdir: pathlib.Path = tmp_path_factory.mktemp("logs")
    write_small_run(logdir / "exp", allocator=True)
    write_small_run(logdir / "plain")
    return FileSource(logdir)


@pytest.fixture(scope="module")
def handlers() -> AllocatorHandlers:
    return AllocatorHandlers(Reader())


def test_a_map_is_found_by_device_step_and_phase(source: FileSource, handlers: AllocatorHandlers) -> None:
    written = make_map(3)
    answer = handlers.map(source, "exp", MapPlace(None, DEVICE, 3, "train"))
    assert (answer.fields["step"], answer.fields["device"], answer.fields["chunks"]) == (3, DEVICE, len(written))
    assert answer.columns["bytes"].tolist() == written.bytes.tolist()
    assert answer.columns["owner"].tolist() == [0, MISSING, MISSING, 1, MISSING]
    assert [region["bytes"] for region in answer.fields["regions"]] == written.region_bytes.tolist()
    assert sum(region["bytes"] for region in answer.fields["regions"]) == written.pool_bytes == 16 * MIB


@pytest.mark.parametrize(
    "place",
    [MapPlace(None, DEVICE, 4, "train"), MapPlace(None, DEVICE, 3, "validation"), MapPlace(None, "GPU:7", 3, "train")],
)
def test_a_map_that_is_not_there_is_said(source: FileSource, handlers: AllocatorHandlers, place: MapPlace) -> None:
    with pytest.raises(NotFoundError, match=f"no memory map of step {place.step} in phase {place.phase}"):
        handlers.map(source, "exp", place)


def test_the_map_of_a_failed_allocation_is_found_by_its_index(source: FileSource, handlers: AllocatorHandlers) -> None:
    answer = handlers.map(source, "exp", MapPlace(0))
    assert answer.fields["capacity_bytes"] == 16 * MIB and answer.fields["step"] == 59
    assert [oom["step"] for oom in handlers.oom(source, "exp")["ooms"]] == [59]
    with pytest.raises(NotFoundError, match="no memory map of failed allocation 1; it has 1 of them"):
        handlers.map(source, "exp", MapPlace(1))
    with pytest.raises(NotFoundError, match="no memory map of failed allocation 0; it has 0 of them"):
        handlers.map(source, "plain", MapPlace(0))


def test_lists_are_of_one_device_or_of_all(source: FileSource, handlers: AllocatorHandlers) -> None:
    for device, count in ((None, 1), (DEVICE, 1), ("GPU:7", 0)):
        assert len(handlers.maps(source, "exp", device)["maps"]) == count
        assert len(handlers.timelines(source, "exp", device)["timelines"]) == count
    (described,) = handlers.maps(source, "exp", None)["maps"]
    assert described["regions"] == [4 * MIB, 12 * MIB] and "owners" not in described


def test_a_timeline_has_its_allocations_and_unknown_places_are_missing(source, handlers) -> None:
    written = make_timeline(3)
    answer = handlers.timeline(source, "exp", DEVICE, 3, "train")
    assert answer.columns["bytes"].tolist() == written.bytes.tolist()
    for name in ("op", "address", "shape", "line"):
        recorded = getattr(written, name).tolist()
        assert answer.columns[name].tolist() == [MISSING if value < 0 else value for value in recorded]
    assert answer.fields["allocations"] == len(written) and answer.fields["moments"] == 5
    with pytest.raises(NotFoundError, match="no timeline of step 9 in phase train"):
        handlers.timeline(source, "exp", DEVICE, 9, "train")


def test_the_division_of_a_device_is_of_a_snapshot(source: FileSource, handlers: AllocatorHandlers) -> None:
    answer = handlers.device_memory(source, "exp", DEVICE, 3)
    assert answer["step"] == 3 and answer["capacity_bytes"] == 2048 * MIB
    assert "snapshot" not in answer
    with pytest.raises(NotFoundError, match=f"no snapshot of device 'GPU:7'; available: {DEVICE}"):
        handlers.device_memory(source, "exp", "GPU:7", None)
