"""Sessions from decoded frames, with sentences on the frames that are missing; and the run from its
sessions. Pure.

A resumed training is a second session that repeats some steps; the later session's data replaces
the earlier one's. Processes that record at the same time are workers, and the data of all is kept.
Each worker has its own subdirectory; if two write into the same one, the session identifies them.
Devices of workers other than ``""`` are named ``<worker>/<device>``."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from tb_memplugin.schema import (
    PHASES,
    LayerTable,
    Run,
    Samples,
    Session,
    SessionInfo,
    thinned_note,
    with_failed_steps,
)
from tb_memplugin.storage.files import Entry
from tb_memplugin.storage.frames import Tag, start_of
from tb_memplugin.storage.reading import DecodedTag, Piece, Pieces
from tb_memplugin.storage.streams import (
    ACTIVATIONS,
    MERGED,
    META,
    OF_TAG,
    ON_THE_WAY,
    SAMPLES,
    LaterSessions,
    Stream,
)
from tb_memplugin.storage.write import MAX_SAMPLE_ROWS

_FIRST_TABLE = 1
"""Sequence number of the first layer table: the first record holds the session's facts."""
MAX_SENTENCES = 30
"""Sentences on damage shown per run; further ones are counted."""

Lost: TypeAlias = tuple[int, int, int, Piece]
"""A gap between frames: the first and the last step that it may hold, the number of frames, the
frame after it."""


def gaps_of(pieces: Sequence[Piece], earliest: int = 0) -> Iterator[Lost]:
    """The gaps before the last frame of a stream; `earliest` is the session's first step."""
    expected, last_step = 0, earliest - 1
    for piece in pieces:
        if piece.sequence > expected:
            yield last_step + 1, piece.first_step - 1, piece.sequence - expected, piece
        expected, last_step = piece.sequence + 1, max(last_step, piece.last_step)


def first_step_of(streams: Pieces) -> int:
    """The least step that the session's samples can have.

    It follows from the recorder's first layer table. Without one, lost frames are taken to be as
    long as they may be.
    """
    for piece in streams.get(META, ()):
        if piece.sequence == _FIRST_TABLE and isinstance(piece.value, LayerTable):
            return piece.value.step
    samples = streams.get(SAMPLES, ())
    return max(0, samples[0].first_step - samples[0].sequence * MAX_SAMPLE_ROWS) if samples else 0


def lost_steps(streams: Pieces) -> tuple[tuple[int, int], ...]:
    """Ranges of steps whose samples are lost; see `Session.lost_steps`."""
    earliest, samples = first_step_of(streams), streams.get(SAMPLES, ())
    found = [(first, last) for first, last, _, _ in gaps_of(samples, earliest)]
    reached = max((piece.last_step for piece in samples), default=earliest - 1)
    facts = _facts(streams)
    if facts is None or facts.producer == "recorder":
        # Other records of later steps say that their samples were lost. Other producers write no
        # samples.
        later = max(
            (piece.last_step for stream in ON_THE_WAY for piece in streams.get(stream, ())),
            default=reached,
        )
        found.append((reached + 1, later))
    return tuple((first, last) for first, last in found if first <= last)


def lost_activation_steps(streams: Pieces) -> tuple[tuple[int, int], ...]:
    """Ranges of steps whose activations are lost; lost first frames are taken to be as long as the
    longest other."""
    pieces = streams.get(ACTIVATIONS, ())
    if not pieces:
        return ()
    longest = max(piece.last_step - piece.first_step + 1 for piece in pieces)
    earliest = max(0, pieces[0].first_step - pieces[0].sequence * longest)
    return tuple((first, last) for first, last, _, _ in gaps_of(pieces, earliest) if first <= last)


def by_session(
    wanted: Iterable[Entry], decoded: Mapping[tuple[str, Tag], DecodedTag]
) -> dict[tuple[str, str], dict[Stream, list[Piece]]]:
    """(worker, session) to stream to its pieces in order, each sequence number once."""
    sessions: dict[tuple[str, str], dict[Stream, dict[int, Piece]]] = {}
    for worker, run, tag, _ in wanted:
        content = decoded.get((run, tag))
        if content is not None and content.pieces:
            stream = sessions.setdefault((worker, tag.session), {}).setdefault(
                OF_TAG[tag.stream], {}
            )
            stream.update((piece.sequence, piece) for piece in content.pieces)
    return {
        key: {stream: [pieces[at] for at in sorted(pieces)] for stream, pieces in streams.items()}
        for key, streams in sessions.items()
    }


