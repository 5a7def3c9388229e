"""Sessions from their tables, with sentences on the frames that are missing. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from tb_memplugin.schema import (
    LayerTable,
    Samples,
    Session,
    SessionInfo,
    take_rows,
    with_failed_steps,
)
from tb_memplugin.storage.decoding import Place
from tb_memplugin.storage.frames import start_of
from tb_memplugin.storage.samples import join_samples, rows_not_in
from tb_memplugin.storage.streams import (
    ACTIVATIONS,
    MERGED,
    META,
    ON_THE_WAY,
    PEAK,
    SAMPLES,
    Stream,
)
from tb_memplugin.storage.tables import RunTables, Table
from tb_memplugin.storage.write import MAX_SAMPLE_ROWS

_FIRST_TABLE = 1
"""Sequence number of the first layer table: the first record holds the session's facts."""
MAX_SENTENCES = 30
"""Sentences on damage shown per run; further ones are counted."""

Tables: TypeAlias = Mapping[Stream, Table]
"""The tables of a session by stream."""
Lost: TypeAlias = tuple[int, int, int, Place]
"""A gap between frames: the first and the last step that it may hold, the number of frames, the
frame after it."""


def sessions_of(parts: Iterable[RunTables]) -> tuple[list[tuple[str, Session]], list[str]]:
    """(worker, session) pairs in order of the sessions' names, and sentences on missing frames and
    on data left out. A session's streams may be in several `parts`."""
    tables: dict[tuple[str, str], dict[Stream, Table]] = {}
    for part in parts:
        for key, of_session in part.sessions.items():
            tables.setdefault(key, {}).update(of_session)
    sessions, sentences = [], []
    for worker, identifier in sorted(tables, key=lambda key: key[1]):
        session, missing = session_of(identifier, tables[worker, identifier])
        sessions.append((worker, session))
        sentences += missing
    return sessions, sentences


def session_of(identifier: str, tables: Tables) -> tuple[Session, list[str]]:
    """Build a session from its tables.

    The last facts are used; a session without facts still shows its data. Also returns sentences on
    missing frames and on data left out."""
    samples, sentences = _with_peaks(tables)
    fields: dict[str, Any] = {SAMPLES.field: samples}
    for stream in MERGED[1:]:
        fields[stream.field], sentence = tables.get(stream, Table(stream)).joined()
        sentences += [sentence] if sentence else []
    fields["snapshots"] = with_failed_steps(fields["snapshots"], fields["ooms"])
    info = _facts(tables)
    if info is None:
        times = [
            float(table.wall_time.min()) for table in (samples, fields["activations"]) if len(table)
        ]
        named = start_of(identifier)
        note = (
            f"the start time and versions of session {identifier} could not be read; its data "
            "is shown"
        )
        started = min(times, default=0.0) if named is None else named
        info = SessionInfo(identifier, started, "recorder", {}, (note,))
    for stream in MERGED:
        first = _first_step_of(tables) if stream is SAMPLES else 0
        sentences.extend(gaps(identifier, stream, _places(tables, stream), first))
    session = Session(
        info=info,
        lost_steps=_lost_steps(tables),
        lost_activation_steps=_lost_activation_steps(tables),
        **fields,
    )
    return session, sentences


def _with_peaks(tables: Tables) -> tuple[Samples, list[str]]:
    """The samples, and sentences on those left out. A peak replaces its sample if that was lost."""
    samples, sentence = tables.get(SAMPLES, Table(SAMPLES)).joined()
    sentences = [sentence]
    highest, _ = tables.get(PEAK, Table(PEAK)).joined()
    only_peaks = rows_not_in(highest, samples) if len(highest) else np.zeros(0, np.bool_)
    if only_peaks.any():
        samples, sentence = join_samples([samples, take_rows(highest, only_peaks)])
        sentences.append(sentence)
        samples = take_rows(samples, np.argsort(samples.wall_time, kind="stable"))
    return samples, [text for text in sentences if text]


def _places(tables: Tables, stream: Stream) -> list[Place]:
    return tables[stream].places if stream in tables else []


def _gaps(places: Sequence[Place], earliest: int = 0) -> Iterator[Lost]:
    """The gaps before the last frame of a stream; `earliest` is the session's first step."""
    expected, last_step = 0, earliest - 1
    for place in places:
        if place.sequence > expected:
            yield last_step + 1, place.first_step - 1, place.sequence - expected, place
        expected, last_step = place.sequence + 1, max(last_step, place.last_step)


def _first_step_of(tables: Tables) -> int:
    """The least step that the session's samples can have.

    It follows from the recorder's first layer table. Without one, lost frames are taken to be as
    long as they may be.
    """
    table = tables[META].values.get(_FIRST_TABLE) if META in tables else None
    if isinstance(table, LayerTable):
        return table.step
    samples = _places(tables, SAMPLES)
    return max(0, samples[0].first_step - samples[0].sequence * MAX_SAMPLE_ROWS) if samples else 0


def _lost_steps(tables: Tables) -> tuple[tuple[int, int], ...]:
    """Ranges of steps whose samples are lost; see `Session.lost_steps`."""
    earliest, samples = _first_step_of(tables), _places(tables, SAMPLES)
    found = [(first, last) for first, last, _, _ in _gaps(samples, earliest)]
    reached = max((place.last_step for place in samples), default=earliest - 1)
    facts = _facts(tables)
    if facts is None or facts.producer == "recorder":
        # Other records of later steps say that their samples were lost. Other producers write no
        # samples.
        later = (place.last_step for stream in ON_THE_WAY for place in _places(tables, stream))
        found.append((reached + 1, max(later, default=reached)))
    return tuple((first, last) for first, last in found if first <= last)


def _lost_activation_steps(tables: Tables) -> tuple[tuple[int, int], ...]:
    """Ranges of steps whose activations are lost; lost first frames are taken to be as long as the
    longest other."""
    places = _places(tables, ACTIVATIONS)
    if not places:
        return ()
    longest = max(place.last_step - place.first_step + 1 for place in places)
    earliest = max(0, places[0].first_step - places[0].sequence * longest)
    return tuple((first, last) for first, last, _, _ in _gaps(places, earliest) if first <= last)


def gaps(
    identifier: str, stream: Stream, places: Sequence[Place], earliest: int = 0
) -> Iterator[str]:
    """Sentences on frames missing before the last one of a stream; `earliest` is the session's
    first step."""
    for first, last, frames, after in _gaps(places, earliest):
        if stream in (SAMPLES, ACTIVATIONS) and first <= last:
            several = f"steps {first} to {last} are missing"
            steps = several if first < last else f"step {first} is missing"
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


def _facts(tables: Tables) -> SessionInfo | None:
    records = tables[META].values if META in tables else {}
    facts = [at for at, record in records.items() if isinstance(record, SessionInfo)]
    return records[max(facts)] if facts else None
