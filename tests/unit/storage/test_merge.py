"""Sessions merged to a run: resumed trainings and workers."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading_cases import (
    START,
    empty_activations,
    make_activations,
    make_samples,
    make_snapshot,
    make_table,
    session_of,
)

from tb_memplugin.schema import MISSING, NO_SAMPLES, PHASES, Run, Session, SessionInfo
from tb_memplugin.storage.merge import merge
from tb_memplugin.storage.read import PEAK, SAMPLES, activations, join_samples, samples


def session(
    name: str, after: float = 0, steps: Sequence[int] = (), peaks: int | Sequence[int] = 100, **parts: Any
) -> Session:
    """A session that starts some seconds after the first one, with training steps unless `parts` has other samples."""
    values = [peaks] * len(steps) if isinstance(peaks, int) else peaks
    samples = make_samples(steps, values, start=START + after) if steps else NO_SAMPLES
    others = {"layer_tables": (), "samples": samples, "activations": empty_activations(), "snapshots": ()}
    notes = parts.pop("notes", ())
    return Session(info=SessionInfo(name, START + after, "recorder", {}, notes), **{**others, **parts})


def merged(*sessions: Session, **named: Any) -> Run:
    """The run of sessions in one directory."""
    return merge("r", [("", one) for one in sessions], **named).run


def peaks_of(run: Run, device: str = "CPU:0") -> list[int]:
    return run.samples.devices[device].peak_bytes.tolist()


def test_a_resumed_training_replaces_the_steps_it_repeats() -> None:
    # GIVEN a training killed after step 9 and resumed at step 6 an hour later
    tables = (make_table(0, unfrozen=False), make_table(8, unfrozen=True))
    first = session("a", 0, range(10), layer_tables=tables, snapshots=(make_snapshot(2), make_snapshot(7)))
    resumed = (make_table(6, unfrozen=False, reason="resumed"),)
    second = session("b", 3600, range(6, 12), 200, layer_tables=resumed, snapshots=(make_snapshot(10),))
    # WHEN they are merged, in whatever order they were found
    whole = merge("r", [("", second), ("", first)])
    # THEN each step is there once, the repeated ones from the later session
    assert whole.run.samples.step.tolist() == list(range(12)) and peaks_of(whole.run) == [100] * 6 + [200] * 6
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
        f"session b: nothing is shown for steps {steps}, which it repeated and whose samples are lost; session a "
        "recorded them before"
        for steps in ("6 to 8", "12 to 13")
    )
    # AND all attempts show them
    assert len(merged(first, second, all_attempts=True).samples) == 18


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 10)), min_size=1, max_size=8))
def test_every_step_is_that_of_the_last_session_that_trained_it(ranges: list[tuple[int, int]]) -> None:
    # GIVEN attempts at any stretches of steps, one after another, that mark their steps with their number
    sessions, expected = [], {}
    for number, (first, count) in enumerate(ranges):
        steps = range(first, first + count)
        sessions.append(session(f"s{number}", 1000 * number, steps, number + 1, snapshots=(make_snapshot(first),)))
        expected.update(dict.fromkeys(steps, number + 1))
    run = merged(*sessions)
    # THEN each step is there once, with the number of the last attempt at it
    peaks = peaks_of(run)
    assert dict(zip(run.samples.step.tolist(), peaks, strict=True)) == expected and len(peaks) == len(expected)
    # AND a snapshot stays unless a later attempt trained its step
    kept = {first for number, (first, _) in enumerate(ranges) if expected[first] == number + 1}
    assert [snapshot.step for snapshot in run.snapshots] == sorted(kept)


def test_measured_pools_are_merged_with_their_steps() -> None:
    # GIVEN an attempt without measured pools, and a later one with some
    run = merged(
        session("a", samples=make_samples(range(4), [9] * 4, pools={0: (50, 5), 3: (60, 6)})),
        session("b", 99, samples=make_samples([2, 3], [9] * 2, start=START + 99, pools={2: (70, 7)})),
    )
    # THEN a repeated step has the later attempt's figures, or none
    assert run.samples.devices["CPU:0"].pool_bytes.tolist() == [50, MISSING, 70, MISSING]
    assert run.samples.devices["CPU:0"].largest_free_bytes.tolist() == [5, MISSING, 7, MISSING]


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
    assert len(run.samples) == 16 and len(run.layer_tables) == 2 and [one.step for one in run.snapshots] == [3]
    # BUT the same traced step of a later session replaces its own
    again = dataclasses.replace(trained, snapshots=evaluated.snapshots)
    assert len(merged(evaluated, again).snapshots) == 1
    # AND what a training validated is replaced with its steps
    mixed = dataclasses.replace(evaluated, samples=join_samples([evaluated.samples, make_samples([5], [9])])[0])
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
    # GIVEN a second session that begins while the first one still records, THEN none replaces the other
    run = merged(session("a", 0, range(100), 10), session("b", 5, range(100), 20))
    assert run.workers == ("", "b") and set(run.samples.devices) == {"CPU:0", "b/CPU:0"}
    assert len(run.samples) == 200


@pytest.mark.parametrize("order", [1, -1])
def test_sessions_that_followed_each_other_are_one_worker_whatever_the_clock_says(order: int) -> None:
    # GIVEN a resumed training on a machine whose clock is an hour behind that of the first one
    late = make_samples(range(5, 12), [20] * 7, start=START - 3598)
    sessions = [
        dataclasses.replace(one, info=dataclasses.replace(one.info, earlier=at))
        for at, one in enumerate((session("b", 0, range(10), 10), session("a", -3600, samples=late)))
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
    made, _ = session_of("s", {SAMPLES: parts, PEAK: [make_samples([1], [20]), make_samples([3], [99])]})
    # THEN step 3 is there, in its place, and step 1 is there once
    assert made.samples.step.tolist() == [0, 1, 3, 4, 5]
    assert made.samples.devices["CPU:0"].peak_bytes.tolist() == [10, 20, 99, 10, 10]


def test_devices_that_come_later_are_missing_before() -> None:
    joined, sentence = join_samples([make_samples([0], [1]), make_samples([1], [2], device="GPU:0")])
    assert sentence is None
    assert joined.devices["GPU:0"].peak_bytes.tolist() == [MISSING, 2]
    assert joined.devices["CPU:0"].peak_bytes.tolist() == [1, MISSING]


def test_tables_over_the_limit_are_cut_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (samples, activations):
        monkeypatch.setattr(module, "MAX_TABLE_BYTES", 48 * 3)
    joined, sentence = samples.join_samples([make_samples([0, 1], [1, 1]), make_samples([2], [1], device="GPU:0")])
    assert list(joined.devices) == ["CPU:0"] and sentence is not None and "1 of 2 devices" in sentence
    table, sentence = activations.join_activations([make_activations(range(30), ["x"], np.ones((30, 1)))])
    assert len(table) == 18 and sentence is not None and "12 of 30 rows" in sentence
