"""Sessions merged to a run: resumed trainings and workers."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
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

from tb_memplugin.model import MISSING, PHASES, Session, SessionInfo
from tb_memplugin.reader.decode.columns import empty_samples, join_samples
from tb_memplugin.reader.decode.streams import PEAK, SAMPLES
from tb_memplugin.reader.merge import merge


def session(name: str, started: float = START, notes: Sequence[str] = (), **parts: Any) -> Session:
    return Session(
        info=SessionInfo(name, started, "recorder", {}, tuple(notes)),
        layer_tables=parts.get("tables", ()),
        samples=parts.get("samples", empty_samples()),
        activations=parts.get("activations", empty_activations()),
        snapshots=parts.get("snapshots", ()),
    )


def test_a_resumed_training_replaces_the_steps_it_repeats() -> None:
    # GIVEN a training killed after step 9 and resumed at step 6 an hour later
    first = session(
        "a",
        START,
        samples=make_samples(range(10), [100] * 10),
        tables=(make_table(0, unfrozen=False), make_table(8, unfrozen=True)),
        snapshots=(make_snapshot(2), make_snapshot(7)),
    )
    later = START + 3600
    second = session(
        "b",
        later,
        samples=make_samples(range(6, 12), [200] * 6, start=later),
        tables=(make_table(6, unfrozen=False, reason="resumed"),),
        snapshots=(make_snapshot(10),),
    )
    # WHEN they are merged, in whatever order they were found
    merged = merge("r", [("", second), ("", first)])
    # THEN each step is there once, the repeated ones from the later session
    assert merged.run.samples.step.tolist() == list(range(12))
    assert merged.run.samples.devices["CPU:0"].peak_bytes.tolist() == [100] * 6 + [200] * 6
    assert [table.step for table in merged.run.layer_tables] == [0, 6]
    assert [snapshot.step for snapshot in merged.run.snapshots] == [2, 10]
    assert merged.run.sessions == ("a", "b") and merged.run.workers == ("",)
    assert [(span.session, span.first_step) for span in merged.sessions] == [("a", 0), ("b", 6)]


def test_lost_steps_of_a_later_session_do_not_bring_back_superseded_ones() -> None:
    # GIVEN a training resumed at step 6 whose steps 6 to 8 and 12 to 13 are lost
    first = session("a", START, samples=make_samples(range(15), [100] * 15), snapshots=(make_snapshot(7),))
    later = START + 3600
    second = session("b", later, samples=make_samples(range(9, 12), [200] * 3, start=later))
    second = dataclasses.replace(second, lost_steps=((6, 8), (12, 13)))
    merged = merge("r", [("", first), ("", second)])
    # THEN nothing is shown for them, which is said
    assert merged.run.samples.step.tolist() == [0, 1, 2, 3, 4, 5, 9, 10, 11, 14]
    assert merged.run.snapshots == ()
    assert merged.run.damage == (
        "session b: nothing is shown for steps 6 to 8, which it repeated and whose samples are lost; session a "
        "recorded them before",
        "session b: nothing is shown for steps 12 to 13, which it repeated and whose samples are lost; session a "
        "recorded them before",
    )
    # AND all attempts show them
    assert len(merge("r", [("", first), ("", second)], all_attempts=True).run.samples) == 18


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 10)), min_size=1, max_size=8))
def test_every_step_is_that_of_the_last_session_that_trained_it(ranges: list[tuple[int, int]]) -> None:
    # GIVEN attempts at any stretches of steps, one after another, that mark their steps with their number
    sessions, expected = [], {}
    for number, (first, count) in enumerate(ranges):
        start = START + 1000 * number
        steps = range(first, first + count)
        samples = make_samples(steps, [number + 1] * count, in_use=[0] * count, start=start)
        sessions.append(("", session(f"s{number}", start, samples=samples, snapshots=(make_snapshot(first),))))
        expected.update(dict.fromkeys(steps, number + 1))
    run = merge("r", sessions).run
    # THEN each step is there once, with the number of the last attempt at it
    peaks = run.samples.devices["CPU:0"].peak_bytes.tolist()
    assert dict(zip(run.samples.step.tolist(), peaks, strict=True)) == expected and len(peaks) == len(expected)
    # AND a snapshot stays unless a later attempt trained its step
    kept = {first for number, (first, _) in enumerate(ranges) if expected[first] == number + 1}
    assert [snapshot.step for snapshot in run.snapshots] == sorted(kept)


def test_measured_pools_are_merged_with_their_steps() -> None:
    # GIVEN an attempt without measured pools, and a later one with some
    sessions = [
        ("", session("a", START, samples=make_samples(range(4), [9] * 4, pools={0: (50, 5), 3: (60, 6)}))),
        ("", session("b", START + 99, samples=make_samples([2, 3], [9] * 2, start=START + 99, pools={2: (70, 7)}))),
    ]
    run = merge("r", sessions).run
    # THEN a repeated step has the later attempt's figures, or none
    assert run.samples.devices["CPU:0"].pool_bytes.tolist() == [50, MISSING, 70, MISSING]
    assert run.samples.devices["CPU:0"].largest_free_bytes.tolist() == [5, MISSING, 7, MISSING]


def test_all_attempts_keeps_every_step_of_every_session() -> None:
    sessions = [
        ("", session("a", START, samples=make_samples(range(10), [100] * 10), snapshots=(make_snapshot(7),))),
        (
            "",
            session(
                "b", START + 99, samples=make_samples([5, 6], [1, 2], start=START + 99), snapshots=(make_snapshot(7),)
            ),
        ),
    ]
    run = merge("r", sessions, all_attempts=True).run
    assert run.samples.step.tolist() == [*range(10), 5, 6] and len(run.snapshots) == 2


def test_steps_that_a_shorter_later_session_does_not_repeat_stay() -> None:
    sessions = [
        ("", session("a", START, samples=make_samples(range(10), range(100, 110)))),
        ("", session("b", START + 99, samples=make_samples([4, 5], [1, 2], start=START + 99))),
    ]
    run = merge("r", sessions).run
    assert run.samples.step.tolist() == list(range(10))
    assert run.samples.devices["CPU:0"].peak_bytes.tolist() == [100, 101, 102, 103, 1, 2, 106, 107, 108, 109]


def test_a_prediction_only_session_replaces_no_training_step() -> None:
    sessions = [
        ("", session("a", START, samples=make_samples(range(5), [9] * 5))),
        ("", session("b", START + 99, samples=make_samples([0, 0], [1, 2], phase="predict", start=START + 99))),
    ]
    assert len(merge("r", sessions).run.samples) == 7


def test_an_evaluation_before_the_training_is_shown_with_it() -> None:
    validation = make_snapshot(3)
    evaluated = session(
        "a",
        START,
        samples=make_samples(range(6), [500] * 6, phase="validation"),
        tables=(make_table(0, unfrozen=False),),
        snapshots=(dataclasses.replace(validation, phase="validation"),),
    )
    later = START + 60
    trained = session(
        "b", later, samples=make_samples(range(10), [200] * 10, start=later), tables=(make_table(0, unfrozen=False),)
    )
    run = merge("r", [("", evaluated), ("", trained)]).run
    validated = run.samples.phase == PHASES.index("validation")
    assert run.samples.devices["CPU:0"].peak_bytes[validated].tolist() == [500] * 6
    assert len(run.samples) == 16 and len(run.layer_tables) == 2 and [one.step for one in run.snapshots] == [3]
    # BUT the same traced step of a later session replaces its own
    again = dataclasses.replace(trained, snapshots=evaluated.snapshots)
    assert len(merge("r", [("", evaluated), ("", again)]).run.snapshots) == 1
    # AND what a training validated is replaced with its steps
    mixed = dataclasses.replace(evaluated, samples=join_samples([evaluated.samples, make_samples([5], [9])])[0])
    assert len(merge("r", [("", mixed), ("", trained)]).run.samples) == 10


def test_a_summary_session_beside_the_recorder_replaces_none_of_its_figures() -> None:
    # GIVEN both writing into one run at the same time, as the README shows
    sessions = [
        (
            "",
            session(
                "a", START, samples=make_samples(range(5), [9] * 5), activations=make_activations([1], ["x"], [[1]])
            ),
        ),
        ("", session("b", START + 1, activations=make_activations([0, 1], ["y"], [[7], [8]]))),
    ]
    run = merge("r", sessions).run
    assert run.workers == ("",) and len(run.samples) == 5
    assert run.activations.layers == ("x", "y")
    rows = dict(zip(run.activations.step.tolist(), run.activations.bytes.tolist(), strict=False))
    assert rows[0] == [MISSING, 7] and run.activations.step.tolist() == [0, 1, 1]


def test_a_layer_recorded_again_for_the_same_steps_counts_once() -> None:
    sessions = [
        ("", session("a", START, activations=make_activations([0, 1, 2], ["x", "y"], [[1, 2], [3, 4], [5, 6]]))),
        ("", session("b", START + 1, activations=make_activations([1, 2], ["x"], [[30], [50]]))),
    ]
    table = merge("r", sessions).run.activations
    of_x = {
        (step, value)
        for step, value in zip(table.step.tolist(), table.bytes[:, 0].tolist(), strict=True)
        if value != MISSING
    }
    of_y = {
        (step, value)
        for step, value in zip(table.step.tolist(), table.bytes[:, 1].tolist(), strict=True)
        if value != MISSING
    }
    assert of_x == {(0, 1), (1, 30), (2, 50)} and of_y == {(0, 2), (1, 4), (2, 6)}


def test_workers_keep_their_own_devices() -> None:
    # GIVEN two workers with a GPU:0 each
    sessions = [
        (
            "w0",
            session(
                "a",
                START,
                samples=make_samples([0, 1], [10, 11], device="GPU:0"),
                snapshots=(make_snapshot(0, device="GPU:0"),),
            ),
        ),
        (
            "w1",
            session(
                "b",
                START,
                samples=make_samples([0, 1], [20, 21], device="GPU:0"),
                tables=(make_table(0, unfrozen=False),),
            ),
        ),
    ]
    merged = merge("r", sessions)
    # THEN their figures are kept apart, and each is whole on its own
    assert merged.run.workers == ("w0", "w1")
    samples = merged.run.samples
    assert samples.step.tolist() == [0, 0, 1, 1]
    assert samples.devices["w0/GPU:0"].peak_bytes.tolist() == [10, MISSING, 11, MISSING]
    assert samples.devices["w1/GPU:0"].peak_bytes.tolist() == [MISSING, 20, MISSING, 21]
    assert [snapshot.device for snapshot in merged.run.snapshots] == ["w0/GPU:0"]
    assert merged.by_worker["w0"].samples.devices["GPU:0"].peak_bytes.tolist() == [10, 11]
    assert len(merged.run.layer_tables) == 1


def test_two_processes_in_one_directory_at_once_are_two_workers() -> None:
    # GIVEN a second session that begins while the first one still records
    sessions = [
        ("", session("a", START, samples=make_samples(range(100), [10] * 100))),
        ("", session("b", START + 5, samples=make_samples(range(100), [20] * 100, start=START + 5))),
    ]
    # THEN none replaces the other
    run = merge("r", sessions).run
    assert run.workers == ("", "b") and set(run.samples.devices) == {"CPU:0", "b/CPU:0"}
    assert len(run.samples) == 200


def test_sessions_that_followed_each_other_are_one_worker_whatever_the_clock_says() -> None:
    # GIVEN a resumed training on a machine whose clock is an hour behind that of the first one
    sessions = [
        ("", session("b", START, samples=make_samples(range(10), [10] * 10))),
        ("", session("a", START - 3600, samples=make_samples(range(5, 12), [20] * 7, start=START - 3598))),
    ]
    numbered = [
        (worker, dataclasses.replace(one, info=dataclasses.replace(one.info, earlier=at)))
        for at, (worker, one) in enumerate(sessions)
    ]
    for order in (numbered, numbered[::-1]):
        run = merge("r", order).run
        assert run.workers == ("",) and run.samples.step.tolist() == list(range(12))
        assert run.samples.devices["CPU:0"].peak_bytes.tolist() == [10] * 5 + [20] * 7


def test_notes_are_told_once() -> None:
    sessions = [("", session("a", START, notes=["x", "y"])), ("", session("b", START + 1, notes=["x"]))]
    assert merge("r", sessions).run.notes == ("x", "y")


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


def test_tables_over_the_limit_are_cut_and_say_so(monkeypatch: Any) -> None:
    from tb_memplugin.reader.decode import columns

    monkeypatch.setattr(columns, "MAX_TABLE_BYTES", 48 * 3)
    joined, sentence = columns.join_samples([make_samples([0, 1], [1, 1]), make_samples([2], [1], device="GPU:0")])
    assert list(joined.devices) == ["CPU:0"] and sentence is not None and "1 of 2 devices" in sentence
    table, sentence = columns.join_activations([make_activations(range(30), ["x"], np.ones((30, 1)))])
    assert len(table) == 18 and sentence is not None and "12 of 30 rows" in sentence
