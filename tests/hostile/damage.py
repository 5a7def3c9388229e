"""Honest runs of which everything is known, and damage to their files. Everything follows from a
seed."""

import dataclasses
import pathlib
import time
from collections.abc import Callable
from unittest import mock

import numpy as np
from reading_cases import (
    START,
    event_files,
    make_activations,
    make_samples,
    make_snapshot,
    make_table,
)
from tensorboard.compat.proto import event_pb2

from tb_memplugin.schema import MISSING, Run
from tb_memplugin.storage.frames import tfrecord
from tb_memplugin.storage.write import RunWriter, run_writer

Random = np.random.Generator


HonestSession = tuple[pathlib.Path, dict[int, int]]
"""Its file, and step to the peak that it recorded, which is the bytes of layer ``x`` as well."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One damaged run.

    Attributes:
        name: Its name, which tells the kind of damage.
        complete: Step to the peak that the undamaged run shows.
        allowed: Step to the peaks that may be shown. Those of an earlier session are among them
            only for steps beyond the last readable record of a later one: nothing tells that it
            reached them.
        allowed_activations: The same for activations; a session without a readable one replaces
            none.
        may_be_silent: Whether the damage leaves no trace: the file ends earlier, but between two
            records.
    """

    name: str
    complete: dict[int, int]
    allowed: dict[int, set[int]]
    allowed_activations: dict[int, set[int]]
    may_be_silent: bool


def write_honest(directory: pathlib.Path, random: Random) -> list[HonestSession]:
    """One to three sessions, each of which repeats steps of the one before; no two steps have the
    same figures."""
    sessions: list[HonestSession] = []
    first = 0
    for number in range(int(random.integers(1, 4))):
        start = START + 10_000 * number
        last = first + int(random.integers(8, 40))
        began = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(start))
        identifier = f"{began}-{int(random.integers(2**32)):08x}"
        with (
            mock.patch.object(run_writer, "new_session_id", return_value=identifier),
            mock.patch.object(time, "time", return_value=start - 1.0),
        ):
            writer = RunWriter(directory)
        writer.layer_table(make_table(first, unfrozen=bool(number % 2)))
        rows = int(random.integers(1, 8))
        peaks: dict[int, int] = {}
        for at in range(first, last, rows):
            steps = range(at, min(at + rows, last))
            values = [
                1_000_000 * (number + 1) + 7 * step + int(random.integers(0, 7)) for step in steps
            ]
            writer.samples(make_samples(steps, values, start=start))
            writer.activations(make_activations(steps, ["x"], [[value] for value in values]))
            peaks.update(zip(steps, values, strict=True))
        writer.traced(make_snapshot(last - 1))
        writer.close()
        (path,) = set(event_files(directory)) - {path for path, _ in sessions}
        sessions.append((path, peaks))
        first = int(random.integers(first + 1, last))
    return sessions


def allowed_peaks(
    sessions: list[HonestSession], damaged: int, last_known: int
) -> dict[int, set[int]]:
    """See `Case.allowed`; `last_known` is the last step of a readable record of the damaged
    session."""
    allowed: dict[int, set[int]] = {}
    for number, (_, peaks) in enumerate(sessions):
        for step, peak in peaks.items():
            if number == damaged and step > last_known:
                allowed.setdefault(step, set()).add(peak)
            else:
                allowed[step] = {peak}
    return allowed


def _place(content: bytes, random: Random, size: int = 1) -> int:
    return int(random.integers(0, max(1, len(content) - size)))


def flip(content: bytes, random: Random) -> bytes:
    changed = bytearray(content)
    for _ in range(int(random.integers(1, 6))):
        changed[_place(content, random)] ^= int(random.integers(1, 256))
    return bytes(changed)


def cut(content: bytes, random: Random) -> bytes:
    return content[: _place(content, random)]


def hole(content: bytes, random: Random) -> bytes:
    size = int(random.integers(1, 3000))
    at = _place(content, random, size)
    filling = (
        bytes(size) if random.random() < 0.5 else random.integers(0, 256, size, np.uint8).tobytes()
    )
    return (content[:at] + filling + content[at + size :])[: len(content)]


