"""Sessions from frames and runs from sessions, with the steps that are missing or repeated."""

import dataclasses
import json
import pathlib
import tracemalloc
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading_cases import (
    DEVICE,
    MIB,
    START,
    empty_activations,
    equal,
    event_files,
    make_activations,
    make_map,
    make_oom,
    make_samples,
    make_snapshot,
    make_table,
    make_timeline,
    session_of,
    write_frames,
    write_records,
)
from requests_cases import hand_made_requests
from worker_runs import top_bytes, top_step, write_workers

from tb_memplugin.cli import main
from tb_memplugin.errors import FormatError
from tb_memplugin.schema import (
    MISSING,
    NO_SAMPLES,
    PHASES,
    LedgerRow,
    Run,
    Samples,
    Session,
    SessionInfo,
    with_failed_steps,
)
from tb_memplugin.server import Handlers, Stretch
from tb_memplugin.storage import (
    ACTIVATIONS,
    BASIC,
    BASIC_FIGURES,
    FIGURES,
    PEAK,
    SAMPLES,
    DecodedTag,
    LaterSessions,
    Reader,
    activations,
    decode_tag,
    join_samples,
    samples,
    streams,
    tables_of,
)
from tb_memplugin.storage.activations import row_sums
from tb_memplugin.storage.files import ByteBudget, FileSource, StoredFrame, TagContent
from tb_memplugin.storage.frames import (
    STREAMS,
    Frame,
    OpenFrame,
    Tag,
    codec,
    frame_of,
    read_frame,
    start_of,
    tfrecord,
)
from tb_memplugin.storage.sessions import merge

FAILED = 12
LEDGER = (
    LedgerRow("model/backbone", "activations", None, 150 * MIB, 0),
    LedgerRow("model/head", "workspace", None, 200 * MIB, 0),
    LedgerRow("model/backbone", "weights", True, 40 * MIB, 0),
    LedgerRow(None, "rounding", None, 3 * MIB, 3 * MIB),
)
IN_USE = sum(row.bytes for row in LEDGER)
OOM = dataclasses.replace(
    make_oom(FAILED),
    ledger=LEDGER,
    in_use_bytes=IN_USE,
    pool_bytes=500 * MIB,
    capacity_bytes=500 * MIB,
    free_bytes=500 * MIB - IN_USE,
    largest_free_bytes=80 * MIB,
)
CATEGORIES = {
    "activations": 150 * MIB,
    "workspace": 200 * MIB,
    "weights": 40 * MIB,
    "rounding": 3 * MIB,
}


@pytest.fixture
def logdir(tmp_path: pathlib.Path) -> pathlib.Path:
    """A run traced at step 3 that failed at step 12, at whose end little is in use; step 13 was
    trained again."""
    peaks = [60 * MIB] * FAILED + [IN_USE + MIB, 60 * MIB]
    samples = make_samples(range(14), peaks, in_use=[40 * MIB] * 14)
    snapshot = make_snapshot(3, frozen=0, trainable=40 * MIB, activations=10 * MIB)
    write_records(tmp_path / "run", make_table(0, unfrozen=True), samples, snapshot, OOM)
    return tmp_path


def by_category(names: list[str], sizes: list[int]) -> dict[str, int]:
    sums: Counter[str] = Counter()
    for name, size in zip(names, sizes, strict=True):
        sums[name] += int(size)
    return dict(+sums)


