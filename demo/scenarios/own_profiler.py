"""The same training, profiled with TensorFlow's own profiler through `keras.callbacks.TensorBoard`,
beside a recorder that traces other steps and beside one that traces none. The profile is read as
XProf's Memory Profile reads it: the allocator's events, and the rest of the bytes in use, which
were allocated before the profile began.

usage: python demo/scenarios/own_profiler.py [--logdir runs/scenarios]
"""

import functools
import os

# Must be known before TensorFlow is imported: TensorFlow's default CPU allocator keeps no
# statistics.
os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "1")

import keras
from scenario import STAYS, Advice, Claim, Comparison, Expected, Scenario, Variant, main
from scenario.batches import image_batches

import tb_memplugin

SIDE, CHANNELS, WIDTH, CLASSES, BATCH_SIZE, STEPS = 32, 32, 512, 10, 32, 12
PROFILED = 7
"""The batch that TensorFlow's profiler sees, counted from 1 as Keras does."""
TRACED = [2, 6, 10]
"""Steps that the recorder is asked to trace, counted from 0: the profiler takes the second."""


def make_model():
    return keras.Sequential(
        [
            keras.Input((SIDE, SIDE, 3)),
            keras.layers.Conv2D(CHANNELS, 3, padding="same", activation="relu", name="conv1"),
            keras.layers.Conv2D(CHANNELS, 3, padding="same", activation="relu", name="conv2"),
            keras.layers.MaxPooling2D(4, name="pool"),
            keras.layers.Flatten(name="flat"),
            keras.layers.Dense(WIDTH, activation="relu", name="wide"),
            keras.layers.Dense(CLASSES, name="logits"),
        ]
    )


def train(run, record):
    model = make_model()
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    recorder = tb_memplugin.MemoryCallback(
        run, **({"trace_steps": TRACED} if record else {"overhead": 0})
    )
    profiler = keras.callbacks.TensorBoard(run, profile_batch=PROFILED)
    model.fit(
        image_batches(STEPS, BATCH_SIZE, SIDE, CLASSES),
        shuffle=False,
        verbose=0,
        callbacks=[recorder, profiler],
    )
    recorder.close()
    (path,) = run.rglob("*.xplane.pb")
    figures = read_profile(path)
    return {"requests_of_layers": figures["requests_of_layers"]} if record else figures


def read_profile(path):
    """The peak of the bytes in use, how many of them no event accounts for, and what the layers'
    operations request."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    space = xplane_pb2.XSpace.FromString(path.read_bytes())
    events = []
    for plane in space.planes:
        names = {number: entry.name for number, entry in plane.stat_metadata.items()}
        for line in plane.lines:
            for event in line.events:
                kind = plane.event_metadata[event.metadata_id].name
                if kind in ("MemoryAllocation", "MemoryDeallocation"):
                    stats = {
                        names[one.metadata_id]: getattr(one, one.WhichOneof("value"))
                        for one in event.stats
                    }
                    for name in ("allocator_name", "tf_op"):  # a text, or the number of one
                        stats[name] = names.get(stats.get(name), stats.get(name))
                    events.append((line.timestamp_ns * 1000 + event.offset_ps, kind, stats))
    device = max(
        (stats["allocator_name"] for *_, stats in events), key=lambda name: name.startswith("GPU")
    )
    live, figures = {}, {"peak": 0, "without_an_owner": 0, "requests_of_layers": 0}
    for _, kind, stats in sorted(events, key=lambda one: one[0]):
        if stats["allocator_name"] != device:
            continue
        if kind == "MemoryAllocation":
            live[stats["addr"]] = stats["allocation_bytes"]
            if "sequential" in str(stats["tf_op"]):
                figures["requests_of_layers"] += stats["requested_bytes"]
        else:
            live.pop(stats["addr"], None)
        if stats["bytes_allocated"] > figures["peak"]:
            rest = stats["bytes_allocated"] - sum(live.values())
            figures |= {"peak": stats["bytes_allocated"], "without_an_owner": rest}
    return figures


def measure(run):
    """The recorder's figures of the traced step with the highest peak; none if it traced no
    step."""
    if not run.snapshots:
        return {}
    highest = max(run.snapshots, key=lambda one: one.in_use_bytes)
    unattributed = sum(row.bytes for row in highest.ledger if row.category == "unattributed")
    return {"peak": highest.in_use_bytes, "without_an_owner": unattributed}


# The two runs may have prefetched another number of batches.
IS_READ = Claim("is the same", 0.95, 1.05)
SPOILED = Claim("falls", 0, 0.9)
PARAMETERS = (9 * 3 + 1) * CHANNELS + (9 * CHANNELS + 1) * CHANNELS
PARAMETERS += (CHANNELS * (SIDE // 4) ** 2 + 1) * WIDTH + (WIDTH + 1) * CLASSES

SCENARIO = Scenario(
    number=14,
    title="TensorFlow's own profiler",
    file=__file__,
    description=__doc__,
    runs={
        "recorder": Variant(functools.partial(train, record=True)),
        "profiler": Variant(functools.partial(train, record=False)),
    },
    measure=measure,
    advice=[
        Advice(
            words=["“The profiler's Memory Profile shows what uses the memory.”"],
            verdict="true only if",
            because="the question is how much is used, or what one step allocates. Both read the "
            "same peak. The profile has no event for what was allocated before it began: "
            "weights, optimizer state and batches are one row without an operation. The "
            "recorder knows them by their addresses.",
            comparisons=[
                Comparison("recorder", "profiler", title="The peak", claim=IS_READ, figure="peak"),
                Comparison(
                    "recorder",
                    "profiler",
                    title="Its part without an owner",
                    claim=STAYS,
                    figure="without_an_owner",
                    expected=[
                        Expected(
                            "without_an_owner",
                            0,
                            12 * PARAMETERS,
                            "12 B × parameters: weights and slots",
                            0.3,
                        )
                    ],
                ),
            ],
        ),
        Advice(
            words=["“Only one profiler can run, so the recorder spoils my own profiles.”"],
            verdict="not true",
            because="A step that you profile is not traced by the recorder, which says so in the "
            "run. Your profile is the same as without traced steps.",
            comparisons=[
                Comparison("profiler", "recorder", claim=SPOILED, figure="requests_of_layers"),
            ],
        ),
    ],
)

if __name__ == "__main__":
    main(SCENARIO)
