"""Small but realistic runs for the page's tests and for trying it out, written with the package's
own writer.

usage: python tests/browser/sample_runs.py LOGDIR
"""

import dataclasses
import math
import pathlib
import sys
from collections.abc import Sequence

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from reading_cases import make_layer

from tb_memplugin.schema import (
    MISSING,
    PHASES,
    Category,
    DeviceSamples,
    HeldTensorGroup,
    Layer,
    LayerActivations,
    LayerTable,
    LedgerRow,
    MemoryMap,
    Replay,
    Samples,
    SavedRow,
    Snapshot,
    Timeline,
    rounding_total,
    split_rounding,
)
from tb_memplugin.storage.write import RunWriter

MIB = 1 << 20
STARTED = 1_790_000_000.0
HOSTILE_RUN = "<img src=x onerror=alert(1)>"
HOSTILE_LAYER = "<script>alert(2)<script>" + 200 * "x"
HOSTILE_HOLDER = "list `<img src=x onerror=alert(3)>` in module " + 200 * "y"
HELD_BYTES = 256 * 1024 - 96
"""Requested bytes of all held tensors of a traced step."""

BACKBONE = (
    ("block1_conv1", 64, 3, 64),
    ("block1_conv2", 64, 64, 64),
    ("block2_conv1", 128, 64, 32),
    ("block2_conv2", 128, 128, 32),
    ("block3_conv1", 256, 128, 16),
    ("block3_conv2", 256, 256, 16),
    ("block4_conv1", 512, 256, 8),
    ("block4_conv2", 512, 512, 8),
    ("block5_conv1", 512, 512, 4),
    ("block5_conv2", 512, 512, 4),
)
"""Name, filters, filters before, side of the output: a VGG of ten convolutions."""
BATCH = 32


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a run does: for each step at which the layer table changes, how many layers at the top
    are trainable."""

    device: str
    capacity_bytes: int
    steps: int
    epoch_steps: int
    trainable: dict[int, int]
    traced: tuple[int, ...]
    pool: bool = True
    first_layer: str = "block1_conv1"
    scale: int = 1
    measure_every: int = 0
    """The pool was measured at the end of every step of this many, never if 0."""


FROZEN = Plan("CPU:0", 1024 * MIB, 240, 40, {0: 1, 160: 3}, (3, 41, 80, 120, 163, 200, 235))
ALL_TRAINABLE = Plan(
    "CPU:0", 1024 * MIB, 240, 40, {0: len(BACKBONE) + 1}, (3, 60, 120, 180), measure_every=4
)
ROOMY = Plan(
    "GPU:0", 80 * 1024 * MIB, 120, 30, {0: len(BACKBONE) + 1}, (5, 60, 110), pool=False, scale=8
)
HOSTILE = Plan(
    "CPU:0", 1024 * MIB, 30, 10, {0: 1, 15: len(BACKBONE) + 1}, (4, 20), first_layer=HOSTILE_LAYER
)


def layers_of(plan: Plan, trainable: int) -> tuple[Layer, ...]:
    """The layers with the last `trainable` of them unfrozen."""
    made = []
    for at, (name, filters, before, side) in enumerate(BACKBONE):
        parameters = 9 * filters * before + filters
        free = at >= len(BACKBONE) + 1 - trainable
        path, shape = plan.first_layer if at == 0 else f"vgg/{name}", (-1, side, side, filters)
        output = 4 * plan.scale * BATCH * side * side * filters
        made.append(
            make_layer(path, free, parameters, 8 * parameters * free, "Conv2D", shape, output)
        )
    parameters = 8192 * 10 + 10
    made.append(make_layer("head", True, parameters, 8 * parameters, "Dense", (-1, 10), 1280))
    return tuple(made)


def table_at(plan: Plan, step: int) -> LayerTable:
    """The layer table that holds at `step`."""
    began = max(at for at in plan.trainable if at <= step)
    layers = layers_of(plan, plan.trainable[began])
    earlier = [at for at in plan.trainable if at < began]
    reason = "recording began"
    if earlier:
        before = {
            layer.path for layer in layers_of(plan, plan.trainable[earlier[-1]]) if layer.trainable
        }
        freed = [layer.path for layer in layers if layer.trainable and layer.path not in before]
        reason = f"{freed[0]} and {len(freed) - 1} more became trainable"
    return LayerTable(began, STARTED + began, reason, layers, "Adam", 12, 16)


def allocated_at(plan: Plan, step: int) -> list[LedgerRow]:
    """The allocated bytes of each owner at the step's peak, rounding included, largest first."""
    rows = [
        LedgerRow(None, "inputs", None, 4 * plan.scale * BATCH * 64 * 64 * 3, 0),
        LedgerRow(None, "other_state", None, 4096, 200),
        LedgerRow(None, "held_tensors", None, HELD_BYTES + 96, 96),
        LedgerRow(None, "unattributed", None, 3 * MIB + 256 * (step % 7), None),
    ]

    def add(layer: Layer, category: Category, size: int) -> None:
        allocated = math.ceil(size / 256) * 256
        if size:
            rows.append(
                LedgerRow(layer.path, category, layer.trainable, allocated, allocated - size)
            )

    layers = table_at(plan, step).layers
    for at, layer in enumerate(layers):
        output = layer.output_bytes or 0
        add(layer, "weights", layer.weight_bytes)
        add(layer, "optimizer_state", layer.optimizer_bytes)
        if layer.trainable:
            add(layer, "weight_gradients", layer.weight_bytes // 2)
            add(layer, "activations", output)
            add(layer, "activation_gradients", output // 4)
        elif at + 1 < len(layers) and layers[at + 1].trainable:
            add(layer, "activations", output)
        elif at < 2:
            add(layer, "workspace", output + 4 * MIB)
    return sorted(rows, key=lambda row: -row.bytes)


def pool_at(plan: Plan, step: int) -> int:
    """Bytes that the allocator has taken from the device."""
    in_use = sum(row.bytes for row in allocated_at(plan, step))
    return min(plan.capacity_bytes, 1 << (in_use + in_use // 8).bit_length())


def measured_at(plan: Plan, step: int) -> tuple[int, int]:
    """Pool and largest free chunk at the end of a training step, `MISSING` where they were not
    measured."""
    if not plan.measure_every or step % plan.measure_every:
        return MISSING, MISSING
    pool, in_use = pool_at(plan, step), peak_at(plan, step) * 4 // 10
    return pool, (pool - in_use) * (90 - step % 41) // 100


def snapshot_at(plan: Plan, step: int) -> Snapshot:
    ledger = split_rounding(allocated_at(plan, step))
    in_use = sum(row.bytes for row in ledger)
    pool = pool_at(plan, step)
    largest = (pool - in_use) * (70 - step % 31) // 100 // 256 * 256
    free = pool - in_use
    reason = (
        "The allocator's map is not available, because TF_GPU_ALLOCATOR=cuda_malloc_async does "
        "not report it."
    )
    return Snapshot(
        step=step,
        phase="train",
        device=plan.device,
        wall_time=wall_time(plan, step),
        mode="graph",
        in_use_bytes=in_use,
        pool_bytes=pool if plan.pool else None,
        largest_free_bytes=largest if plan.pool else None,
        capacity_bytes=plan.capacity_bytes,
        fragmentation=(free - largest) / free if plan.pool else None,
        rounding_bytes=rounding_total(ledger),
        ledger=ledger,
        saved_for_backward=tuple(
            SavedRow(row.layer, row.bytes) for row in ledger if row.category == "activations"
        ),
        not_available=() if plan.pool else (reason,),
        replay=Replay(3079, 3080, 659, 659, in_use) if plan.pool else None,
        held_tensors=held_tensors_at(plan, step),
    )


HELD_PATH = "module __main__ › history (list) › […]"


def held_tensors_at(plan: Plan, step: int) -> tuple[HeldTensorGroup, ...]:
    """Three groups before the step of the last change of the layer table and eleven after it; none
    in the roomy run."""
    if plan is ROOMY:
        return ()
    holder = HOSTILE_HOLDER if plan is HOSTILE else "list `history` in module __main__"
    groups = [
        HeldTensorGroup((32, 10), "float32", 40, 51_200, holder, "train.py:42", HELD_PATH),
        HeldTensorGroup((), "int64", 1, 8, None),
    ]
    if step >= max(plan.trainable):
        groups += [
            HeldTensorGroup((25 * size,), "float32", 1, 100 * size, None) for size in range(1, 9)
        ]
    rest = HELD_BYTES - sum(group.bytes for group in groups)
    groups.append(HeldTensorGroup((rest // 4,), "float32", 1, rest, None))
    return tuple(sorted(groups, key=lambda group: -group.bytes))


def wall_time(plan: Plan, step: int) -> float:
    return STARTED + 0.5 * step + 6.0 * (step // plan.epoch_steps)


def peak_at(plan: Plan, step: int) -> int:
    """The measured peak: the ledger's sum, with the flutter that real steps have where nothing was
    traced."""
    total = sum(row.bytes for row in allocated_at(plan, step))
    if step in plan.traced:
        return total
    flutter = (step * 7919) % 13 - 6
    return total + flutter * total // 1000 // 256 * 256


def samples_of(plan: Plan) -> Samples:
    rows: list[tuple[int, int, int, float, int]] = []
    for step in range(plan.steps):
        epoch = step // plan.epoch_steps
        rows.append(
            (step, PHASES.index("train"), epoch, wall_time(plan, step), peak_at(plan, step))
        )
        if (step + 1) % plan.epoch_steps == 0:
            for batch in range(4):
                peak = peak_at(plan, step) * 7 // 10 + 1024 * batch
                rows.append(
                    (
                        step,
                        PHASES.index("validation"),
                        epoch,
                        wall_time(plan, step) + 1 + batch,
                        peak,
                    )
                )
    step, phase, epoch, wall, peaks = map(np.array, zip(*rows, strict=True))
    training = PHASES.index("train")
    measured = [
        measured_at(plan, step) if phase == training else (MISSING, MISSING)
        for step, phase, *_ in rows
    ]
    pool, largest = np.array(measured, np.int64).T
    capacity, host = (np.full(len(rows), size) for size in (plan.capacity_bytes, 1400 * MIB))
    missing = [np.full(len(rows), MISSING)] * 3  # the driver's figures
    devices = {
        plan.device: DeviceSamples(peaks * 4 // 10, peaks, capacity, *missing, pool, largest)
    }
    # Read at every sixteenth row.
    of_data = np.where(np.arange(len(rows)) % 16 == 3, 48 * MIB, MISSING)
    return Samples(step, phase, epoch, wall, host, devices, tf_data_bytes=of_data)


def write_run(
    directory: pathlib.Path,
    plan: Plan,
    maps: Sequence[MemoryMap] = (),
    timelines: Sequence[Timeline] = (),
) -> None:
    writer = RunWriter(directory, producer="recorder", versions={"tensorflow": "2.21.0"})
    for began in plan.trainable:
        writer.layer_table(table_at(plan, began))
    samples = samples_of(plan)
    writer.samples(samples)
    for step in plan.traced:
        writer.traced(snapshot_at(plan, step))
    for memory_map in maps:
        writer.traced(memory_map)
    for inside in timelines:
        writer.traced(inside)
    writer.close()


def write_activations(directory: pathlib.Path, layers: int, steps: int) -> None:
    names = tuple(f"encoder/layer_{at:02d}/attention" for at in range(layers))
    step = np.arange(0, 10 * steps, 10)
    growth = 1 + step[:, None] // 200
    sizes = growth * 3 * MIB * np.arange(layers, 0, -1) + 512 * (step[:, None] % 70)
    writer = RunWriter(directory, producer="summary", versions={})
    writer.activations(LayerActivations(step, STARTED + step.astype(float), names, sizes))
    writer.close()


def write_all(logdir: pathlib.Path) -> None:
    """Every run that the tests look at."""
    import requests_cases
    import sample_allocator as allocator  # these build on this module
    import sample_timelines as inside

    requests_cases.write_run(logdir / "requests")
    planned = [
        inside.timeline_of(ALL_TRAINABLE, step, planned=True) for step in ALL_TRAINABLE.traced
    ]
    write_run(logdir / "all_trainable", ALL_TRAINABLE, timelines=planned)
    write_run(
        logdir / "frozen",
        FROZEN,
        [allocator.map_of(FROZEN, step) for step in FROZEN.traced if step != allocator.NO_MAP_STEP],
        [
            inside.timeline_of(FROZEN, step)
            for step in FROZEN.traced
            if step != inside.NO_TIMELINE_STEP
        ],
    )
    allocator.write_death(logdir / "died_fragmentation", ALL_TRAINABLE, "fragmentation")
    allocator.write_death(logdir / "died_capacity", ALL_TRAINABLE, "capacity")
    allocator.write_death(logdir / "died_without_map", ALL_TRAINABLE, "capacity", chunks=False)
    allocator.write_restarted(logdir / "restarted", FROZEN)
    allocator.write_growing(logdir / "growing", FROZEN)
    allocator.write_many_chunks(logdir / "many_chunks", FROZEN)
    write_run(logdir / "roomy", ROOMY)
    hostile = [inside.timeline_of(HOSTILE, step) for step in HOSTILE.traced]
    write_run(logdir / HOSTILE_RUN, HOSTILE, timelines=hostile)
    write_activations(logdir / "activations_only", 20, 60)


if __name__ == "__main__":
    write_all(pathlib.Path(sys.argv[1]))