def test_every_route_has_the_ledger_of_the_failure(logdir: pathlib.Path) -> None:
    handlers, source = Handlers(Reader()), FileSource(logdir)
    stretch = Stretch(DEVICE, "train", None, None, 1000)
    overview = handlers.overview(source, "run", stretch)
    row = overview.columns["step"].tolist().index(FAILED)
    groups = [group["category"] for group in overview.fields["groups"]]
    shown = by_category(groups, [overview.columns[f"group/{at}"][row] for at in range(len(groups))])
    # Nothing fills the difference to the peak of the step, which was earlier.
    assert shown == CATEGORIES and overview.columns["peak_bytes"][row] == IN_USE + MIB
    assert overview.columns["traced"][row] == 1
    ref = overview.fields["snapshots"][int(overview.columns["snapshot"][row])]
    assert ref["at_failure"] and ref["step"] == FAILED
    # AND the step after it is described by the trace, not by the failure
    before, own, after = overview.columns["snapshot"][row - 1 : row + 2]
    assert after == before != own
    snapshot = handlers.snapshot(source, "run", DEVICE, FAILED, "train")
    (oom,) = handlers.oom(source, "run")["ooms"]
    assert (
        snapshot["ledger"] == oom["ledger"]
        and snapshot["in_use_bytes"] == oom["in_use_bytes"] == IN_USE
    )
    assert snapshot["saved_for_backward"] == [{"layer": "model/backbone", "bytes": 150 * MIB}]
    totals = handlers.ledger_totals(source, "run", DEVICE, "train", layer="model/backbone")
    at = totals.columns["step"].tolist().index(FAILED)
    assert (
        sum(totals.columns[f"group/{g}"][at] for g in range(len(totals.fields["groups"])))
        == 190 * MIB
    )
    division = handlers.device_memory(source, "run", DEVICE, FAILED)
    in_use = [part for part in division["segments"] if part["part"] == "in_use"]
    assert (
        by_category([part["category"] for part in in_use], [part["bytes"] for part in in_use])
        == CATEGORIES
    )
    assert not handlers.device_memory(source, "run", DEVICE, FAILED + 1)["at_failure"]
    pool = handlers.pool(source, "run", stretch)
    assert pool.fields["sources"][int(pool.columns["pool_source"][row])] == "failed"
    assert (
        pool.columns["peak_bytes"][row] == IN_USE
        and pool.columns["largest_free_bytes"][row] == 80 * MIB
    )
    (device,) = handlers.devices(source, "run", "train")["devices"]
    parts = device["breakdown"]["parts"]
    assert (
        by_category([part["category"] for part in parts], [part["bytes"] for part in parts])
        == CATEGORIES
    )


def test_inspect_prints_the_ledger_of_the_failure(
    logdir: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(logdir), "--step", str(FAILED), "--verbose"]) == 0
    text = capsys.readouterr().out
    assert f"failed step {FAILED} (train): 393 MiB in use at the failed allocation" in text
    assert main(["inspect", str(logdir), "--step", str(FAILED), "--format", "json"]) == 0
    run: Any = json.loads(capsys.readouterr().out)["runs"]["run"]
    (snapshot,) = run["snapshots"]
    assert snapshot["ledger"] == run["oom"][0]["ledger"] and snapshot["at_failure"]


def test_the_last_failure_of_a_step_replaces_its_trace() -> None:
    later = dataclasses.replace(
        OOM, wall_time=START + 1000, ledger=LEDGER[:1], in_use_bytes=150 * MIB
    )
    traced = make_snapshot(FAILED)
    (found,) = with_failed_steps([traced], [later, OOM])
    assert found.at_failure and found.in_use_bytes == 150 * MIB
    # Without owners, or without a step, the failure says nothing about the breakdown.
    for nothing in (
        dataclasses.replace(OOM, ledger=()),
        dataclasses.replace(OOM, step=None, phase=None),
    ):
        assert with_failed_steps([traced], [nothing]) == (traced,)


def write(
    directory: pathlib.Path, first: int, last: int, peak: int, start: float, table: bool = True
) -> pathlib.Path:
    """One session of the given steps, three to a frame."""
    before = set(event_files(directory)) if directory.exists() else set()
    records: list[Any] = [make_table(first, unfrozen=False)] * table
    for step in range(first, last, 3):
        steps = range(step, step + 3)
        records += [
            make_samples(steps, [peak] * 3, start=start),
            make_activations(steps, ["x"], [[peak]] * 3),
        ]
    write_records(directory, *records, make_snapshot(last - 1))
    (path,) = set(event_files(directory)) - before
    return path


