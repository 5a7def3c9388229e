"""Answers compared with the run: series, maps, timelines and failures by their place; what is not
there is said with what is, and what is computed from every step is kept."""

import dataclasses
import pathlib
from typing import Any

import numpy as np
import pytest
from handlers import Handlers
from reading_cases import (
    DEVICE,
    MIB,
    START,
    make_map,
    make_samples,
    make_snapshot,
    make_timeline,
    write_records,
    write_small_run,
)

from tb_memplugin import load
from tb_memplugin.analysis import layer_changes
from tb_memplugin.errors import NotFoundError
from tb_memplugin.export.text import summarize_run
from tb_memplugin.schema import MISSING
from tb_memplugin.server import Stretch
from tb_memplugin.storage import Reader
from tb_memplugin.storage.files import FileSource


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> FileSource:
    logdir: pathlib.Path = tmp_path_factory.mktemp("logs")
    write_small_run(logdir / "exp", allocator=True)
    write_small_run(logdir / "plain")
    return FileSource(logdir)


@pytest.fixture(scope="module")
def handlers() -> Handlers:
    return Handlers(Reader())


def map_of(handlers: Handlers, source: FileSource, run: str, **place: object) -> Any:
    given = {name: str(value) for name, value in place.items()}
    return handlers.ask("map", source, {"run": run, **given})


def test_a_map_is_found_by_device_step_and_phase(source: FileSource, handlers: Handlers) -> None:
    written = make_map(3)
    answer = map_of(handlers, source, "exp", device=DEVICE, step=3)
    assert (answer.fields["step"], answer.fields["device"], answer.fields["chunks"]) == (
        3,
        DEVICE,
        len(written),
    )
    for place in (("GPU:7", 3, "train"), (DEVICE, 4, "train"), (DEVICE, 3, "validation")):
        with pytest.raises(
            NotFoundError, match=f"no memory map of step {place[1]} in phase {place[2]}"
        ):
            map_of(handlers, source, "exp", device=place[0], step=place[1], phase=place[2])
    assert answer.columns["bytes"].tolist() == written.bytes.tolist()
    assert answer.columns["owner"].tolist() == [0, MISSING, MISSING, 1, MISSING]
    assert [region["bytes"] for region in answer.fields["regions"]] == written.region_bytes.tolist()
    assert (
        sum(region["bytes"] for region in answer.fields["regions"])
        == written.pool_bytes
        == 16 * MIB
    )


def test_the_map_of_a_failed_allocation_is_found_by_its_index(
    source: FileSource, handlers: Handlers
) -> None:
    answer = map_of(handlers, source, "exp", oom=0)
    assert answer.fields["capacity_bytes"] == 16 * MIB and answer.fields["step"] == 59
    assert [oom["step"] for oom in handlers.oom(source, "exp")["ooms"]] == [59]
    with pytest.raises(
        NotFoundError, match="no memory map of failed allocation 1; it has 1 of them"
    ):
        map_of(handlers, source, "exp", oom=1)
    with pytest.raises(
        NotFoundError, match="no memory map of failed allocation 0; it has 0 of them"
    ):
        map_of(handlers, source, "plain", oom=0)


def test_lists_are_of_one_device_or_of_all(source: FileSource, handlers: Handlers) -> None:
    for device, count in ((None, 1), (DEVICE, 1), ("GPU:7", 0)):
        assert len(handlers.maps(source, "exp", device)["maps"]) == count
        assert len(handlers.timelines(source, "exp", device)["timelines"]) == count


def test_a_timeline_has_its_allocations_and_unknown_places_are_missing(source, handlers) -> None:
    written = make_timeline(3)
    answer = handlers.timeline(source, "exp", DEVICE, 3, "train")
    assert answer.columns["bytes"].tolist() == written.bytes.tolist()
    for name in ("op", "address", "shape", "line"):
        recorded = getattr(written, name).tolist()
        assert answer.columns[name].tolist() == [
            MISSING if value < 0 else value for value in recorded
        ]
    assert answer.fields["allocations"] == len(written) and answer.fields["moments"] == 5
    with pytest.raises(NotFoundError, match="no timeline of step 9 in phase train"):
        handlers.timeline(source, "exp", DEVICE, 9, "train")


def test_the_division_of_a_device_is_of_a_snapshot(source: FileSource, handlers: Handlers) -> None:
    answer = handlers.device_memory(source, "exp", DEVICE, 3)
    assert answer["step"] == 3 and answer["capacity_bytes"] == 2048 * MIB
    assert "snapshot" not in answer
    with pytest.raises(NotFoundError, match=f"no snapshot of device 'GPU:7'; available: {DEVICE}"):
        handlers.device_memory(source, "exp", "GPU:7", None)


def test_a_run_with_a_snapshot_and_no_peaks_is_answered(tmp_path: pathlib.Path) -> None:
    write_records(
        tmp_path / "run",
        make_samples(range(20), [MISSING] * 20, in_use=[MIB] * 20),
        make_snapshot(3),
    )
    given = {"run": "run", "device": DEVICE, "phase": "train"}
    overview, pool, answers = (
        Handlers(Reader()).ask(name, FileSource(tmp_path), given)
        for name in ("overview", "pool", "answers")
    )
    expected = [MISSING] * 3 + [make_snapshot(3).in_use_bytes] + [MISSING] * 16
    assert (
        overview.columns["peak_bytes"].tolist() == pool.columns["peak_bytes"].tolist() == expected
    )
    assert answers["answers"]
    assert "104 MiB of 2.0 GiB at peak" in summarize_run(load(tmp_path)["run"])


def test_host_memory_that_was_never_measured_has_no_summary(tmp_path: pathlib.Path) -> None:
    samples = make_samples(range(20), [MIB] * 20)
    write_records(
        tmp_path / "run", dataclasses.replace(samples, host_resident_bytes=np.full(20, MISSING))
    )
    answer = Handlers(Reader()).host_memory(
        FileSource(tmp_path), "run", Stretch(DEVICE, "train", None, None, 500)
    )
    assert answer.fields["summary"] is None and {
        len(column) for column in answer.columns.values()
    } == {0}


def test_the_changes_of_the_layer_table_are_computed_once_for_each_version(
    tmp_path, monkeypatch
) -> None:
    computed: list[int] = []
    real = layer_changes
    monkeypatch.setattr(
        "tb_memplugin.server.series.layer_changes",
        lambda *given: computed.append(1) or real(*given),
    )
    write_small_run(tmp_path / "run")
    of, source = Handlers(Reader()), FileSource(tmp_path)

    def changes(
        first: int | None = None, last: int | None = None, session: str | None = None
    ) -> Any:
        stretch = Stretch(DEVICE, "train", first, last, 100, session)
        return of.overview(source, "run", stretch).fields["changes"]

    whole = changes()
    assert [change["step"] for change in whole] == [0, 30]
    assert whole[1]["peak_before_bytes"] < whole[1]["peak_after_bytes"]
    assert changes(10, 20) == changes(35, 50) == whole
    assert len(computed) == 1
    # WHEN a second session is added, they are computed again, and once for the session alone
    write_small_run(tmp_path / "run", start=START + 1000)
    changes()
    changes(10, 20)
    assert len(computed) == 2
    session = of.overview(source, "run", Stretch(DEVICE, "train", None, None, 100)).fields[
        "sessions"
    ][0]["session"]
    assert changes(session=session) == changes(5, 9, session) == whole and len(computed) == 3
