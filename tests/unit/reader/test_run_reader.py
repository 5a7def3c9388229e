"""The reader on real event files: round trips, reported losses, and incremental reads."""

import pathlib
import threading
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pytest
from reading_cases import (
    DEVICE,
    HELD_TENSORS,
    MIB,
    REPLAY,
    equal,
    event_files,
    make_activations,
    make_samples,
    make_snapshot,
    make_table,
    write_frames,
    write_small_run,
)

from tb_memplugin.errors import NotFoundError
from tb_memplugin.events.frames import codec
from tb_memplugin.events.frames.record_frames import frame_of
from tb_memplugin.events.run_writer import RunWriter
from tb_memplugin.model import Run
from tb_memplugin.reader import run_reader as reader_module
from tb_memplugin.reader.decode.streams import ACTIVATIONS, BASIC
from tb_memplugin.reader.files.file_source import FileSource
from tb_memplugin.reader.files.source import Listing, TagContent
from tb_memplugin.reader.run_reader import Reader
from tb_memplugin.reader.sessions import MAX_SENTENCES


class CountingSource(FileSource):
    """Counts listings and the tags that are read."""

    def __init__(self, logdir: pathlib.Path) -> None:
        super().__init__(logdir)
        self.listings = 0
        self.tags: list[str] = []

    def listing(self) -> Listing:
        self.listings += 1
        return super().listing()

    def read(self, wanted: Mapping[str, Sequence[str]]) -> Iterator[TagContent]:
        self.tags.extend(tag for tags in wanted.values() for tag in tags)
        return super().read(wanted)


def read_run(logdir: pathlib.Path, name: str = "exp") -> Run:
    return Reader().run(FileSource(logdir), name, {*BASIC, ACTIVATIONS}).run


def samples_frame(sequence: int, steps: Sequence[int], peaks: Sequence[int]) -> bytes:
    return codec.encode(frame_of("samples", make_samples(steps, peaks), sequence))


def test_everything_written_is_read_back(tmp_path: pathlib.Path) -> None:
    # GIVEN the run that write_small_run states
    write_small_run(tmp_path / "exp")
    run = read_run(tmp_path)
    # THEN every step is there once with its peak, and the validation batches after them
    assert run.samples.step.tolist() == [*range(60), 59, 59, 59, 59]
    peaks = [700 * MIB if step == 41 else 200 * MIB + step for step in range(60)]
    assert run.samples.devices[DEVICE].peak_bytes.tolist() == [*peaks, 120 * MIB, 150 * MIB, 140 * MIB, 90 * MIB]
    # AND tables, snapshots and activations are equal to what was written
    assert equal(
        run.layer_tables,
        (make_table(0, unfrozen=False), make_table(30, unfrozen=True, reason="model/backbone became trainable")),
    )
    expected = (
        make_snapshot(3, replay=REPLAY, held_tensors=HELD_TENSORS),
        make_snapshot(41, frozen=0, trainable=4_002_000, activations=600 * MIB),
    )
    assert equal(run.snapshots, expected)
    assert equal(
        run.activations,
        make_activations([0, 1, 2], ["model/backbone", "model/head"], [[100, 10], [300, 20], [200, 30]]),
    )
    assert run.damage == () and run.notes == () and len(run.sessions) == 1


def test_only_changed_tags_are_read_again(tmp_path: pathlib.Path) -> None:
    # GIVEN a run that was read
    writer = RunWriter(tmp_path / "exp")
    for step in range(20):
        writer.samples(make_samples([step], [100 - step]))
    writer.flush()
    source, reader = CountingSource(tmp_path), Reader()
    assert len(reader.run(source, "exp").run.samples) == 20
    # WHEN it grows by a step
    source.tags.clear()
    writer.samples(make_samples([20], [1]))
    writer.flush()
    # THEN only the newest tag is read
    assert len(reader.run(source, "exp").run.samples) == 21
    assert [tag.split("/")[0] for tag in source.tags] == ["samples"]
    # AND nothing is read when nothing changed
    source.tags.clear()
    reader.run(source, "exp")
    assert source.tags == []
    writer.close()


def test_the_version_changes_with_the_run_and_only_then(tmp_path: pathlib.Path) -> None:
    write_small_run(tmp_path / "a")
    writer = RunWriter(tmp_path / "b")
    writer.samples(make_samples([0], [1]))
    writer.flush()
    source, reader = FileSource(tmp_path), Reader()
    before = {name: tags.version for name, tags in reader.catalog(source).items()}
    writer.samples(make_samples([1], [1]))
    writer.close()
    after = {name: tags.version for name, tags in reader.catalog(source).items()}
    assert before["a"] == after["a"] and before["b"] != after["b"]


def test_activations_are_read_only_on_request(tmp_path: pathlib.Path) -> None:
    write_small_run(tmp_path / "exp")
    source, reader = CountingSource(tmp_path), Reader()
    assert len(reader.run(source, "exp").run.activations) == 0
    assert not any(tag.startswith("activations") for tag in source.tags)
    assert reader.survey_activations(source, reader.catalog(source)["exp"]) == (2, ())
    assert len(reader.run(source, "exp", {*BASIC, ACTIVATIONS}).run.activations) == 3
    assert len(reader.activation_rows(source, "exp")) == 3


