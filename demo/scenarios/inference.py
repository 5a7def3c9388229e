"""The same model in training, in `predict`, and in a loop over `predict_on_batch`, with the same
batches. Inference keeps no activations, and needs no gradients and no optimizer state. But
`predict` of Keras 3 keeps the outputs of all batches on the device until its end.

usage: python demo/scenarios/inference.py [--logdir runs/scenarios]
"""

import os

# Must be known before TensorFlow is imported: TensorFlow's default CPU allocator keeps no
# statistics.
os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "1")

import keras
import numpy as np
from scenario import FALLS, STAYS, Advice, Comparison, Expected, Scenario, Variant, at_peak, main

import tb_memplugin

INPUTS, WIDTH, LAYERS, OUTPUTS = 64, 512, 6, 1024
BATCH_SIZE, BATCHES = 512, 8


def make_model():
    hidden = (
        keras.layers.Dense(WIDTH, activation="relu", name=f"dense{number}")
        for number in range(1, LAYERS + 1)
    )
    return keras.Sequential(
        [keras.Input((INPUTS,)), *hidden, keras.layers.Dense(OUTPUTS, name="outputs")]
    )


def make_examples():
    random = np.random.default_rng(1)
    return random.random((BATCHES, BATCH_SIZE, INPUTS), "float32")


def train(run):
    model = make_model()
    model.compile("adam", "mse")
    inputs = make_examples().reshape(-1, INPUTS)
    targets = np.zeros((len(inputs), OUTPUTS), "float32")
    callback = tb_memplugin.MemoryCallback(run, trace_steps=[2, 4])
    model.fit(inputs, targets, batch_size=BATCH_SIZE, verbose=0, callbacks=[callback])
    callback.close()


def predict(run):
    model = make_model()
    model.compile()
    # `trace_steps` would select training steps only
    callback = tb_memplugin.MemoryCallback(run, overhead=1.0)
    model.predict(
        make_examples().reshape(-1, INPUTS), batch_size=BATCH_SIZE, verbose=0, callbacks=[callback]
    )
    callback.close()


def predict_batches(run):
    model = make_model()
    model.compile()
    with tb_memplugin.MemoryRecorder(run, model=model, overhead=1.0) as recorder:
        for batch in make_examples():
            with recorder.step(0, "predict"):
                model.predict_on_batch(batch)  # returns a NumPy array


def measure(run):
    """Figures of the traced batch with the highest peak, and how much more is in use at the end of
    the last batch than at the end of the first."""
    device = run.samples.devices[
        min(run.samples.devices, key=lambda name: not name.startswith("GPU"))
    ]
    highest = max(run.snapshots, key=lambda one: one.in_use_bytes)
    saved = sum(row.bytes for row in highest.saved_for_backward)
    growth = int(device.in_use_bytes[-1] - device.in_use_bytes[0])
    return {**at_peak(run), "saved_for_backward": saved, "growth_over_the_batches": growth}


PARAMETERS = (INPUTS + 1) * WIDTH + (LAYERS - 1) * (WIDTH + 1) * WIDTH + (WIDTH + 1) * OUTPUTS
# What the backward pass reads: the inputs, the results of the hidden layers, and how far the
# outputs miss the targets.
SAVED = 4 * BATCH_SIZE * (INPUTS + LAYERS * WIDTH + OUTPUTS)
BATCH_OUTPUTS = 4 * BATCH_SIZE * OUTPUTS

SCENARIO = Scenario(
    number=18,
    title="Inference",
    file=__file__,
    description=__doc__,
    runs={
        "fit": Variant(train),
        "predict": Variant(predict),
        "predict_on_batch": Variant(predict_batches),
    },
    measure=measure,
    advice=[
        Advice(
            words=["“A model that trains on a GPU also fits for inference, with room to spare.”"],
            verdict="true",
            because="There are no gradients and no optimizer state, and the result of a layer is "
            "freed when the next layer has read it.",
            comparisons=[
                Comparison(
                    "fit",
                    "predict",
                    claim=FALLS,
                    expected=[
                        Expected(
                            "weights",
                            4 * PARAMETERS,
                            4 * PARAMETERS,
                            f"4 B × {PARAMETERS:,} parameters",
                        ),
                        Expected(
                            "optimizer_state",
                            8 * PARAMETERS,
                            0,
                            "twice the weights (Adam), or none",
                            0.001,
                        ),
                        Expected(
                            "saved_for_backward",
                            SAVED,
                            0,
                            "inputs, results and errors, or none",
                            0.001,
                        ),
                    ],
                )
            ],
        ),
        Advice(
            words=[
                "“`predict` works in batches, so its memory does not depend on the number of "
                "examples.”"
            ],
            verdict="not true",
            because="Keras 3 collects the outputs of all batches in a list of tensors, and makes "
            "NumPy arrays of them at the end. `predict_on_batch` in a loop returns each "
            "batch as a NumPy array.",
            comparisons=[
                Comparison(
                    "predict_on_batch",
                    "predict",
                    claim=STAYS,
                    figure="growth_over_the_batches",
                    expected=[
                        Expected(
                            "growth_over_the_batches",
                            0,
                            (BATCHES - 1) * BATCH_OUTPUTS,
                            f"the outputs of {BATCHES - 1} more batches",
                            0.1,
                        ),
                    ],
                )
            ],
        ),
    ],
)

if __name__ == "__main__":
    main(SCENARIO)