def stray(content: bytes, random: Random) -> bytes:
    at = _place(content, random)
    return (
        content[:at]
        + random.integers(0, 256, int(random.integers(1, 40)), np.uint8).tobytes()
        + content[at:]
    )


def missing(content: bytes, random: Random) -> bytes:
    size = int(random.integers(1, 2000))
    at = _place(content, random, size)
    return content[:at] + content[at + size :]


def twice(content: bytes, random: Random) -> bytes:
    at = _place(content, random)
    return content[:at] + content


def swapped(content: bytes, random: Random) -> bytes:
    """Two whole records change places."""
    spans = _records(content)
    if len(spans) < 3:
        return content
    one, two = sorted(int(at) for at in random.choice(len(spans), 2, replace=False))
    parts = [content[begin:end] for begin, end in spans]
    parts[one], parts[two] = parts[two], parts[one]
    return b"".join(parts)


def garbage(content: bytes, random: Random) -> bytes:
    return random.integers(0, 256, len(content), np.uint8).tobytes()


DAMAGE: tuple[Callable[[bytes, Random], bytes], ...] = (
    *(flip, flip, flip, cut, hole, stray, missing, twice, swapped, garbage),
)


def make_case(logdir: pathlib.Path, number: int, seed: int) -> Case:
    """Write a run and damage one of its files."""
    random = np.random.default_rng([seed, number])
    damage = DAMAGE[int(random.integers(len(DAMAGE)))]
    name = f"{number:05}_{damage.__name__}"
    sessions = write_honest(logdir / name, random)
    chosen = int(random.integers(len(sessions)))
    path, _ = sessions[chosen]
    content = path.read_bytes()
    damaged = damage(content, random)
    path.write_bytes(damaged)
    spans = _records(content)
    records = [content[begin:end] for begin, end in spans]
    # A layer table tells that a session began, not that it trained a step.
    readable = [record for record in records if record in damaged and b"meta/" not in record]
    last_known = max(
        (event_pb2.Event.FromString(record[12:-4]).step for record in readable), default=-1
    )
    has_activations = any(b"activations/" in record for record in readable)
    return Case(
        name,
        {step: peak for _, peaks in sessions for step, peak in peaks.items()},
        allowed_peaks(sessions, chosen, last_known),
        allowed_peaks(sessions, chosen, last_known if has_activations else -1),
        content.startswith(damaged) and len(damaged) in {0, *(end for _, end in spans)},
    )


def faults(case: Case, run: Run | None) -> list[str]:
    """What is wrong with the shown run: figures that were not recorded or are superseded, and
    unreported losses."""
    if run is None:
        return [] if case.may_be_silent else ["the run is not listed, without a word"]
    samples, table = run.samples, run.activations
    steps = samples.step.tolist()
    found = ["a step is shown twice"] if len(set(steps)) < len(steps) else []
    found += [
        f"{device}: peak {peak} at step {step}"
        for device, figures in samples.devices.items()
        for step, peak in zip(steps, figures.peak_bytes.tolist(), strict=True)
        if peak not in case.allowed.get(step, ())
    ]
    cells = (
        dict(zip(table.step.tolist(), table.bytes[:, 0].tolist(), strict=True))
        if table.layers
        else {}
    )
    found += [
        f"activations {size} at step {step}"
        for step, size in cells.items()
        if size not in {MISSING, *case.allowed_activations.get(step, ())}
    ]
    whole = set(case.complete)
    if (set(steps) != whole or set(cells) != whole) and not run.damage and not case.may_be_silent:
        found.append("figures are missing without a word")
    return found


def _records(content: bytes) -> list[tuple[int, int]]:
    parts = tfrecord.walk_records(
        lambda offset, size: content[offset : offset + size], 0, len(content)
    )
    return [
        (part.offset - 12, part.offset + len(part.data) + 4)
        for part in parts
        if isinstance(part, tfrecord.Record)
    ]
