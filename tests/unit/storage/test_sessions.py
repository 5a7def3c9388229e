"""A failed step has one breakdown, that of its failed allocation, in every route, in the terminal and in JSON."""

import dataclasses
import json
import pathlib
from typing import Any

import pytest
from reading_cases import (
    DEVICE,
    MIB,
    START,
    event_files,
    make_activations,
    make_oom,
    make_samples,
    make_snapshot,
    make_table,
)

from tb_memplugin.cli import main
from tb_memplugin.schema import LedgerRow, Run, with_failed_steps
from tb_memplugin.server import Handlers, Stretch
from tb_memplugin.storage import Reader
from tb_memplugin.storage.files import FileSource
from tb_memplugin.storage.frames import start_of, tfrecord
from tb_memplugin.storage.read import ACTIVATIONS, BASIC
from tb_memplugin.storage.write import RunWriter

FAILED = 12
LEDGER = (
    LedgerRow("model/backbone", "activations", None, 150 * MIB, 0),
    LedgerRow("model/head", "workspace", None, 200 * MIB, 0),
    LedgerRow("model/backbone", "weights", True, 40 * MIB, 0),
    LedgerRow(None, "rounding", None, 3 * MIB, 3 * MIB),
)
IN_USE = sum(row.bytes for row in LEDGER)
OOM = dataclasses.replace(
    make_oom(FAILED),
    ledger=LEDGER,
    in_use_bytes=IN_USE,
    pool_bytes=500 * MIB,
    capacity_bytes=500 * MIB,
    free_bytes=500 * MIB - IN_USE,
    largest_free_bytes=80 * MIB,
)
CATEGORIES = {"activations": 150 * MIB, "workspace": 200 * MIB, "weights": 40 * MIB, "rounding": 3 * MIB}


@pytest.fixture
def logdir(tmp_path: pathlib.Path) -> pathlib.Path:
    """A run traced at step 3 that failed at step 12, at whose end little is in use; step 13 was trained again."""
    writer = RunWriter(tmp_path / "run", versions={})
    writer.layer_table(make_table(0, unfrozen=True))
    peaks = [60 * MIB] * FAILED + [IN_USE + MIB, 60 * MIB]
    writer.samples(make_samples(range(14), peaks, in_use=[40 * MIB] * 14))
    writer.snapshot(make_snapshot(3, frozen=0, trainable=40 * MIB, activations=10 * MIB))
    writer.oom(OOM)
    writer.close()
    return tmp_path


def by_category(names: list[str], sizes: list[int]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for name, size in zip(names, sizes, strict=True):
        sums[name] = sums.get(name, 0) + int(size)
    return {name: size for name, size in sums.items() if size}


def test_every_route_has_the_ledger_of_the_failure(logdir: pathlib.Path) -> None:
    handlers, source = Handlers(Reader()), FileSource(logdir)
    stretch = Stretch(DEVICE, "train", None, None, 1000)
    overview = handlers.overview(source, "run", stretch)
    row = overview.columns["step"].tolist().index(FAILED)
    groups = [group["category"] for group in overview.fields["groups"]]
    shown = by_category(groups, [overview.columns[f"group/{at}"][row] for at in range(len(groups))])
    # Nothing fills the difference to the peak of the step, which was earlier.
    assert shown == CATEGORIES and overview.columns["peak_bytes"][row] == IN_USE + MIB
    assert overview.columns["traced"][row] == 1
    ref = overview.fields["snapshots"][int(overview.columns["snapshot"][row])]
    assert ref["at_failure"] and ref["step"] == FAILED
    # AND the step after it is described by the trace, not by the failure
    assert (
        overview.columns["snapshot"][row + 1]
        == overview.columns["snapshot"][row - 1]
        != overview.columns["snapshot"][row]
    )

    snapshot = handlers.snapshot(source, "run", DEVICE, FAILED, "train")
    (oom,) = handlers.oom(source, "run")["ooms"]
    assert snapshot["ledger"] == oom["ledger"] and snapshot["in_use_bytes"] == oom["in_use_bytes"] == IN_USE
    assert snapshot["saved_for_backward"] == [{"layer": "model/backbone", "bytes": 150 * MIB}]
    totals = handlers.ledger_totals(source, "run", DEVICE, "train", layer="model/backbone")
    at = totals.columns["step"].tolist().index(FAILED)
    assert sum(totals.columns[f"group/{g}"][at] for g in range(len(totals.fields["groups"]))) == 190 * MIB
    division = handlers.device_memory(source, "run", DEVICE, FAILED)
    in_use = [part for part in division["segments"] if part["part"] == "in_use"]
    assert by_category([part["category"] for part in in_use], [part["bytes"] for part in in_use]) == CATEGORIES
    assert not handlers.device_memory(source, "run", DEVICE, FAILED + 1)["at_failure"]
    pool = handlers.pool(source, "run", stretch)
    assert pool.fields["sources"][int(pool.columns["pool_source"][row])] == "failed"
    assert pool.columns["peak_bytes"][row] == IN_USE and pool.columns["largest_free_bytes"][row] == 80 * MIB
    (device,) = handlers.devices(source, "run", "train")["devices"]
    parts = device["breakdown"]["parts"]
    assert by_category([part["category"] for part in parts], [part["bytes"] for part in parts]) == CATEGORIES


def test_inspect_prints_the_ledger_of_the_failure(logdir: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(logdir), "--step", str(FAILED)]) == 0
    text = capsys.readouterr().out
    assert f"failed step {FAILED} (train): 393 MiB in use at the failed allocation" in text
    assert main(["inspect", str(logdir), "--step", str(FAILED), "--format", "json"]) == 0
    run: Any = json.loads(capsys.readouterr().out)["runs"]["run"]
    (snapshot,) = run["snapshots"]
    assert snapshot["ledger"] == run["oom"][0]["ledger"] and snapshot["at_failure"]


