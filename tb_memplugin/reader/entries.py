"""The tags of a run in groups that are read together."""

from collections.abc import Iterator, Sequence

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
