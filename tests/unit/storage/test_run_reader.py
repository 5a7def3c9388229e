"""Runs read from a source, incrementally and on request."""

import dataclasses
import pathlib
import threading
import time
import types
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from cluster_cases import NotingSource
from reading_cases import (
    DEVICE,
    HELD_TENSORS,
    MIB,
    REPLAY,
    equal,
    event_files,
    make_activations,
    make_oom,
    make_samples,
    make_snapshot,
    make_table,
    write_frames,
    write_records,
    write_small_run,
)
from requests_cases import make_table as make_traced_table
from requests_cases import make_traced

from tb_memplugin.errors import NotFoundError
from tb_memplugin.schema import Run
from tb_memplugin.storage import ACTIVATIONS, BASIC, REQUESTS, Reader, RunTags, of_session
from tb_memplugin.storage.files import FileSource
from tb_memplugin.storage.frames import codec, frame_of
from tb_memplugin.storage.write import RunWriter


def read_run(logdir: pathlib.Path, name: str = "exp") -> Run:
    return Reader().run(FileSource(logdir), name, {*BASIC, ACTIVATIONS}).run


def samples_frame(sequence: int, steps: Sequence[int], **changes: Any) -> bytes:
    frame = frame_of("samples", make_samples(steps, [1] * len(steps)), sequence)
    return codec.encode(dataclasses.replace(frame, **changes))


def damaged(frame: bytes) -> bytes:
    return frame[:-1] + bytes([frame[-1] ^ 1])


def test_everything_written_is_read_back(tmp_path: pathlib.Path) -> None:
    # GIVEN the run that write_small_run states
    write_small_run(tmp_path / "exp")
    run = read_run(tmp_path)
    # THEN every step is there once with its peak, and the validation batches after them
    assert run.samples.step.tolist() == [*range(60), 59, 59, 59, 59]
    peaks = [700 * MIB if step == 41 else 200 * MIB + step for step in range(60)]
    assert run.samples.devices[DEVICE].peak_bytes.tolist() == [
        *peaks,
        120 * MIB,
        150 * MIB,
        140 * MIB,
        90 * MIB,
    ]
    # AND tables, snapshots and activations are equal to what was written
    assert equal(
        run.layer_tables,
        (
            make_table(0, unfrozen=False),
            make_table(30, unfrozen=True, reason="model/backbone became trainable"),
        ),
    )
    expected = (
        make_snapshot(3, replay=REPLAY, held_tensors=HELD_TENSORS),
        make_snapshot(41, frozen=0, trainable=4_002_000, activations=600 * MIB),
    )
    assert equal(run.snapshots, expected)
    assert equal(
        run.activations,
        make_activations(
            [0, 1, 2], ["model/backbone", "model/head"], [[100, 10], [300, 20], [200, 30]]
        ),
    )
    assert run.damage == () and run.notes == () and len(run.sessions) == 1


def test_only_changed_tags_are_read_again(tmp_path: pathlib.Path) -> None:
    # GIVEN runs that were read
    write_small_run(tmp_path / "other")
    writer = RunWriter(tmp_path / "exp")
    for step in range(20):
        writer.samples(make_samples([step], [100 - step]))
    writer.flush()
    source, reader = NotingSource(tmp_path), Reader()
    assert len(reader.run(source, "exp").run.samples) == 20
    before = {name: tags.version for name, tags in reader.catalog(source).items()}
    # WHEN one grows by a step
    source.tags.clear()
    writer.samples(make_samples([20], [1]))
    writer.flush()
    # THEN only the newest tag is read, and only its version has changed
    samples = reader.run(source, "exp").run.samples
    assert samples.devices[DEVICE].peak_bytes.tolist() == [*range(100, 80, -1), 1]
    assert [tag.split("/")[0] for tag in source.tags] == ["samples"]
    after = {name: tags.version for name, tags in reader.catalog(source).items()}
    assert before["other"] == after["other"] and before["exp"] != after["exp"]
    # AND nothing is read when nothing changed
    source.tags.clear()
    reader.run(source, "exp")
    assert source.tags == []
    writer.close()


def test_activations_are_read_only_on_request(tmp_path: pathlib.Path) -> None:
    write_small_run(tmp_path / "exp")
    source, reader = NotingSource(tmp_path), Reader()
    assert len(reader.run(source, "exp").run.activations) == 0
    assert not any(tag.startswith("activations") for tag in source.tags)
    assert reader.survey_activations(source, reader.catalog(source)["exp"]) == (2, ())
    assert len(reader.run(source, "exp", {*BASIC, ACTIVATIONS}).run.activations) == 3
    assert len(reader.activation_rows(source, reader.tags(source, "exp"))) == 3