def test_the_last_failure_of_a_step_replaces_its_trace() -> None:
    later = dataclasses.replace(OOM, wall_time=START + 1000, ledger=LEDGER[:1], in_use_bytes=150 * MIB)
    traced = make_snapshot(FAILED)
    (found,) = with_failed_steps([traced], [later, OOM])
    assert found.at_failure and found.in_use_bytes == 150 * MIB
    # Without owners, or without a step, the failure says nothing about the breakdown.
    for nothing in (dataclasses.replace(OOM, ledger=()), dataclasses.replace(OOM, step=None, phase=None)):
        assert with_failed_steps([traced], [nothing]) == (traced,)


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
    parts = tfrecord.walk_records(lambda offset, size: bytes(content[offset : offset + size]), 0, len(content))
    records = [part for part in parts if isinstance(part, tfrecord.Record) and f"{stream}/".encode() in part.data]
    content[records[nth].offset + len(records[nth].data) - 5] ^= 1
    path.write_bytes(content)


def read(directory: pathlib.Path) -> Run:
    return Reader().run(FileSource(directory), "exp", {*BASIC, ACTIVATIONS}).run


@pytest.mark.parametrize("table", [True, False], ids=["with a layer table", "without"])
@pytest.mark.parametrize("nth", [0, 1, 2, 3], ids=["first", "second", "third", "last"])
def test_no_superseded_figure_comes_back(nth: int, table: bool, tmp_path: pathlib.Path) -> None:
    # GIVEN steps 0 to 29, and a second session of steps 12 to 23 with one damaged frame of samples and activations
    write(tmp_path / "exp", 0, 30, 100, START)
    path = write(tmp_path / "exp", 12, 24, 200, START + 3600, table)
    damage(path, "samples", nth)
    damage(path, "activations", nth)
    run = read(tmp_path)
    peaks = dict(zip(run.samples.step.tolist(), run.samples.devices["CPU:0"].peak_bytes.tolist(), strict=True))
    # THEN none of its steps shows the first session's figures, and a sentence says so
    lost = set(range(12 + 3 * nth, 15 + 3 * nth))
    assert {step for step in range(12, 24) if peaks.get(step) == 100} == set()
    # The first frame's peak is stored twice.
    assert set(range(12, 24)) - peaks.keys() <= lost
    assert any("nothing is shown for" in sentence for sentence in run.damage)
    # AND the steps that it did not repeat stay, if it is known where it began
    if table or nth:
        assert peaks.keys() >= set(range(12)) | set(range(24, 30))
    activations = run.activations
    cells = dict(zip(activations.step.tolist(), activations.bytes[:, 0].tolist(), strict=True))
    assert all(cells.get(step, 200) == 200 for step in range(12, 24))
    if table:
        assert all(cells[step] == 100 for step in (*range(12), *range(24, 30)))


def test_a_session_without_facts_starts_when_its_name_says(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "exp", 0, 12, 100, START - 50_000)
    damage(path, "meta", 0)
    run = read(tmp_path)
    assert len(run.notes) == 1 and run.session_starts == (start_of(run.sessions[0]),)
    starts = [start_of(name) for name in ("20260921T170000Z-2614c866", "s", "99999999T170000Z-1")]
    assert starts == [1790010000.0, None, None]