def damage(path: pathlib.Path, stream: str, nth: int) -> None:
    """Flip a byte of the nth record of a stream."""
    content = bytearray(path.read_bytes())
    parts = tfrecord.walk_records(
        lambda offset, size: bytes(content[offset : offset + size]), 0, len(content)
    )
    records = [
        part
        for part in parts
        if isinstance(part, tfrecord.Record) and f"{stream}/".encode() in part.data
    ]
    content[records[nth].offset + len(records[nth].data) - 5] ^= 1
    path.write_bytes(content)


def read(directory: pathlib.Path) -> Run:
    return Reader().run(FileSource(directory), "exp", {*BASIC, ACTIVATIONS}).run


@pytest.mark.parametrize("table", [True, False], ids=["with a layer table", "without"])
@pytest.mark.parametrize("nth", [0, 1, 2, 3], ids=["first", "second", "third", "last"])
def test_no_superseded_figure_comes_back(nth: int, table: bool, tmp_path: pathlib.Path) -> None:
    # GIVEN steps 0 to 29, and a second session of steps 12 to 23 with one damaged frame of samples
    # and activations
    write(tmp_path / "exp", 0, 30, 100, START)
    path = write(tmp_path / "exp", 12, 24, 200, START + 3600, table)
    damage(path, "samples", nth)
    damage(path, "activations", nth)
    run = read(tmp_path)
    peaks = dict(
        zip(
            run.samples.step.tolist(), run.samples.devices["CPU:0"].peak_bytes.tolist(), strict=True
        )
    )
    # THEN none of its steps shows the first session's figures, and a sentence says so
    lost = set(range(12 + 3 * nth, 15 + 3 * nth))
    assert {step for step in range(12, 24) if peaks.get(step) == 100} == set()
    # The first frame's peak is stored twice.
    assert set(range(12, 24)) - peaks.keys() <= lost
    assert any("nothing is shown for" in sentence for sentence in run.damage)
    # AND the steps that it did not repeat stay, if it is known where it began
    if table or nth:
        assert peaks.keys() >= set(range(12)) | set(range(24, 30))
    activations = run.activations
    cells = dict(zip(activations.step.tolist(), activations.bytes[:, 0].tolist(), strict=True))
    assert all(cells.get(step, 200) == 200 for step in range(12, 24))
    if table:
        assert all(cells[step] == 100 for step in (*range(12), *range(24, 30)))


def test_a_session_without_facts_starts_when_its_name_says(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "exp", 0, 12, 100, START - 50_000)
    damage(path, "meta", 0)
    run = read(tmp_path)
    assert len(run.notes) == 1 and run.session_starts == (start_of(run.sessions[0]),)
    starts = [start_of(name) for name in ("20260921T170000Z-2614c866", "s", "99999999T170000Z-1")]
    assert starts == [1790010000.0, None, None]


def session(
    name: str,
    after: float = 0,
    steps: Sequence[int] = (),
    peaks: int | Sequence[int] = 100,
    **parts: Any,
) -> Session:
    """A session that starts some seconds after the first one, with training steps unless `parts`
    has other samples."""
    values = [peaks] * len(steps) if isinstance(peaks, int) else peaks
    samples = make_samples(steps, values, start=START + after) if steps else NO_SAMPLES
    others = {
        "layer_tables": (),
        "samples": samples,
        "activations": empty_activations(),
        "snapshots": (),
    }
    notes = parts.pop("notes", ())
    return Session(
        info=SessionInfo(name, START + after, "recorder", {}, notes), **{**others, **parts}
    )


def merged(*sessions: Session, **named: Any) -> Run:
    """The run of sessions in one directory."""
    return merge("r", [("", one) for one in sessions], **named).run


def peaks_of(run: Run, device: str = "CPU:0") -> list[int]:
    return run.samples.devices[device].peak_bytes.tolist()


