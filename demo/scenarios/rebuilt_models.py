"""Five models, one after the other in one process, as in a search for hyperparameters: rebuilt each
time, rebuilt after `clear_session`, and one model whose weights and optimizer are set back.

usage: python demo/scenarios/rebuilt_models.py [--logdir runs/scenarios]
"""

import functools
import gc
import os

# Must be known before TensorFlow is imported: TensorFlow's default CPU allocator keeps no
# statistics.
os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "1")

import keras
import numpy as np
from scenario import Advice, Claim, Comparison, Expected, Scenario, Variant, main

import tb_memplugin

INPUTS, WIDTH, CLASSES, BATCH_SIZE, MODELS = 256, 1024, 10, 64, 5


def make_model():
    model = keras.Sequential(
        [
            keras.Input((INPUTS,)),
            keras.layers.Dense(WIDTH, activation="relu", name="wide1"),
            keras.layers.Dense(WIDTH, activation="relu", name="wide2"),
            keras.layers.Dense(CLASSES, name="logits"),
        ]
    )
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.optimizer.build(model.trainable_variables)
    return model


def train(run, rebuild=True, clear=False):
    random = np.random.default_rng(1)
    inputs, classes = (
        random.random((2 * BATCH_SIZE, INPUTS), "float32"),
        random.integers(0, CLASSES, 2 * BATCH_SIZE),
    )
    model = make_model()
    first = [variable.numpy() for variable in (*model.variables, *model.optimizer.variables)]
    with tb_memplugin.MemoryRecorder(run, trace_steps=[MODELS - 1]) as recorder:
        for number in range(MODELS):
            if number and rebuild:
                del model
                if clear:
                    keras.backend.clear_session()
                gc.collect()
                model = make_model()
            elif number:
                for variable, value in zip(
                    (*model.variables, *model.optimizer.variables), first, strict=True
                ):
                    variable.assign(value)
            recorder.watch(model)
            with recorder.step(number):  # one step of the run is the training of one model
                model.fit(inputs, classes, batch_size=BATCH_SIZE, epochs=2, verbose=0)


def measure(run):
    """Bytes in use after the first model and after the last one."""
    device = run.samples.devices[
        min(run.samples.devices, key=lambda name: not name.startswith("GPU"))
    ]
    return {
        "after_the_first_model": int(device.in_use_bytes[0]),
        "after_the_last_model": int(device.in_use_bytes[-1]),
    }


# Weights, and twice as much for Adam's slots.
MODEL = 12 * ((INPUTS + 1) * WIDTH + (WIDTH + 1) * WIDTH + (WIDTH + 1) * CLASSES)


IS_FREED = Claim("falls by more than half", 0, 0.5)


def compared_with(name, models):
    texts = f"weights and slots of {MODELS} models, and of {models}"
    return Comparison(
        "rebuilt",
        name,
        claim=IS_FREED,
        figure="after_the_last_model",
        expected=[
            Expected("after_the_first_model", MODEL, MODEL, "12 B × parameters (Adam)", 0.1),
            Expected("after_the_last_model", MODELS * MODEL, models * MODEL, texts, 0.2),
        ],
    )


SCENARIO = Scenario(
    number=17,
    title="Models rebuilt in one process",
    file=__file__,
    description=__doc__,
    runs={
        "rebuilt": Variant(train),
        "clear_session": Variant(functools.partial(train, clear=True)),
        "one_model": Variant(functools.partial(train, rebuild=False)),
    },
    measure=measure,
    advice=[
        Advice(
            words=[
                "“Call keras.backend.clear_session() before you build the next model, and its "
                "memory is freed.”"
            ],
            verdict="not true",
            because="Python drops the old models, but TensorFlow does not free the variables of "
            "models that `fit` has trained. `clear_session` resets Keras's names and graphs.",
            comparisons=[compared_with("clear_session", MODELS)],
        ),
        Advice(
            words=["“Build the model once and set its weights back.”"],
            verdict="true",
            because="No new variables and no new functions are made. A process of its own for each "
            "model frees all of its memory, too.",
            comparisons=[compared_with("one_model", 1)],
        ),
    ],
)

if __name__ == "__main__":
    main(SCENARIO)