def test_rows_of_activations_are_those_of_the_run(tmp_path: pathlib.Path) -> None:
    # GIVEN a resumed run whose sessions recorded different layers, and a run of one session
    for directory, layers in (
        ("resumed", ("a", "b")),
        ("resumed", ("b", "c")),
        ("single", ("a", "b")),
    ):
        values = np.arange(10).reshape(5, 2)
        parts = (
            make_activations(range(first, first + 5), layers, values + first) for first in (0, 5)
        )
        write_records(tmp_path / directory, *parts)
    source, reader = FileSource(tmp_path), Reader()
    for name in ("resumed", "single"):
        whole = reader.run(source, name, {*BASIC, ACTIVATIONS}).run.activations
        rows = reader.activation_rows(source, reader.tags(source, name))
        # THEN any rows of it are those of the joined table
        assert equal(rows.take(np.arange(len(rows))), whole)
        picked = np.asarray([0, 3, len(rows) - 1])
        assert equal(rows.take(picked).bytes, whole.bytes[picked])
        assert rows.totals.tolist() == np.maximum(whole.bytes, 0).sum(axis=1).tolist()


def test_lost_activations_are_reported_without_reading_columns(tmp_path: pathlib.Path) -> None:
    frames = [
        codec.encode(
            frame_of("activations", make_activations([step], [f"layer_{step}"], [[1]]), step)
        )
        for step in range(4)
    ]
    frames[1] = damaged(frames[1])
    write_frames(
        tmp_path / "exp" / "memory", [("activations/s/0", step, frames[step]) for step in (0, 1, 3)]
    )
    source, reader = FileSource(tmp_path), Reader()
    layers, damage = reader.survey_activations(source, reader.catalog(source)["exp"])
    assert layers == 2 and damage == (
        "run exp/memory, tag activations/s/0, event of step 1: frame is damaged: its checksum "
        "does not match",
        "session s, layer activations: steps 1 to 2 are missing (2 records lost)",
    )


def test_a_small_cache_changes_nothing_but_time(tmp_path: pathlib.Path) -> None:
    for name in "abc":
        write_small_run(tmp_path / name)
    source, readers = FileSource(tmp_path), (Reader(cache_bytes=1), Reader())
    for name in "abcabc":
        assert equal(*(reader.run(source, name, {*BASIC, ACTIVATIONS}).run for reader in readers))


@pytest.mark.parametrize(
    ("frames", "steps", "damage"),
    [
        (
            [
                ("samples/s/0", 10 * at + 9, samples_frame(at, range(10 * at, 10 * at + 10)))
                for at in (0, 2, 5)
            ],
            [*range(10), *range(20, 30), *range(50, 60)],
            [
                "session s, samples: steps 10 to 19 are missing (1 record lost)",
                "session s, samples: steps 30 to 49 are missing (2 records lost)",
            ],
        ),
        # Bytes that were damaged before TensorBoard's reader, which checks nothing, passed them on
        (
            [
                ("samples/s/0", 0, samples_frame(0, [0])),
                ("samples/s/0", 1, damaged(samples_frame(1, [1]))),
                ("samples/s/0", 2, samples_frame(2, [2])),
            ],
            [0, 2],
            [
                "run exp/memory, tag samples/s/0, event of step 1: frame is damaged: its "
                "checksum does not match",
                "session s, samples: step 1 is missing (1 record lost)",
            ],
        ),
        ([("activations/s/0", 0, samples_frame(0, [0]))], [], ["does not belong under this tag"]),
        (
            [("samples/s/0", 6, samples_frame(0, [5], last_step=6))],
            [],
            ["does not hold these steps"],
        ),
        (
            [
                (tag, 0, samples_frame(0, [0]))
                for tag in ("samples/s/0", "samples/s/01", "future/s/0")
            ],
            [0],
            ["2 tags are unknown"],
        ),
    ],
    ids=["missing", "damaged", "another stream", "wrong steps", "unknown tags"],
)
def test_what_is_lost_or_refused_is_reported(
    tmp_path: pathlib.Path,
    frames: list[tuple[str, int, bytes]],
    steps: list[int],
    damage: list[str],
) -> None:
    write_frames(tmp_path / "exp" / "memory", frames)
    run = read_run(tmp_path)
    assert run.samples.step.tolist() == steps and len(run.activations) == 0
    assert [one in told for one, told in zip(damage, run.damage, strict=True)] == [True] * len(
        damage
    )