def test_rows_of_activations_are_those_of_the_run(tmp_path: pathlib.Path) -> None:
    # GIVEN a resumed run whose sessions recorded different layers, and a run of one session
    for directory, layers in (("resumed", ("a", "b")), ("resumed", ("b", "c")), ("single", ("a", "b"))):
        writer = RunWriter(tmp_path / directory)
        for first in (0, 5):
            values = np.arange(10).reshape(5, 2) + first
            writer.activations(make_activations(range(first, first + 5), layers, values))
        writer.close()
    source, reader = FileSource(tmp_path), Reader()
    for name in ("resumed", "single"):
        whole = reader.run(source, name, {*BASIC, ACTIVATIONS}).run.activations
        rows = reader.activation_rows(source, name)
        # THEN any rows of it are those of the joined table
        assert equal(rows.take(np.arange(len(rows))), whole)
        picked = np.asarray([0, 3, len(rows) - 1])
        assert equal(rows.take(picked).bytes, whole.bytes[picked])
        assert rows.totals.tolist() == np.maximum(whole.bytes, 0).sum(axis=1).tolist()


def test_lost_activations_are_reported_without_reading_columns(tmp_path: pathlib.Path) -> None:
    frames = [
        codec.encode(frame_of("activations", make_activations([step], [f"layer_{step}"], [[1]]), step))
        for step in range(4)
    ]
    damaged = frames[1][:-1] + bytes([frames[1][-1] ^ 1])
    write_frames(
        tmp_path / "exp" / "memory",
        [("activations/s/0", 0, frames[0]), ("activations/s/0", 1, damaged), ("activations/s/0", 3, frames[3])],
    )
    source, reader = FileSource(tmp_path), Reader()
    layers, damage = reader.survey_activations(source, reader.catalog(source)["exp"])
    assert layers == 2 and damage == (
        "run exp/memory, tag activations/s/0, event of step 1: frame is damaged: its checksum does not match",
        "session s, layer activations: steps 1 to 2 are missing (2 records lost)",
    )


def test_a_small_cache_changes_nothing_but_time(tmp_path: pathlib.Path) -> None:
    for name in "abc":
        write_small_run(tmp_path / name)
    source, small, large = FileSource(tmp_path), Reader(cache_bytes=1), Reader()
    for _ in range(2):
        for name in "abc":
            assert equal(
                small.run(source, name, {*BASIC, ACTIVATIONS}).run, large.run(source, name, {*BASIC, ACTIVATIONS}).run
            )


def test_the_error_on_an_unknown_run_lists_the_runs(tmp_path: pathlib.Path) -> None:
    write_small_run(tmp_path / "exp")
    with pytest.raises(NotFoundError, match=r"no run 'other'; available: exp"):
        Reader().run(FileSource(tmp_path), "other")


def test_a_missing_frame_is_reported_with_its_steps(tmp_path: pathlib.Path) -> None:
    frames = [
        ("samples/s/0", 9, samples_frame(0, range(10), [1] * 10)),
        ("samples/s/0", 29, samples_frame(2, range(20, 30), [1] * 10)),
        ("samples/s/0", 59, samples_frame(5, range(50, 60), [1] * 10)),
    ]
    write_frames(tmp_path / "exp" / "memory", frames)
    assert read_run(tmp_path).damage == (
        "session s, samples: steps 10 to 19 are missing (1 record lost)",
        "session s, samples: steps 30 to 49 are missing (2 records lost)",
    )


def test_a_damaged_frame_costs_only_itself_and_is_reported(tmp_path: pathlib.Path) -> None:
    # GIVEN a frame whose bytes were damaged before TensorBoard's reader, which checks nothing, passed it on
    damaged = bytearray(samples_frame(1, [1], [1]))
    damaged[-1] ^= 1
    frames = [
        ("samples/s/0", 0, samples_frame(0, [0], [1])),
        ("samples/s/0", 1, bytes(damaged)),
        ("samples/s/0", 2, samples_frame(2, [2], [1])),
    ]
    write_frames(tmp_path / "exp" / "memory", frames)
    run = read_run(tmp_path)
    assert run.samples.step.tolist() == [0, 2]
    assert run.damage == (
        "run exp/memory, tag samples/s/0, event of step 1: frame is damaged: its checksum does not match",
        "session s, samples: step 1 is missing (1 record lost)",
    )


def test_a_frame_under_another_streams_tag_is_refused(tmp_path: pathlib.Path) -> None:
    write_frames(tmp_path / "exp" / "memory", [("activations/s/0", 0, samples_frame(0, [0], [1]))])
    run = read_run(tmp_path)
    assert len(run.samples) == len(run.activations) == 0
    assert "does not belong under this tag" in run.damage[0]


def test_a_header_with_wrong_steps_is_refused(tmp_path: pathlib.Path) -> None:
    import dataclasses

    frame = dataclasses.replace(frame_of("samples", make_samples([5], [1]), 0), last_step=6)
    write_frames(tmp_path / "exp" / "memory", [("samples/s/0", 6, codec.encode(frame))])
    run = read_run(tmp_path)
    assert len(run.samples) == 0 and "does not hold these steps" in run.damage[0]


