"""A resumed training with a damaged frame: superseded figures stay superseded."""

import pathlib

import pytest
from reading_cases import START, event_files, make_activations, make_samples, make_snapshot, make_table

from tb_memplugin.events.metadata import start_of
from tb_memplugin.events.run_writer import RunWriter
from tb_memplugin.model import Run
from tb_memplugin.reader.decode.streams import ACTIVATIONS, BASIC
from tb_memplugin.reader.files import tfrecord
from tb_memplugin.reader.files.file_source import FileSource
from tb_memplugin.reader.run_reader import Reader


def write(directory: pathlib.Path, first: int, last: int, peak: int, start: float, table: bool = True) -> pathlib.Path:
    """One session of the given steps, three to a frame."""
    before = set(event_files(directory)) if directory.exists() else set()
    writer = RunWriter(directory)
    if table:
        writer.layer_table(make_table(first, unfrozen=False))
    for step in range(first, last, 3):
        steps = range(step, min(step + 3, last))
        writer.samples(make_samples(steps, [peak] * len(steps), start=start))
        writer.activations(make_activations(steps, ["x"], [[peak]] * len(steps)))
    writer.snapshot(make_snapshot(last - 1))
    writer.close()
    (path,) = set(event_files(directory)) - before
    return path


def damage(path: pathlib.Path, stream: str, nth: int) -> None:
    """Flip a byte of the nth record of a stream."""
    content = bytearray(path.read_bytes())
    parts = tfrecord.walk(lambda offset, size: bytes(content[offset : offset + size]), 0, len(content))
    records = [part for part in parts if isinstance(part, tfrecord.Record) and f"{stream}/".encode() in part.data]
    content[records[nth].offset + len(records[nth].data) - 5] ^= 1
    path.write_bytes(content)


def read(directory: pathlib.Path) -> Run:
    return Reader().run(FileSource(directory), "exp", {*BASIC, ACTIVATIONS}).run


@pytest.mark.parametrize("table", [True, False], ids=["with a layer table", "without"])
@pytest.mark.parametrize("nth", [0, 1, 2, 3], ids=["first", "second", "third", "last"])
def test_no_superseded_figure_comes_back(nth: int, table: bool, tmp_path: pathlib.Path) -> None:
    # GIVEN steps 0 to 29, and a second session of steps 12 to 23 with one damaged frame of samples
    write(tmp_path / "exp", 0, 30, 100, START)
    path = write(tmp_path / "exp", 12, 24, 200, START + 3600, table)
    damage(path, "samples", nth)
    run = read(tmp_path)
    peaks = dict(zip(run.samples.step.tolist(), run.samples.devices["CPU:0"].peak_bytes.tolist(), strict=True))
    # THEN none of its steps shows the first session's figures, and a sentence says so
    lost = set(range(12 + 3 * nth, 15 + 3 * nth))
    assert {step for step in range(12, 24) if peaks.get(step) == 100} == set()
    # The first frame's peak is stored twice.
    assert set(range(12, 24)) - peaks.keys() <= lost
    assert any("nothing is shown for" in sentence or "are missing" in sentence for sentence in run.damage)
    assert any("nothing is shown for" in sentence for sentence in run.damage)
    # AND the steps that it did not repeat stay, if it is known where it began
    if table or nth:
        assert peaks.keys() >= set(range(12)) | set(range(24, 30))


@pytest.mark.parametrize("nth", [0, 1, 2, 3])
def test_no_superseded_activation_comes_back(nth: int, tmp_path: pathlib.Path) -> None:
    write(tmp_path / "exp", 0, 30, 100, START)
    path = write(tmp_path / "exp", 12, 24, 200, START + 3600)
    damage(path, "activations", nth)
    table = read(tmp_path).activations
    cells = dict(zip(table.step.tolist(), table.bytes[:, 0].tolist(), strict=True))
    assert all(cells.get(step, 200) == 200 for step in range(12, 24))
    assert all(cells[step] == 100 for step in (*range(12), *range(24, 30)))


def test_a_session_without_facts_starts_when_its_name_says(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "exp", 0, 12, 100, START - 50_000)
    damage(path, "meta", 0)
    run = read(tmp_path)
    assert len(run.notes) == 1 and run.session_starts == (start_of(run.sessions[0]),)


def test_names_tell_their_start() -> None:
    assert start_of("20260921T170000Z-2614c866") == 1790010000.0
    assert start_of("s") is None and start_of("99999999T170000Z-1") is None