def session_from_pieces(
    identifier: str, streams: Pieces, samples: Samples
) -> tuple[Session, list[str]]:
    """Build a session from its pieces and its joined samples.

    The last facts are used; a session without facts still shows its data. Also returns sentences on
    missing frames and on data left out."""
    fields: dict[str, Any] = {SAMPLES.field: samples}
    sentences: list[str] = []
    for stream in MERGED[1:]:
        fields[stream.field], sentence = stream.of_frames(
            [piece.value for piece in streams.get(stream, ())]
        )
        sentences += [sentence] if sentence else []
    fields["snapshots"] = with_failed_steps(fields["snapshots"], fields["ooms"])
    info = _facts(streams)
    if info is None:
        times = [
            float(table.wall_time.min()) for table in (samples, fields["activations"]) if len(table)
        ]
        named = start_of(identifier)
        note = (
            f"the start time and versions of session {identifier} could not be read; its data is "
            "shown"
        )
        started = min(times, default=0.0) if named is None else named
        info = SessionInfo(identifier, started, "recorder", {}, (note,))
    for stream in MERGED:
        first = first_step_of(streams) if stream is SAMPLES else 0
        sentences.extend(gaps(identifier, stream, streams.get(stream, ()), first))
    lost, lost_activations = lost_steps(streams), lost_activation_steps(streams)
    return Session(
        info=info, lost_steps=lost, lost_activation_steps=lost_activations, **fields
    ), sentences


def gaps(
    identifier: str, stream: Stream, pieces: Sequence[Piece], earliest: int = 0
) -> Iterator[str]:
    """Sentences on frames missing before the last one of a stream; `earliest` is the session's
    first step."""
    for first, last, frames, after in gaps_of(pieces, earliest):
        if stream in (SAMPLES, ACTIVATIONS) and first <= last:
            steps = (
                f"steps {first} to {last} are missing"
                if first < last
                else (f"step {first} is missing")
            )
        else:
            steps = f"data between step {max(first - 1, 0)} and step {after.first_step} is missing"
        records = "1 record" if frames == 1 else f"{frames} records"
        yield f"session {identifier}, {stream.words}: {steps} ({records} lost)"


def limited(sentences: Sequence[str]) -> list[str]:
    if len(sentences) <= MAX_SENTENCES:
        return list(sentences)
    return [
        *sentences[:MAX_SENTENCES],
        f"{len(sentences) - MAX_SENTENCES} more messages on damaged data",
    ]


def _facts(streams: Pieces) -> SessionInfo | None:
    facts = [piece.value for piece in streams.get(META, ()) if isinstance(piece.value, SessionInfo)]
    return facts[-1] if facts else None


@dataclasses.dataclass(frozen=True)
class SessionSpan:
    """A session of the merged run; `first_step` is None if the session recorded no step."""

    session: str
    worker: str
    started: float
    first_step: int | None


@dataclasses.dataclass(frozen=True)
class MergedRun:
    """The run of all workers; that of each worker, with devices under their own names; sessions by
    start time."""

    run: Run
    by_worker: Mapping[str, Run]
    sessions: tuple[SessionSpan, ...]


def merge(
    name: str,
    sessions: Sequence[tuple[str, Session]],
    damage: Sequence[str] = (),
    all_attempts: bool = False,
    thinning: int = 1,
) -> MergedRun:
    """Merge (worker, session) pairs into a run.

    With `all_attempts`, repeated steps are kept, in order of the sessions. `thinning` is as in
    `Run`."""
    ordered = sorted(sessions, key=lambda pair: (pair[1].info.started, pair[1].info.session))
    lanes = _lanes(ordered)
    by_worker = {
        worker: _merge_sessions(name, worker, of_worker, all_attempts)
        for worker, of_worker in sorted(lanes.items())
    }
    run = by_worker[""] if set(by_worker) == {""} else _merge_workers(name, by_worker)
    if thinning > 1:
        by_worker = {worker: _thinned(one, thinning) for worker, one in by_worker.items()}
        run = _thinned(run, thinning)
    identifiers = tuple(session.info.session for _, session in ordered)
    run = dataclasses.replace(run, sessions=identifiers, damage=(*damage, *run.damage))
    spans = [
        SessionSpan(session.info.session, worker, session.info.started, _first_step(session))
        for worker, of_worker in lanes.items()
        for session in of_worker
    ]
    return MergedRun(
        run, by_worker, tuple(sorted(spans, key=lambda span: (span.started, span.session)))
    )


def _thinned(run: Run, thinning: int) -> Run:
    return dataclasses.replace(run, notes=(thinned_note(thinning), *run.notes), thinning=thinning)