def test_a_newer_format_is_skipped_with_one_warning(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    # GIVEN frames of a newer format beside those of this one
    newer = bytearray(samples_frame(1, [1], [1]))
    newer[4] = 9
    frames = [("samples/s/0", 0, samples_frame(0, [0], [1]))]
    frames += [(f"samples/s/{tag}", 1, bytes(newer)) for tag in range(1, 4)]
    write_frames(tmp_path / "exp" / "memory", frames)
    # WHEN the run is read again and again
    source, reader = FileSource(tmp_path), Reader(cache_bytes=1)
    for _ in range(3):
        run = reader.run(source, "exp").run
        reader.run(source, "exp", {*BASIC, ACTIVATIONS})
    # THEN what is known is shown, and one warning names run and tag
    assert run.samples.step.tolist() == [0]
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 1 and "run exp/memory, tag samples/s/1" in warnings[0] and "upgrade" in warnings[0]
    assert len(run.damage) == 1 and "2 more tags" in run.damage[0]


def test_a_session_without_its_facts_still_shows_its_samples(tmp_path: pathlib.Path) -> None:
    write_frames(tmp_path / "exp" / "memory", [("samples/s/0", 0, samples_frame(0, [0], [1]))])
    run = read_run(tmp_path)
    assert run.sessions == ("s",) and len(run.samples) == 1 and "versions of session s could not" in run.notes[0]


def test_copied_event_files_count_once(tmp_path: pathlib.Path) -> None:
    # GIVEN a run whose event file was copied beside itself
    write_small_run(tmp_path / "exp")
    (path,) = event_files(tmp_path)
    path.with_name(path.name + ".copy").write_bytes(path.read_bytes())
    run = read_run(tmp_path)
    assert len(run.samples) == 64 and len(run.snapshots) == 2 and len(run.layer_tables) == 2 and run.damage == ()


def test_a_copied_run_is_a_run_of_its_own(tmp_path: pathlib.Path) -> None:
    write_small_run(tmp_path / "exp")
    (path,) = event_files(tmp_path)
    (tmp_path / "copy" / "memory").mkdir(parents=True)
    (tmp_path / "copy" / "memory" / path.name).write_bytes(path.read_bytes())
    for name in ("exp", "copy"):
        assert len(read_run(tmp_path, name).samples) == 64


def test_unknown_tags_are_reported_and_left_out(tmp_path: pathlib.Path) -> None:
    write_frames(
        tmp_path / "exp" / "memory",
        [
            ("samples/s/0", 0, samples_frame(0, [0], [1])),
            ("samples/s/01", 0, samples_frame(0, [0], [1])),
            ("future/s/0", 0, b"x"),
        ],
    )
    run = read_run(tmp_path)
    assert len(run.samples) == 1 and "2 tags are unknown" in run.damage[0]


def test_thousands_of_damaged_tags_are_counted_rather_than_listed(tmp_path: pathlib.Path) -> None:
    write_frames(tmp_path / "exp" / "memory", [(f"samples/s/{tag}", 0, b"junk") for tag in range(3000)])
    damage = read_run(tmp_path).damage
    assert len(damage) == MAX_SENTENCES + 1 and "2970 more" in damage[-1]


def test_a_run_over_the_limit_shows_what_fits_and_says_so(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = RunWriter(tmp_path / "exp")
    for first in range(0, 4000, 100):
        writer.samples(make_samples(range(first, first + 100), [1] * 100))
    writer.close()
    monkeypatch.setattr(reader_module, "MAX_RUN_BYTES", 100_000)
    run = read_run(tmp_path)
    assert 0 < len(run.samples) < 4000 and any("are not shown" in sentence for sentence in run.damage)


def test_many_clients_share_a_listing_and_see_whole_runs(tmp_path: pathlib.Path) -> None:
    # GIVEN a run that grows by ten steps a flush while 50 clients read it
    writer = RunWriter(tmp_path / "exp")
    writer.samples(make_samples(range(10), [100] * 10))
    writer.flush()
    source, reader = CountingSource(tmp_path), Reader()
    wrong: list[str] = []

    def read(start: threading.Barrier) -> None:
        start.wait()
        for _ in range(5):
            run = reader.run(source, "exp").run
            steps = run.samples.step
            if len(steps) % 10 or not np.array_equal(steps, np.arange(len(steps))) or run.damage:
                wrong.append(f"{len(steps)} steps, {run.damage}")

    barrier = threading.Barrier(51)
    threads = [threading.Thread(target=read, args=(barrier,)) for _ in range(50)]
    for thread in threads:
        thread.start()
    barrier.wait()
    for first in range(10, 200, 10):
        writer.samples(make_samples(range(first, first + 10), [100] * 10))
        writer.flush()
    for thread in threads:
        thread.join(timeout=60)
    writer.close()
    assert wrong == [] and not any(thread.is_alive() for thread in threads)
    assert source.listings <= 250
