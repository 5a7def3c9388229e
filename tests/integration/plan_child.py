"""Records a small training, or measures its peak with a plan, and prints the answer as JSON.

usage: python plan_child.py record RUN_DIR | measure BUDGET_BYTES RUN_DIR | probe BUDGET_BYTES
"""

import json
import statistics
import sys

import keras
import numpy as np
import tensorflow as tf

import tb_memplugin

L = keras.layers
BATCH = 16


def wide():
    tensor = inputs = keras.Input((48, 48, 3))
    for _ in range(8):
        tensor = L.Conv2D(32, 3, padding="same")(tensor)
        tensor = L.ReLU()(L.BatchNormalization()(tensor))
    return keras.Model(inputs, L.Dense(5)(L.GlobalAveragePooling2D()(tensor)), name="net")


def compiled(model, parts=None):
    optimizer = keras.optimizers.Adam(gradient_accumulation_steps=parts)
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def batch(size):
    random = np.random.default_rng(0)
    return random.normal(size=(size, 48, 48, 3)).astype("float32"), random.integers(0, 5, size)


def record(directory):
    model = compiled(wide())
    x, y = batch(BATCH)
    with tb_memplugin.MemoryRecorder(directory, model=model) as recorder:
        for step in range(12):
            with recorder.step(step):
                model.train_on_batch(x, y)
    return {}


def measure(budget, directory):
    (run,) = tb_memplugin.load(directory).values()
    plan = tb_memplugin.plan(run, budget=int(budget))
    model = wide()
    x, y = batch(plan.batch_size)
    if plan.segments:
        model = tb_memplugin.remat(model, plan)
    compiled(model, plan.accumulation if plan.accumulation > 1 else None)
    parts = plan.accumulation
    peaks = []
    for _ in range(9 if parts == 1 else 4 * parts):
        tf.config.experimental.reset_memory_stats("CPU:0")
        model.train_on_batch(x, y)
        peaks.append(tf.config.experimental.get_memory_info("CPU:0")["peak"])
    first = -(-3 // parts) * parts  # the first update makes the optimizer's slots
    # one for each update
    peaks = [max(peaks[at : at + parts]) for at in range(first, len(peaks), parts)]
    span = [plan.low_bytes, plan.peak_bytes, plan.high_bytes]
    return {
        "measured": statistics.median(peaks),
        "highest": max(peaks),
        "range": span,
        "fits": plan.fits,
        "segments": plan.segments,
        "accumulation": plan.accumulation,
        "recorded": plan.unchanged_peak_bytes,
        "text": str(plan),
    }


def probe(budget):
    """A plan for the model and its data, without a run."""
    model = compiled(wide())
    before = [np.asarray(variable) for variable in model.variables]
    data = tf.data.Dataset.from_tensor_slices(batch(2 * BATCH)).batch(BATCH)
    plan = tb_memplugin.plan(model, data, budget=int(budget))
    after = [np.asarray(variable) for variable in model.variables]
    return {
        "same": all((one == other).all() for one, other in zip(before, after, strict=True)),
        "recorded": plan.unchanged_peak_bytes,
        "batch_size": [option.batch_size for option in plan.options],
        "fits": plan.fits,
        "segments": plan.segments,
        "range": [plan.low_bytes, plan.peak_bytes, plan.high_bytes],
        "text": str(plan),
    }


def main(what, *arguments):
    keras.utils.set_random_seed(1)
    print(
        "ANSWER "
        + json.dumps({"record": record, "measure": measure, "probe": probe}[what](*arguments))
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
