"""Compares what XLA planned for Keras's steps on JAX with the memory that trainings took on a GPU:
the recorded batch size, three times as many, and the largest one under a limit.

Each figure comes from a process of its own. Measured trainings load their step from JAX's cache,
as compiling tries kernels, which takes memory, too. On a CPU, which has no figures, trainings are
compared with XLA's own plan of them. Prints one line for each model and question.

usage: KERAS_BACKEND=jax python tests/gpu/jax_step.py [MODEL ...] [--share 0.04] [--jobs 3]
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import Any

ROOT = pathlib.Path(__file__).parents[2]
MODELS = {"MobileNetV2": 64, "ResNet50": 32, "Transformer": 64}  # name to recorded batch size
ROOMY = 0.2  # share of the device's memory for trainings without a limit, which run together
ON_CPU = "1GiB"  # the limit there
STEPS = 4


def made(name: str) -> Any:
    import keras

    layers = keras.layers
    keras.utils.set_random_seed(1)
    if name == "Transformer":
        given = keras.Input((64,), dtype="int32")
        x = layers.Embedding(2000, 256)(given)
        for _ in range(4):
            x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, 64)(x, x))
            inner = layers.Dense(1024, activation="gelu")(x)
            x = layers.LayerNormalization()(x + layers.Dropout(0.1)(layers.Dense(256)(inner)))
        model = keras.Model(given, layers.Dense(10)(layers.GlobalAveragePooling1D()(x)))
    else:
        size = 96 if name == "MobileNetV2" else 128
        base = getattr(keras.applications, name)(
            include_top=False, weights=None, input_shape=(size, size, 3), pooling="avg"
        )
        base.trainable = name != "ResNet50"
        model = keras.Model(base.input, layers.Dense(10)(base.output))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss)
    return model


def examples(model: Any, count: int) -> tuple[Any, Any]:
    import numpy as np

    x = np.ones((count, *model.input_shape[1:]), model.inputs[0].dtype)
    return x, np.arange(count) % 10


def train(name: str, size: int, log_dir: str | None = None) -> dict[str, Any]:
    """The peak of a training; with a directory, recorded."""
    import jax

    import tb_memplugin

    model = made(name)
    x, y = examples(model, STEPS * size)
    callbacks = [tb_memplugin.MemoryCallback(log_dir)] if log_dir else []
    try:
        model.fit(x, y, batch_size=size, verbose=0, callbacks=callbacks)
    except Exception as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return {"failed": " ".join(str(error).split())[:120]}
    found = [
        one.get_compiled_memory_stats()
        for one in jax.local_devices()[0].client.live_executables()
        if one.hlo_modules()[0].name == "jit_train_step"
    ]
    planned = max(
        one.argument_size_in_bytes
        + one.temp_size_in_bytes
        + one.output_size_in_bytes
        - one.alias_size_in_bytes
        for one in found
    )
    figures = jax.local_devices()[0].memory_stats() or {}
    return {"planned": planned, "peak": figures.get("peak_bytes_in_use")}


def record(name: str, size: int, log_dir: str) -> dict[str, Any]:
    """What the recorder says of a training, and predicts of three times its batch size."""
    import jax

    import tb_memplugin

    told = train(name, size, log_dir)
    run = tb_memplugin.load(log_dir)["."]
    (recorded,) = {one.in_use_bytes for one in run.snapshots if one.batch_size == size}
    found = tb_memplugin.what_if(run, batch_size=3 * size, capacity="1024GiB").prediction
    span = [found.peak_bytes, found.low_bytes, found.high_bytes]
    device = jax.local_devices()[0]
    return {**told, "recorded": recorded, "tripled": span, "device": device.device_kind}


def largest(name: str, capacity: str | None) -> dict[str, Any]:
    import tb_memplugin

    model, start = made(name), time.perf_counter()
    answer = tb_memplugin.largest_batch_size(model, examples(model, 8), capacity)
    seconds = time.perf_counter() - start
    peak = answer.predicted.prediction.peak_bytes
    return {"size": answer.batch_size, "peak": peak, "seconds": round(seconds)}


CHILDREN = {"train": train, "record": record, "largest": largest}


def child(kind: str, *given: Any, share: float, cache: str) -> dict[str, Any]:
    """The answer of a function in a new process, which may use a share of the device's memory."""
    environment = {
        **os.environ,
        "KERAS_BACKEND": "jax",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "XLA_PYTHON_CLIENT_MEM_FRACTION": str(share),
        "JAX_COMPILATION_CACHE_DIR": cache,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    command = [sys.executable, __file__, "--child", json.dumps([kind, *given])]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    lines = [one for one in done.stdout.splitlines() if one.startswith("{")]
    if done.returncode or not lines:
        return {"failed": f"exit code {done.returncode}: {done.stderr.strip()[-300:]}"}
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def miss(predicted: int, real: dict[str, Any]) -> str:
    """A predicted peak beside that of a training."""
    if "failed" in real:
        return f"planned {predicted / 2**20:,.1f} MiB, failed: {real['failed']}"
    what = "XLA's plan" if real["peak"] is None else "measured"
    size = real["peak"] or real["planned"]
    share = 100 * (predicted / size - 1)
    return f"{predicted / 2**20:,.1f} MiB, {what} {size / 2**20:,.1f} MiB: {share:+.2f} %"


def compare(name: str, limited: float) -> None:
    batch, start = MODELS[name], time.perf_counter()

    def say(what: str) -> None:
        print(f"{name} {what} [{time.perf_counter() - start:.0f} s]", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        roomy = {"share": ROOMY, "cache": f"{folder}/cache"}
        told = child("record", name, batch, f"{folder}/run", **roomy)
        if "recorded" not in told:
            return say(f"could not be recorded: {told}")
        is_cpu = told["peak"] is None
        again = told if is_cpu else child("train", name, batch, **roomy)
        compiling = "" if is_cpu else f" ({told['peak'] / 2**20:,.1f} MiB while compiling)"
        say(f"x1 at {batch} on {told['device']}: {miss(told['recorded'], again)}{compiling}")
        real = child("train", name, 3 * batch, **roomy)
        real = real if is_cpu or "failed" in real else child("train", name, 3 * batch, **roomy)
        low, high = (one / 2**20 for one in told["tripled"][1:])
        say(f"x3: {miss(told['tripled'][0], real)}, range {low:,.1f} to {high:,.1f}")
        under = {"share": limited, "cache": f"{folder}/cache"}
        found = child("largest", name, ON_CPU if is_cpu else None, **under)
        if not found.get("size"):
            return say(f"largest: {found}")
        more = round(1.15 * found["size"])
        trained, larger = (child("train", name, size, **under) for size in (found["size"], more))
        where = f"{ON_CPU}, which a CPU does not enforce" if is_cpu else f"{limited} of the memory"
        ended = f"failed: {larger['failed']}" if "failed" in larger else miss(found["peak"], larger)
        say(
            f"largest in {where}: {found['size']} after {found['seconds']} s, "
            f"{miss(found['peak'], trained)}; {more}: {ended}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--share", type=float, default=0.04)
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        kind, *given = json.loads(options.child)
        print(json.dumps(CHILDREN[kind](*given)))
        return
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(lambda name: compare(name, options.share), options.models))


if __name__ == "__main__":
    main()