def test_a_newer_format_is_skipped_with_one_warning(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    # GIVEN frames of a newer format beside those of this one
    newer = bytearray(samples_frame(1, [1]))
    newer[4] = 9
    frames = [
        ("samples/s/0", 0, samples_frame(0, [0])),
        *((f"samples/s/{tag}", 1, bytes(newer)) for tag in (1, 2, 3)),
    ]
    write_frames(tmp_path / "exp" / "memory", frames)
    # WHEN the run is read again and again
    source, reader = FileSource(tmp_path), Reader(cache_bytes=1)
    for _ in range(3):
        run = reader.run(source, "exp").run
        reader.run(source, "exp", {*BASIC, ACTIVATIONS})
    # THEN what is known is shown, and one warning names run and tag
    assert run.samples.step.tolist() == [0]
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "run exp/memory, tag samples/s/1" in warning and "upgrade" in warning
    assert len(run.damage) == 1 and "2 more tags" in run.damage[0]


def test_copied_event_files_count_once_and_a_copied_run_is_a_run_of_its_own(
    tmp_path: pathlib.Path,
) -> None:
    write_small_run(tmp_path / "exp")
    (path,) = event_files(tmp_path)
    for copy in (path.with_name(path.name + ".copy"), tmp_path / "copy" / "memory" / path.name):
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    for name in ("exp", "copy"):
        run = read_run(tmp_path, name)
        assert (len(run.samples), len(run.snapshots), len(run.layer_tables), run.damage) == (
            64,
            2,
            2,
            (),
        )


def test_thousands_of_damaged_tags_are_counted_rather_than_listed(tmp_path: pathlib.Path) -> None:
    write_frames(
        tmp_path / "exp" / "memory", [(f"samples/s/{tag}", 0, b"junk") for tag in range(3000)]
    )
    damage = read_run(tmp_path).damage
    assert len(damage) == 31 and "2970 more" in damage[-1]


def test_many_clients_share_a_listing_and_see_whole_runs(tmp_path: pathlib.Path) -> None:
    # GIVEN a run that grows by ten steps a flush while 50 clients read it
    writer = RunWriter(tmp_path / "exp")
    writer.samples(make_samples(range(10), [100] * 10))
    writer.flush()
    source, reader, barrier = NotingSource(tmp_path), Reader(), threading.Barrier(51)

    def read() -> list[Run]:
        barrier.wait()
        return [reader.run(source, "exp").run for _ in range(5)]

    with ThreadPoolExecutor(50) as pool:
        clients = [pool.submit(read) for _ in range(50)]
        barrier.wait()
        for first in range(10, 200, 10):
            writer.samples(make_samples(range(first, first + 10), [100] * 10))
            writer.flush()
        runs = [run for client in clients for run in client.result(timeout=60)]
    writer.close()
    for run in runs:
        steps = run.samples.step.tolist()
        assert len(steps) % 10 == 0 and steps == list(range(len(steps))) and run.damage == ()
    assert len(runs) == 250 and source.listed <= 250


def write_session(directory: pathlib.Path, failed: bool) -> float:
    """Write a session of nine steps, which end now; return when they ended."""
    now, samples = time.time(), make_samples(range(9), [100] * 9)
    parts = [samples, *(one.requests for one in make_traced().values())]
    timed = [dataclasses.replace(one, wall_time=now - 1e-6 * (9 - one.step)) for one in parts]
    ooms = [dataclasses.replace(make_oom(9), wall_time=now)] * failed
    write_records(directory, make_traced_table(), *timed, *ooms)
    return now


def test_the_session_has_the_steps_that_a_later_one_repeats(tmp_path: pathlib.Path) -> None:
    directory = tmp_path / "run"
    failed_at = write_session(directory, failed=True)
    write_session(directory, failed=False)
    reader, source = Reader(), FileSource(tmp_path)
    loaded, tags = reader.run(source, "run", {*BASIC, REQUESTS}), reader.tags(source, "run")
    # what the run shows is of the second one
    assert min(one.wall_time for one in loaded.run.requests) > failed_at
    (oom,) = loaded.run.ooms
    run, own = reader.failed_session(source, tags, loaded, oom)
    assert own.device == DEVICE and own.wall_time == oom.wall_time
    assert [one.step for one in run.requests] == list(make_traced())
    assert max(one.wall_time for one in run.requests) <= failed_at
    with pytest.raises(NotFoundError, match="no session of the failed allocation"):
        reader.failed_session(source, tags, loaded, dataclasses.replace(oom, identifier="other"))


SESSIONS = ("0000000000001-aaaaaaaa", "0000000000002-bbbbbbbb")
LISTING = {"run/memory": {f"samples/{session}/0": mark for mark, session in enumerate(SESSIONS)}}


def listed(listing: Any, damage: Any = None) -> RunTags:
    source: Any = types.SimpleNamespace(listing=lambda: listing, damage=lambda: damage or {})
    return Reader().catalog(source)["run"]


def test_a_session_has_its_tags_alone_and_an_unknown_one_lists_those_that_exist() -> None:
    tags = listed(LISTING)
    assert [entry[3] for entry in of_session(tags, SESSIONS[1]).tags] == [1]
    with pytest.raises(
        NotFoundError, match=f"run run has no session 'c'; available: {', '.join(SESSIONS)}$"
    ):
        of_session(tags, "c")
    with pytest.raises(NotFoundError, match=r"available: none$"):
        of_session(listed({}, {"run/memory": ["not readable"]}), "c")