def test_a_resumed_training_replaces_the_steps_it_repeats() -> None:
    # GIVEN a training killed after step 9 and resumed at step 6 an hour later
    tables = (make_table(0, unfrozen=False), make_table(8, unfrozen=True))
    first = session(
        "a", 0, range(10), layer_tables=tables, snapshots=(make_snapshot(2), make_snapshot(7))
    )
    resumed = (make_table(6, unfrozen=False, reason="resumed"),)
    second = session(
        "b", 3600, range(6, 12), 200, layer_tables=resumed, snapshots=(make_snapshot(10),)
    )
    # WHEN they are merged, in whatever order they were found
    whole = merge("r", [("", second), ("", first)])
    # THEN each step is there once, the repeated ones from the later session
    assert (
        whole.run.samples.step.tolist() == list(range(12))
        and peaks_of(whole.run) == [100] * 6 + [200] * 6
    )
    assert [table.step for table in whole.run.layer_tables] == [0, 6]
    assert [snapshot.step for snapshot in whole.run.snapshots] == [2, 10]
    assert whole.run.sessions == ("a", "b") and whole.run.workers == ("",)
    assert [(span.session, span.first_step) for span in whole.sessions] == [("a", 0), ("b", 6)]
    # AND all attempts have every step of every session
    every = merged(first, second, all_attempts=True)
    assert every.samples.step.tolist() == [*range(10), *range(6, 12)] and len(every.snapshots) == 3


def test_lost_steps_of_a_later_session_do_not_bring_back_superseded_ones() -> None:
    # GIVEN a training resumed at step 6 whose steps 6 to 8 and 12 to 13 are lost
    first = session("a", 0, range(15), snapshots=(make_snapshot(7),))
    second = session("b", 3600, range(9, 12), 200, lost_steps=((6, 8), (12, 13)))
    run = merged(first, second)
    # THEN nothing is shown for them, which is said
    assert run.samples.step.tolist() == [0, 1, 2, 3, 4, 5, 9, 10, 11, 14]
    assert run.snapshots == ()
    assert run.damage == tuple(
        f"session b: nothing is shown for steps {steps}, which it repeated and whose samples are "
        "lost; session a recorded them before"
        for steps in ("6 to 8", "12 to 13")
    )
    # AND all attempts show them
    assert len(merged(first, second, all_attempts=True).samples) == 18


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 10)), min_size=1, max_size=8))
def test_every_step_is_that_of_the_last_session_that_trained_it(
    ranges: list[tuple[int, int]],
) -> None:
    # GIVEN attempts at any stretches of steps, one after another, that mark their steps with their
    # number
    sessions, expected = [], {}
    for number, (first, count) in enumerate(ranges):
        steps = range(first, first + count)
        sessions.append(
            session(
                f"s{number}", 1000 * number, steps, number + 1, snapshots=(make_snapshot(first),)
            )
        )
        expected.update(dict.fromkeys(steps, number + 1))
    run = merged(*sessions)
    # THEN each step is there once, with the number of the last attempt at it
    peaks = peaks_of(run)
    assert dict(zip(run.samples.step.tolist(), peaks, strict=True)) == expected and len(
        peaks
    ) == len(expected)
    # AND a snapshot stays unless a later attempt trained its step
    kept = {first for number, (first, _) in enumerate(ranges) if expected[first] == number + 1}
    assert [snapshot.step for snapshot in run.snapshots] == sorted(kept)


def test_a_prediction_only_session_replaces_no_training_step() -> None:
    predicted = make_samples([0, 0], [1, 2], phase="predict", start=START + 99)
    assert len(merged(session("a", 0, range(5)), session("b", 99, samples=predicted)).samples) == 7


