"""Damaged and truncated files: no exception, no wrong data, and losses are reported."""

import pathlib

import numpy as np
import pytest
from reading_cases import (
    equal,
    event_files,
    make_activations,
    make_samples,
    make_snapshot,
    make_table,
)

from tb_memplugin.schema import Run
from tb_memplugin.storage import ALL, Reader
from tb_memplugin.storage.files import FileSource
from tb_memplugin.storage.write import RunWriter

PEAKS = {step: 1000 + 7 * step for step in range(8)}
TABLES = (make_table(0, unfrozen=False), make_table(6, unfrozen=True))
SNAPSHOTS = (make_snapshot(2),)
ACTIVATIONS = {
    (step, layer): 10 * step + at for step in range(4) for at, layer in enumerate(("x", "y"))
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a run's one event file."""
    directory = tmp_path_factory.mktemp("whole")
    writer = RunWriter(directory)
    writer.layer_table(TABLES[0])
    writer.activations(
        make_activations(range(4), ["x", "y"], [[10 * step, 10 * step + 1] for step in range(4)])
    )
    for first in (0, 4):
        steps = range(first, first + 4)
        writer.samples(make_samples(steps, [PEAKS[step] for step in steps]))
        if first == 0:
            writer.traced(SNAPSHOTS[0])
    writer.layer_table(TABLES[1])
    writer.close()
    return event_files(directory)[0].read_bytes()


def read(directory: pathlib.Path, content: bytes) -> Run | None:
    """The run whose file holds `content`, None if nothing of it is left."""
    path = directory / "exp" / "memory" / "events.out.tfevents.1"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    source, reader = FileSource(directory), Reader()
    return reader.run(source, "exp", ALL).run if "exp" in reader.catalog(source) else None


def losses(run: Run) -> list[str]:
    """Fails if anything shown is not what was written; the names of the parts that are
    incomplete."""
    samples, table = run.samples, run.activations
    peaks = samples.devices["CPU:0"].peak_bytes if len(samples) else samples.step
    shown = dict(zip(samples.step.tolist(), peaks.tolist(), strict=True))
    assert len(shown) == len(samples) and shown.items() <= PEAKS.items()
    assert all(any(equal(table, written) for written in TABLES) for table in run.layer_tables)
    assert all(any(equal(snapshot, written) for written in SNAPSHOTS) for snapshot in run.snapshots)
    cells = {
        (int(step), layer): int(table.bytes[row, column])
        for row, step in enumerate(table.step)
        for column, layer in enumerate(table.layers)
    }
    assert cells.items() <= ACTIVATIONS.items()
    written = {
        "samples": PEAKS,
        "tables": TABLES,
        "snapshots": SNAPSHOTS,
        "activations": ACTIVATIONS,
    }
    found = {
        "samples": shown,
        "tables": run.layer_tables,
        "snapshots": run.snapshots,
        "activations": cells,
    }
    return [name for name, whole in written.items() if len(found[name]) != len(whole)]


def test_the_whole_file_loses_nothing(whole: bytes, tmp_path: pathlib.Path) -> None:
    run = read(tmp_path, whole)
    assert run is not None and losses(run) == [] and run.damage == () and run.notes == ()


@pytest.mark.parametrize("apart", [pytest.param(1, marks=pytest.mark.long), 13])
def test_flipped_bytes_and_truncations_give_no_wrong_data_and_are_reported(
    whole, tmp_path, apart: int
) -> None:
    random = np.random.default_rng(3)
    for at in range(0, len(whole), apart):
        damaged = bytearray(whole)
        damaged[at] ^= int(random.integers(1, 256))
        run = read(tmp_path, bytes(damaged))
        assert run is not None, at
        if losses(run) or run.notes:
            assert any("exp/memory" in sentence for sentence in run.damage), (
                f"byte {at}: {losses(run)} lost"
            )
    silent = 0
    for length in (
        *range(0, len(whole) - 1024, 17),
        *range(len(whole) - 1024, len(whole), min(apart, 7)),
    ):
        run = read(tmp_path, whole[:length])
        if run is not None:
            losses(run)
            assert not run.damage or "ends inside a record" in " ".join(run.damage)
            silent += length >= len(whole) - 1024 and not run.damage
    # Only a cut between two records leaves no trace: to the reader it is a run that is still being
    # written.
    assert silent <= 10
