"""A run of two workers with four devices each, one of which stops early; written with the package's
own writer."""

import dataclasses
import pathlib

from sample_runs import ALL_TRAINABLE, MIB, Plan, samples_of, snapshot_at, table_at

from tb_memplugin.storage.write import RunWriter

STEPS = {"worker_0": 120, "worker_1": 80}
"""Steps that each worker recorded."""
TRACED = (3, 60)
SCALES = {"worker_0": (4, 4, 5, 4), "worker_1": (4, 6, 4, 3)}
"""Batch of each device, as a multiple of the usual one: `GPU:1` of the second worker has the most
to do."""
ENDED = "worker_0"
"""The worker that said that it ended; the other one was killed."""
NOT_TRACED = ("worker_1", 3)
CAPACITY_BYTES = 1536 * MIB


def plan_of(worker: str, device: int) -> Plan:
    """What a device does."""
    traced = () if (worker, device) == NOT_TRACED else TRACED
    return dataclasses.replace(
        ALL_TRAINABLE,
        device=f"GPU:{device}",
        capacity_bytes=CAPACITY_BYTES,
        steps=STEPS[worker],
        scale=SCALES[worker][device],
        traced=traced,
    )


def write_devices(directory: pathlib.Path) -> None:
    """The run's files in `directory`."""
    for worker, scales in SCALES.items():
        plans = [plan_of(worker, device) for device in range(len(scales))]
        parts = [samples_of(plan) for plan in plans]
        devices = {name: figures for part in parts for name, figures in part.devices.items()}
        writer = RunWriter(
            directory, producer="recorder", worker=worker, versions={"tensorflow": "2.21.0"}
        )
        for began in ALL_TRAINABLE.trainable:
            writer.layer_table(table_at(ALL_TRAINABLE, began))
        writer.samples(dataclasses.replace(parts[0], devices=devices))
        for plan in plans:
            for step in plan.traced:
                writer.traced(snapshot_at(plan, step))
        if worker == ENDED:
            writer.end()
        writer.close()