def test_an_evaluation_before_the_training_is_shown_with_it() -> None:
    tables = (make_table(0, unfrozen=False),)
    evaluated = session(
        "a",
        samples=make_samples(range(6), [500] * 6, phase="validation"),
        layer_tables=tables,
        snapshots=(make_snapshot(3, phase="validation"),),
    )
    trained = session("b", 60, range(10), 200, layer_tables=tables)
    run = merged(evaluated, trained)
    validated = run.samples.phase == PHASES.index("validation")
    assert run.samples.devices["CPU:0"].peak_bytes[validated].tolist() == [500] * 6
    assert (
        len(run.samples) == 16
        and len(run.layer_tables) == 2
        and [one.step for one in run.snapshots] == [3]
    )
    # BUT the same traced step of a later session replaces its own
    again = dataclasses.replace(trained, snapshots=evaluated.snapshots)
    assert len(merged(evaluated, again).snapshots) == 1
    # AND what a training validated is replaced with its steps
    mixed = dataclasses.replace(
        evaluated, samples=join_samples([evaluated.samples, make_samples([5], [9])])[0]
    )
    assert len(merged(mixed, trained).samples) == 10


def test_a_summary_session_beside_the_recorder_replaces_none_of_its_figures() -> None:
    # GIVEN both writing into one run at the same time, as the README shows
    run = merged(
        session("a", 0, range(5), activations=make_activations([1], ["x"], [[1]])),
        session("b", 1, activations=make_activations([0, 1], ["y"], [[7], [8]])),
    )
    assert run.workers == ("",) and len(run.samples) == 5
    assert run.activations.layers == ("x", "y") and run.activations.step.tolist() == [0, 1, 1]
    assert run.activations.bytes[0].tolist() == [MISSING, 7]


def test_a_layer_recorded_again_for_the_same_steps_counts_once() -> None:
    table = merged(
        session("a", activations=make_activations([0, 1, 2], ["x", "y"], [[1, 2], [3, 4], [5, 6]])),
        session("b", 1, activations=make_activations([1, 2], ["x"], [[30], [50]])),
    ).activations
    cells = sorted(
        (layer, int(step), int(row[at]))
        for step, row in zip(table.step, table.bytes, strict=True)
        for at, layer in enumerate(table.layers)
        if row[at] != MISSING
    )
    assert cells == [("x", 0, 1), ("x", 1, 30), ("x", 2, 50), ("y", 0, 2), ("y", 1, 4), ("y", 2, 6)]


def test_workers_keep_their_own_devices() -> None:
    # GIVEN two workers with a GPU:0 each
    samples = [make_samples([0, 1], peaks, device="GPU:0") for peaks in ([10, 11], [20, 21])]
    first = session("a", samples=samples[0], snapshots=(make_snapshot(0, device="GPU:0"),))
    second = session("b", samples=samples[1], layer_tables=(make_table(0, unfrozen=False),))
    whole = merge("r", [("w0", first), ("w1", second)])
    # THEN their figures are kept apart, and each is whole on its own
    assert whole.run.workers == ("w0", "w1") and whole.run.samples.step.tolist() == [0, 0, 1, 1]
    assert peaks_of(whole.run, "w0/GPU:0") == [10, MISSING, 11, MISSING]
    assert peaks_of(whole.run, "w1/GPU:0") == [MISSING, 20, MISSING, 21]
    assert [snapshot.device for snapshot in whole.run.snapshots] == ["w0/GPU:0"]
    assert peaks_of(whole.by_worker["w0"], "GPU:0") == [10, 11]
    assert len(whole.run.layer_tables) == 1


def test_two_processes_in_one_directory_at_once_are_two_workers() -> None:
    # GIVEN a second session that begins while the first one still records, THEN none replaces the
    # other
    run = merged(session("a", 0, range(100), 10), session("b", 5, range(100), 20))
    assert run.workers == ("", "b") and set(run.samples.devices) == {"CPU:0", "b/CPU:0"}
    assert len(run.samples) == 200


