"""Thins the samples of a run that has more of them than are shown: it keeps the highest peaks and the newest steps."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from tb_memplugin.schema import MISSING, DeviceSamples, Integers, Samples, take_rows
from tb_memplugin.storage.frames import Tag
from tb_memplugin.storage.read.columns import (
    SamplesPart,
    empty_samples,
    join_samples,
    samples_bytes,
    tables_of,
)
from tb_memplugin.storage.read.decoding import PIECE_BYTES, DecodedTag, Piece
from tb_memplugin.storage.read.streams import OF_TAG, SAMPLES

Contents: TypeAlias = dict[tuple[str, Tag], DecodedTag]
"""Event run and tag to its content."""


def thinned(samples: Samples, halvings: int = 1) -> Samples:
    """At most about one row of 2^`halvings`: of neighbors in a phase, those with the highest peak of each device.

    The first and the last row of each phase stay.
    """
    keep = np.zeros(len(samples), np.bool_)
    heights = [_height(figures) for figures in samples.devices.values()] or [samples.host_resident_bytes]
    for phase in np.unique(samples.phase):
        rows = np.flatnonzero(samples.phase == phase)
        keep[rows[[0, -1]]] = True
        for height in heights:
            keep[rows[_highest(height[rows], len(heights) << halvings)]] = True
    return samples if keep.all() else take_rows(samples, keep)


def _height(figures: DeviceSamples) -> Integers:
    return np.where(figures.peak_bytes == MISSING, figures.in_use_bytes, figures.peak_bytes)


def _highest(column: Integers, group: int) -> Integers:
    """The row of the first highest value in each group of neighbors, without groups that have no value."""
    groups = np.pad(column, (0, -len(column) % group), constant_values=MISSING).reshape(-1, group)
    best = groups.argmax(axis=1)
    known = np.flatnonzero(groups[np.arange(len(groups)), best] != MISSING)
    rows: Integers = known * group + best[known]
    return rows


def thin_tags(contents: Contents, halvings: int = 1) -> None:
    """Thin the samples among the contents, those of each stream of a session together."""
    for keys in _by_session(contents):
        pieces = sorted((piece for key in keys for piece in contents[key].pieces), key=lambda piece: piece.sequence)
        table, _ = join_samples(tables_of([piece.value for piece in pieces]))
        table = thinned(table, halvings) if len(table) else table
        holder = pieces[0] if pieces else None
        for key in keys:
            own = tuple(
                _holding(piece, table if piece is holder else empty_samples()) for piece in contents[key].pieces
            )
            size, rows = 200 + sum(piece.size for piece in own), sum(piece.rows for piece in own)
            contents[key] = dataclasses.replace(contents[key], pieces=own, size=size, rows=rows)


def taken(contents: Mapping[tuple[str, Tag], DecodedTag]) -> tuple[int, int]:
    tags = [content for (_, tag), content in contents.items() if _has_samples(tag)]
    return sum(content.size for content in tags), sum(content.rows for content in tags)


def _by_session(contents: Contents) -> Iterator[Sequence[tuple[str, Tag]]]:
    found: dict[tuple[str, str, str], list[tuple[str, Tag]]] = {}
    for run, tag in contents:
        if _has_samples(tag):
            found.setdefault((run, tag.session, tag.stream), []).append((run, tag))
    return iter(found.values())


def _has_samples(tag: Tag) -> bool:
    return OF_TAG[tag.stream].field == SAMPLES.field


def _holding(piece: Piece, table: Samples) -> Piece:
    size = PIECE_BYTES + (samples_bytes(table) if len(table) else 0)
    return dataclasses.replace(piece, value=SamplesPart(table, 0, 1), size=size, rows=len(table))
