"""Which tags hold the frames of each run."""

import dataclasses
import zlib
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import TypeAlias

from tb_memplugin.errors import NotFoundError
from tb_memplugin.storage.files import MAX_WORKERS, Listing
from tb_memplugin.storage.frames import Tag, parse_tag, run_name

MAX_SESSIONS = 1000
"""Most sessions shown per run, the newest."""

Entry: TypeAlias = tuple[str, str, Tag, Hashable]
"""Worker, event run, tag, mark of the tag."""


@dataclasses.dataclass(frozen=True)
class RunTags:
    """The tags of a run, or of one worker; `version` changes whenever their data does."""

    name: str
    version: str
    tags: tuple[Entry, ...]
    damage: tuple[str, ...]
    worker: str | None = None


def catalog_of(listing: Listing, damage: Mapping[str, Sequence[str]]) -> dict[str, RunTags]:
    tags: dict[str, list[Entry]] = {}
    sentences: dict[str, list[str]] = {}
    for event_run, of_run in listing.items():
        name, worker = run_name(event_run)
        unknown = 0
        for text, mark in of_run.items():
            tag = parse_tag(text)
            # Only the writers' spelling: "samples/s/01" would be read under another name.
            if tag is None or str(tag) != text:
                unknown += 1
            else:
                tags.setdefault(name, []).append((worker, event_run, tag, mark))
        if unknown:
            sentence = f"run {event_run}: {unknown} tags are unknown to this version and not shown"
            sentences.setdefault(name, []).append(sentence)
    for event_run, texts in damage.items():
        sentences.setdefault(run_name(event_run)[0], []).extend(texts)
    runs = {}
    for name in sorted(tags.keys() | sentences.keys()):
        entries = tuple(sorted(tags.get(name, ()), key=lambda entry: (entry[1], entry[2])))
        texts = tuple(sentences.get(name, ()))
        runs[name] = RunTags(name, version_of((entries, texts)), entries, texts)
    return runs


def version_of(data: object) -> str:
    return f"{zlib.crc32(repr(data).encode()):08x}"


def of_worker(tags: RunTags, worker: str) -> RunTags:
    entries = tuple(entry for entry in tags.tags if entry[0] == worker)
    return RunTags(tags.name, version_of(entries), entries, (), worker)


def workers_of(tags: RunTags) -> tuple[str, ...]:
    return tuple(sorted({entry[0] for entry in tags.tags}))


def of_session(tags: RunTags, session: str) -> RunTags:
    entries = tuple(entry for entry in tags.tags if entry[2].session == session)
    if not entries:
        known = ", ".join(sorted({entry[2].session for entry in tags.tags})[-10:])
        raise NotFoundError(
            f"run {tags.name} has no session {session!r:.200}; available: {known or 'none'}"
        )
    return dataclasses.replace(tags, tags=entries)


def entries_of(tags: RunTags, streams: Collection[str]) -> tuple[list[Entry], list[str]]:
    """The entries of some streams of the workers and sessions that are shown, and a sentence on
    each kind of others."""
    entries = [entry for entry in tags.tags if entry[2].stream in streams]
    sentences = []
    workers = sorted({entry[0] for entry in entries})
    if len(workers) > MAX_WORKERS:
        sentences.append(
            f"{len(workers) - MAX_WORKERS} of {len(workers)} workers: only the first {MAX_WORKERS} "
            "by name are read"
        )
        shown = set(workers[:MAX_WORKERS])
        entries = [entry for entry in entries if entry[0] in shown]
    # Identifiers of sessions sort by start time.
    sessions = sorted({(entry[2].session, entry[0]) for entry in entries})
    if len(sessions) > MAX_SESSIONS:
        left_out = len(sessions) - MAX_SESSIONS
        sentences.append(
            f"{left_out} of {len(sessions)} sessions: only the last {MAX_SESSIONS} are read"
        )
        newest = set(sessions[-MAX_SESSIONS:])
        entries = [entry for entry in entries if (entry[2].session, entry[0]) in newest]
    return entries, sentences


def no_records(logdir: str) -> NotFoundError:
    return NotFoundError(
        f"no memory records under {logdir}; record a run with tb_memplugin.MemoryCallback or "
        "MemoryRecorder"
    )