@pytest.mark.parametrize("order", [1, -1])
def test_sessions_that_followed_each_other_are_one_worker_whatever_the_clock_says(
    order: int,
) -> None:
    # GIVEN a resumed training on a machine whose clock is an hour behind that of the first one
    late = make_samples(range(5, 12), [20] * 7, start=START - 3598)
    sessions = [
        dataclasses.replace(one, info=dataclasses.replace(one.info, earlier=at))
        for at, one in enumerate(
            (session("b", 0, range(10), 10), session("a", -3600, samples=late))
        )
    ]
    run = merged(*sessions[::order])
    assert run.workers == ("",) and run.samples.step.tolist() == list(range(12))
    assert peaks_of(run) == [10] * 5 + [20] * 7


def test_notes_are_told_once() -> None:
    assert merged(session("a", notes=("x", "y")), session("b", 1, notes=("x",))).notes == ("x", "y")


def test_a_session_without_facts_still_shows_its_figures() -> None:
    made, sentences = session_of("s", {SAMPLES: [make_samples([5], [7])]})
    assert made.info.session == "s" and made.info.started == START + 2.5 and sentences == []
    assert "could not be read" in made.info.notes[0] and len(made.samples) == 1


def test_a_peak_whose_sample_was_lost_stands_in_for_it() -> None:
    # GIVEN samples of steps 0 to 1 and 4 to 5, and the peaks of steps 1 and 3
    parts = [make_samples([0, 1], [10, 20]), make_samples([4, 5], [10, 10])]
    made, _ = session_of(
        "s", {SAMPLES: parts, PEAK: [make_samples([1], [20]), make_samples([3], [99])]}
    )
    # THEN step 3 is there, in its place, and step 1 is there once
    assert made.samples.step.tolist() == [0, 1, 3, 4, 5]
    assert made.samples.devices["CPU:0"].peak_bytes.tolist() == [10, 20, 99, 10, 10]


def test_devices_that_come_later_are_missing_before() -> None:
    joined, sentence = join_samples(
        [make_samples([0], [1]), make_samples([1], [2], device="GPU:0")]
    )
    assert sentence is None
    assert joined.devices["GPU:0"].peak_bytes.tolist() == [MISSING, 2]
    assert joined.devices["CPU:0"].peak_bytes.tolist() == [1, MISSING]


def test_tables_over_the_limit_are_cut_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (samples, activations):
        monkeypatch.setattr(module, "MAX_TABLE_BYTES", 48 * 3)
    joined, sentence = samples.join_samples(
        [make_samples([0, 1], [1, 1]), make_samples([2], [1], device="GPU:0")]
    )
    assert (
        list(joined.devices) == ["CPU:0"] and sentence is not None and "1 of 2 devices" in sentence
    )
    table, sentence = activations.join_activations(
        [make_activations(range(30), ["x"], np.ones((30, 1)))]
    )
    assert len(table) == 18 and sentence is not None and "12 of 30 rows" in sentence


CHUNKS = (("net/a", "activations", "net/a/Conv2D", 1024, 0, 1),)


def workers(stream: streams.Stream) -> dict[str, tuple[object, ...]]:
    requests = hand_made_requests(CHUNKS)  # type: ignore[arg-type]
    made = {"maps": make_map, "timelines": make_timeline, "snapshots": make_snapshot}.get(
        stream.tag, lambda step: dataclasses.replace(requests, step=step)
    )
    return {"a": (made(3), made(9)), "b": (made(1), made(5))}


LARGE = (streams.MAPS, streams.TIMELINES, streams.REQUESTS)


@pytest.mark.parametrize("stream", [*LARGE, streams.SNAPSHOTS])
def test_records_of_sessions_are_ordered_by_step_and_large_ones_of_workers_stay_together(
    stream: Any,
) -> None:
    of = workers(stream)
    joined, left_out = stream.of_workers(of)
    expected = [("a", 3), ("a", 9), ("b", 1), ("b", 5)]
    by_step = sorted(expected, key=lambda place: place[1])
    assert [(one.device.partition("/")[0], one.step) for one in joined] == (
        expected if stream in LARGE else by_step
    )
    assert left_out is None
    assert [one.step for one in stream.of_sessions([of["a"], of["b"]], True)] == [1, 3, 5, 9]
    # AND what a later session repeats is left out
    records = (*of["b"], *of["a"])
    assert [one.step for one in stream.without_repeats(records, later_session(4, 6))] == [1, 3, 9]


