"""Small runs of the demo's kinds, with known answers: one that ran out of memory with a larger
batch, and one whose layers were unfrozen after the optimizer had made its slots."""

import dataclasses
import pathlib

import numpy as np
import requests_cases
from reading_cases import DEVICE, MIB, START, make_samples, make_snapshot, make_table

from tb_memplugin.attribution import OomEvent, post_mortem
from tb_memplugin.schema import IN_USE, ChunkOwner, LedgerRow, MemoryMap, Oom, Snapshot
from tb_memplugin.storage.write import RunWriter

FAILED_BATCH, CAPACITY, FAILED_STEP = 48, 100 * MIB, 20
UNFROZEN_STEP = 30
SLOTS, EARLIER = 113 * MIB, 56 * MIB
"""Slots of the optimizer after the unfreezing, and of the one before it, which stay in memory."""


class FailingProgram(requests_cases.Program):
    """The program of `requests_cases`, which notes its last request."""

    def _request(
        self, size: int, owner: ChunkOwner, power: int = 0, op: str | None = None
    ) -> "requests_cases._Chunk":
        self.asked = size, owner, op
        return super()._request(size, owner, power, op)

    def memory_map(self) -> MemoryMap:
        """The chunks with their owners."""
        made = self._simulator.map(requests_cases.empty_pool(CAPACITY))
        owners = tuple(dict.fromkeys(chunk.owner for chunk in self._alive))
        places = {chunk.address: owners.index(chunk.owner) for chunk in self._alive}
        owner = np.asarray([places.get(address, -1) for address in made.address.tolist()])
        source = np.where(made.state == IN_USE, 1, 0)
        return dataclasses.replace(
            made, step=FAILED_STEP, owner=owner, owners=owners, source=source
        )


def failure() -> Oom:
    """The post-mortem of the program with the larger batch."""
    program = FailingProgram(CAPACITY, FAILED_BATCH)
    try:
        for step in range(12):
            program.step(step, first=not step)
    except AssertionError:
        size, owner, op = program.asked
    when = START + FAILED_STEP / 2
    event = OomEvent(
        "1", "failed", DEVICE, when, FAILED_STEP, "train", size, op, owner.layer, line="train.py:42"
    )
    return post_mortem(event, program.memory_map(), FAILED_BATCH)


def unfrozen_snapshot(step: int) -> Snapshot:
    """A traced step, with more slots and activations from the unfreezing on."""
    later = step >= UNFROZEN_STEP
    snapshot = make_snapshot(step, activations=(231 if later else 100) * MIB)
    sizes = {"model/backbone": SLOTS if later else EARLIER}
    sizes |= {f"Adam replaced at step {UNFROZEN_STEP}/model/head": EARLIER} if later else {}
    rows = [LedgerRow(layer, "optimizer_state", None, size, 0) for layer, size in sizes.items()]
    in_use = snapshot.in_use_bytes + sum(row.bytes for row in rows)
    return dataclasses.replace(
        snapshot, ledger=(*snapshot.ledger, *rows), in_use_bytes=in_use, batch_size=16
    )


def write_unfrozen(directory: pathlib.Path) -> None:
    steps = range(2 * UNFROZEN_STEP)
    peaks = [unfrozen_snapshot(step).in_use_bytes for step in steps]
    writer = RunWriter(directory, versions={"tensorflow": "2.21.0"})
    writer.layer_table(make_table(0, unfrozen=False))
    writer.layer_table(make_table(UNFROZEN_STEP, unfrozen=True, reason="backbone became trainable"))
    writer.samples(make_samples(steps, peaks, in_use=[300 * MIB] * len(steps)))
    for step in (3, 25, 33, 50):
        writer.traced(unfrozen_snapshot(step))
    writer.close()


def write_all(logdir: pathlib.Path) -> None:
    """Both runs."""
    requests_cases.write_run(logdir / "failed", FAILED_STEP, CAPACITY, failure())
    write_unfrozen(logdir / "unfrozen")