def _lanes(ordered: Sequence[tuple[str, Session]]) -> dict[str, list[Session]]:
    """Worker to its sessions, in order.

    The sessions of a directory followed each other if each of them says how many there were before.
    Otherwise, one that starts before the worker's last one ended is a worker of its own."""
    lanes: dict[str, list[Session]] = {}
    for worker in dict.fromkeys(worker for worker, _ in ordered):
        own = [session for of, session in ordered if of == worker]
        numbers = [session.info.earlier for session in own]
        if None not in numbers and len(set(numbers)) == len(numbers):
            lanes[worker] = sorted(own, key=lambda session: session.info.earlier or 0)
    ends: dict[str, float] = {}
    for worker, session in [
        (worker, session) for worker, session in ordered if worker not in lanes
    ]:
        times = session.samples.wall_time
        lane = worker
        if len(times):
            if times.min() < ends.get(worker, -np.inf):
                lane = f"{worker}/{session.info.session}" if worker else session.info.session
            ends[lane] = max(float(times.max()), ends.get(lane, -np.inf))
        lanes.setdefault(lane, []).append(session)
    return lanes


def _merge_sessions(name: str, worker: str, sessions: Sequence[Session], all_attempts: bool) -> Run:
    contents = {
        stream: [getattr(session, stream.field) for session in sessions] for stream in MERGED
    }
    hidden: list[str] = []
    later = LaterSessions()
    # From the last session backward, so that the steps of later sessions are known.
    for at in range(len(sessions) - 1, -1, -1) if not all_attempts else ():
        for stream, of_sessions in contents.items():
            of_sessions[at] = stream.without_repeats(of_sessions[at], later.replacing(sessions[at]))
        hidden[:0] = _hidden_by_losses(sessions[at], sessions[:at])
        later.add(sessions[at])
    merged = {
        stream.field: stream.of_sessions(contents[stream], not all_attempts) for stream in MERGED
    }
    last = sessions[-1].info if sessions else None
    return Run(
        name=name,
        sessions=tuple(session.info.session for session in sessions),
        workers=(worker,),
        notes=tuple(dict.fromkeys(note for session in sessions for note in _notes(session.info))),
        damage=tuple(hidden),
        session_starts=tuple(session.info.started for session in sessions),
        ended=None if last is None or last.producer != "recorder" else last.ended is not None,
        **merged,
    )


def _hidden_by_losses(session: Session, earlier: Sequence[Session]) -> list[str]:
    """Sentences on steps that `session` repeated and lost, so that neither its nor an earlier
    session's are shown."""
    sentences, train = [], PHASES.index("train")
    for first, last in session.lost_steps:
        hidden = [
            one.info.session
            for one in earlier
            if (
                (one.samples.phase == train)
                & (one.samples.step >= first)
                & (one.samples.step <= last)
            ).any()
        ]
        if hidden:
            steps = f"steps {first} to {last}" if first < last else f"step {first}"
            sentences.append(
                f"session {session.info.session}: nothing is shown for {steps}, which it "
                f"repeated and whose samples are lost; session {hidden[-1]} recorded them before"
            )
    return sentences


def _notes(info: SessionInfo) -> tuple[str, ...]:
    if info.analyzing is None:
        return info.notes
    return (
        *info.notes,
        f"Traced step {info.analyzing} is still being analyzed, unless its process was killed.",
    )


def _merge_workers(name: str, by_worker: Mapping[str, Run]) -> Run:
    merged, left_out = {}, []
    for stream in MERGED:
        of_workers = {worker: getattr(run, stream.field) for worker, run in by_worker.items()}
        merged[stream.field], sentence = stream.of_workers(of_workers)
        left_out += [sentence] if sentence else []
    notes = (
        f"{worker}: {note}" if worker else note
        for worker, run in by_worker.items()
        for note in run.notes
    )
    return Run(
        name=name,
        sessions=(),
        workers=tuple(by_worker),
        notes=tuple(dict.fromkeys(notes)),
        damage=(*itertools.chain(*(run.damage for run in by_worker.values())), *left_out),
        session_starts=tuple(
            sorted(start for run in by_worker.values() for start in run.session_starts)
        ),
        **merged,
    )


def _first_step(session: Session) -> int | None:
    steps = [int(part.step.min()) for part in (session.samples, session.activations) if len(part)]
    steps += [table.step for table in session.layer_tables] + [
        snapshot.step for snapshot in session.snapshots
    ]
    steps += [oom.step for oom in session.ooms if oom.step is not None]
    return min(steps, default=None)