def test_of_a_failed_allocation_the_last_record_counts_and_a_tolerated_one_is_none() -> None:
    failing = dataclasses.replace(make_oom(4), status="failing")
    other = dataclasses.replace(make_oom(7), identifier="2", status="failed")
    for last, expected in (("failed", ["failed", "failed"]), ("tolerated", ["failed"])):
        joined, _ = streams.OOM.of_frames(
            [failing, other, dataclasses.replace(failing, status=last)]
        )
        assert [oom.status for oom in joined] == expected


def test_a_runs_layer_tables_are_those_of_the_first_worker_that_has_any() -> None:
    table = make_table(0, unfrozen=False)
    assert streams.META.of_workers({"a": (), "b": (table,), "c": ()}) == ((table,), None)
    assert streams.META.of_workers({"a": ()}) == ((), None)
    info = SessionInfo("a", 0.0, "recorder", {}, ())
    assert streams.META.of_frames([info, table]) == ((table,), None)


def later_session(first: int, last: int) -> LaterSessions:
    later = LaterSessions()
    later.add(session("later", steps=range(first, last + 1)))
    return later


def test_a_map_of_no_step_a_failure_and_another_layer_table_stay() -> None:
    later = later_session(4, 6)
    assert len(streams.MAPS.without_repeats((make_map(None), make_map(5)), later)) == 1
    assert len(streams.OOM.without_repeats((make_oom(5),), later)) == 1
    tables = tuple(make_table(step, unfrozen=False) for step in (0, 5, 7))
    assert [table.step for table in streams.META.without_repeats(tables, later)] == [0, 7]


def test_sums_skip_missing_values_and_do_not_overflow() -> None:
    assert row_sums(np.asarray([[1, MISSING, 3], [MISSING] * 3])).tolist() == [4, 0]
    assert row_sums(np.full((1, 5_000), 2**53 - 1)).tolist() == [2**62]


TAG = Tag("s", "samples", 0)


def table(at: int, rows: int = 10) -> Samples:
    return make_samples(
        range(rows * at, rows * at + rows), (np.arange(rows) * 7919 + at) % 1000 * MIB
    )


def frame(at: int, rows: int = 10) -> bytes:
    return codec.encode(frame_of("samples", table(at, rows), at))


def decoded(frames: Sequence[bytes], room: ByteBudget | None = None) -> DecodedTag:
    content = TagContent(
        "run", str(TAG), tuple(StoredFrame(at, data) for at, data in enumerate(frames))
    )
    return decode_tag(TAG, content, room or ByteBudget(1 << 30, 1 << 20))


def rows_of(tag: DecodedTag) -> Samples:
    return join_samples(tables_of([piece.value for piece in tag.pieces]))[0]


def test_frames_that_are_decoded_together_hold_what_each_holds_alone() -> None:
    # GIVEN frames of which three and two have equal heads, and one between them has other rows
    frames = [frame(0), frame(1), frame(2), frame(3, rows=7), frame(4), frame(5)]
    tag = decoded(frames)
    alone = [read_frame(Samples, codec.decode(data)) for data in frames]
    # THEN the frames together, any of them, and all of them joined are those of the frames alone
    assert [piece.value.frames for piece in tag.pieces] == [3, 3, 3, 1, 2, 2]
    for piece, own in zip(tag.pieces, alone, strict=True):
        assert equal(*tables_of([piece.value]), own)
    assert equal(rows_of(tag), join_samples(alone)[0])
    some = [tag.pieces[at].value for at in (1, 2, 4)]
    assert equal(join_samples(tables_of(some))[0], join_samples([alone[at] for at in (1, 2, 4)])[0])


