"""The tags of a run in groups that are read together."""

from collections.abc import Iterable, Iterator, Sequence

from tb_memplugin.reader.limits import Entry

GROUP_TAGS = 64
"""Tags that are decoded together before their sessions are joined and their frames let go."""


def groups(wanted: Sequence[Entry]) -> Iterator[list[Entry]]:
    """The entries by whole sessions, in groups of at least `GROUP_TAGS` tags."""
    by_session: dict[tuple[str, str], list[Entry]] = {}
    for entry in wanted:
        by_session.setdefault((entry[0], entry[2].session), []).append(entry)
    group: list[Entry] = []
    for entries in by_session.values():
        group += entries
        if len(group) >= GROUP_TAGS:
            yield group
            group = []
    if group:
        yield group


def by_event_run(entries: Iterable[Entry]) -> dict[str, list[str]]:
    """Event run to its tags, as a source reads them."""
    tags: dict[str, list[str]] = {}
    for _, event_run, tag, _ in entries:
        tags.setdefault(event_run, []).append(str(tag))
    return tags


def session_of(entry: Entry) -> tuple[str, str]:
    """Worker and session."""
    return entry[0], entry[2].session
