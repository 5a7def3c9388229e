"""From the bytes of one tag to checked model objects; what cannot be believed becomes a sentence."""

import dataclasses
from typing import TypeAlias

from tb_memplugin import codec, map_records, records
from tb_memplugin.codec import Frame
from tb_memplugin.errors import FormatError, NewerFormatError
from tb_memplugin.metadata import STREAMS, Tag
from tb_memplugin.model import AllocatorMap, LayerActivations, LayerTable, Oom, Samples, SessionInfo, Snapshot
from tb_memplugin.store.source import TagContent

Value: TypeAlias = SessionInfo | LayerTable | Samples | LayerActivations | Snapshot | AllocatorMap | Oom

_ROW_BYTES = 400
"""Estimate of what one row of a ledger or one layer takes as Python objects."""


@dataclasses.dataclass(frozen=True)
class Piece:
    """What one frame said.

    Attributes:
        sequence: Position of the frame in its stream and session.
        first_step, last_step: Range of its steps.
        value: Its content.
        size: Bytes that the content takes in memory, about.
    """

    sequence: int
    first_step: int
    last_step: int
    value: Value
    size: int


@dataclasses.dataclass(frozen=True)
class DecodedTag:
    """What one tag said.

    Attributes:
        pieces: Its frames in order of their sequence numbers.
        damage: Sentences on the frames that could not be read.
        newer: Of a newer format than this version reads: how to name the first such frame, else None.
        layers: Layer paths of its activations, in order of appearance.
        size: Bytes it takes in memory, about.
    """

    pieces: tuple[Piece, ...]
    damage: tuple[str, ...]
    newer: str | None
    layers: tuple[str, ...]
    size: int


def decode_tag(tag: Tag, content: TagContent) -> DecodedTag:
    """The checked content of one tag. Raises nothing for any bytes."""
    place = f"run {content.event_run}, tag {content.tag}"
    pieces: list[Piece] = []
    damage = [f"{place}: {sentence}" for sentence in content.damage]
    newer = None
    for stored in content.frames:
        try:
            pieces.append(_decode(tag, stored.data))
        except NewerFormatError as error:
            newer = newer or f"{place}: {error}"
        except FormatError as error:
            damage.append(f"{place}, event of step {stored.step}: {error}")
    pieces.sort(key=lambda piece: piece.sequence)
    layers = dict.fromkeys(
        path for piece in pieces if isinstance(piece.value, LayerActivations) for path in piece.value.layers
    )
    return DecodedTag(
        tuple(pieces), tuple(damage), newer, tuple(layers), 200 + sum(piece.size + 200 for piece in pieces)
    )


def _decode(tag: Tag, data: bytes) -> Piece:
    frame = codec.decode(data)
    if frame.stream >= len(STREAMS) or STREAMS[frame.stream] != tag.stream:
        raise FormatError(f"a frame of stream {frame.stream} does not belong under this tag")
    value: Value
    if tag.stream == "meta":
        value = records.read_meta(tag.session, frame)
        size = _ROW_BYTES * (1 + (len(value.layers) if isinstance(value, LayerTable) else 0))
    elif tag.stream == "snapshots":
        value = records.read_snapshot(frame)
        size = _ROW_BYTES * (1 + len(value.ledger) + len(value.held_for_backward))
    elif tag.stream == "maps":
        value = map_records.read_map(frame)
        size = _map_bytes(value)
    elif tag.stream == "oom":
        value = map_records.read_oom(frame)
        size = _ROW_BYTES * (1 + len(value.ledger)) + (0 if value.map is None else _map_bytes(value.map))
    elif tag.stream == "activations":
        value = records.read_activations(frame)
        _check_steps(frame, value)
        size = value.bytes.nbytes + 16 * len(value) + 100 * len(value.layers)
    else:
        value = records.read_samples(frame)
        _check_steps(frame, value)
        size = len(value) * 8 * (5 + 6 * len(value.devices))
    return Piece(frame.sequence, frame.first_step, frame.last_step, value, size)


def _map_bytes(taken: AllocatorMap) -> int:
    return 8 * 8 * len(taken) + _ROW_BYTES * (1 + len(taken.owners))


def _check_steps(frame: Frame, value: Samples | LayerActivations) -> None:
    # The header's steps name what is missing when a neighbour is lost, so they must be true.
    if not len(value) or int(value.step.min()) != frame.first_step or int(value.step.max()) != frame.last_step:
        raise FormatError(f"frame of steps {frame.first_step} to {frame.last_step} does not hold these steps")