@pytest.mark.parametrize("broken", [0, 1, 3])
def test_a_damaged_frame_among_equal_ones_costs_only_itself(broken: int) -> None:
    # GIVEN frames with equal heads of which one states other steps than it holds
    frames = [frame(at) for at in range(4)]
    part = frame_of("samples", table(broken), broken)
    frames[broken] = codec.encode(dataclasses.replace(part, last_step=part.last_step + 1))
    tag = decoded(frames)
    assert [piece.sequence for piece in tag.pieces] == [at for at in range(4) if at != broken]
    (sentence,) = tag.damage
    assert f"event of step {broken}: " in sentence and "does not hold these steps" in sentence


def test_a_copy_that_ends_early_loses_nothing(tmp_path: pathlib.Path) -> None:
    # GIVEN two event files with the same tag, of which the second lacks the last frames
    frames = [(str(TAG), at, frame(at)) for at in range(6)]
    write_frames(tmp_path / "run" / "memory", frames)
    write_frames(tmp_path / "run" / "memory", frames[:3])
    run = Reader().run(FileSource(tmp_path), "run").run
    assert run.samples.step.tolist() == list(range(60)) and run.damage == ()


def test_a_frame_that_states_too_much_is_refused_before_memory_is_taken() -> None:
    # GIVEN a frame of a few kilobytes with 32 million rows of one byte, 256 MB as integers
    rows = 1 << 22
    columns = dict.fromkeys("abcdefgh", 1 + np.arange(rows) % 2)
    data = codec.encode(
        Frame(STREAMS.index("samples"), 0, 0, 1, rows, {"devices": []}, {"samples": columns}), 9
    )
    assert len(data) < 100_000
    tracemalloc.start()
    try:
        tag = decoded([data, frame(1)], ByteBudget(96 << 20, 1 << 20))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert tag.pieces == () and "2 frames are not shown" in tag.damage[0]
    assert most < 4 * MIB


def test_figures_are_those_of_whole_samples(tmp_path: pathlib.Path) -> None:
    write_workers(tmp_path / "run", 2, 3, 950)
    validated = make_samples([49], [5 * MIB], phase="validation", start=START + 100)
    trained = make_samples(range(50), [MIB * (1 + at) for at in range(50)])
    write_records(tmp_path / "small", trained, validated, make_snapshot(3))
    source = FileSource(tmp_path)
    for name in ("run", "small"):
        some, every = (Reader().run(source, name, *streams) for streams in ([BASIC_FIGURES], []))
        assert some.by_worker.keys() == every.by_worker.keys() and equal(
            some.run.snapshots, every.run.snapshots
        )
        for worker, run in some.by_worker.items():
            other = every.by_worker[worker].samples
            for field in ("step", "phase", "epoch", "wall_time", "host_resident_bytes"):
                np.testing.assert_array_equal(getattr(run.samples, field), getattr(other, field))
            for device, figures in run.samples.devices.items():
                for field, column in dataclasses.asdict(figures).items():
                    expected = (
                        getattr(other.devices[device], field) if field in FIGURES else MISSING
                    )
                    np.testing.assert_array_equal(
                        column, np.broadcast_to(expected, len(column)), f"{device} {field}"
                    )
    peaks = (
        Reader()
        .run(source, "run", BASIC_FIGURES)
        .by_worker["worker_1"]
        .samples.devices["GPU:2"]
        .peak_bytes
    )
    assert int(peaks.argmax()) == top_step(1, 2, 950) and int(peaks.max()) == top_bytes(1, 2)


def test_bodies_that_end_early_are_refused_together_and_alone() -> None:
    frames = [OpenFrame(frame(at)) for at in range(2)]
    head = frames[0].head()
    frames[1].take(5)
    with pytest.raises(FormatError):
        codec.decode_columns(head, frames)
