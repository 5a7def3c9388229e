"""Compares plans on a GPU with the trainings that follow them: peak and time of a step. Prints Markdown.

A training is recorded once per model; then one process for each budget plans, applies the plan and trains.

usage: python tests/gpu/planning.py [MODEL ...]
"""

import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

MODELS = {"ResNet50": 64, "MobileNetV2": 64}
"""Batch sizes of images of 224 pixels."""
SHARES = (0.75, 0.6)
"""Budgets, as shares of the recorded peak."""
STEPS = 12


def compiled(name: str, plan: object = None) -> object:
    import keras

    import tb_memplugin

    arguments = {"weights": None, "input_shape": (224, 224, 3), "classes": 5, "classifier_activation": None}
    model = getattr(keras.applications, name)(**arguments)
    model = model if plan is None else tb_memplugin.remat(model, plan)
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    return model


def train(name: str, directory: str, share: str) -> None:
    """Records a training, or plans for a share of its peak and trains with the plan; prints peaks and times as JSON."""
    import keras
    import numpy as np
    import tensorflow as tf

    import tb_memplugin

    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
    keras.utils.set_random_seed(1)
    random, batch = np.random.default_rng(0), MODELS[name]
    x = random.normal(size=(batch, 224, 224, 3)).astype("float32")
    y = random.integers(0, 5, batch)
    answer: dict = {}
    if share == "record":
        model = compiled(name)
        with tb_memplugin.MemoryRecorder(directory, model=model) as recorder:
            for step in range(STEPS):
                with recorder.step(step):
                    model.train_on_batch(x, y)
    else:
        (run,) = tb_memplugin.load(directory).values()
        (device,) = (one for one in run.devices if one.startswith("GPU"))
        recorded = max(one.in_use_bytes for one in run.snapshots if one.device == device)
        began = time.perf_counter()
        plan = tb_memplugin.plan(run, budget=int(recorded * float(share)), device=device)
        answer = {
            "recorded": recorded,
            "planning": time.perf_counter() - began,
            "predicted": [plan.low_bytes, plan.peak_bytes, plan.high_bytes],
            "budget": plan.budget_bytes,
            "extra_time": plan.extra_time,
            "segments": len(plan.segments),
            "other": plan.accumulation > 1 or not plan.segments,
        }
        model = compiled(name, plan)
    peaks, times = [], []
    for _ in range(STEPS):
        tf.config.experimental.reset_memory_stats("GPU:0")
        began = time.perf_counter()
        model.train_on_batch(x, y)
        times.append(time.perf_counter() - began)
        peaks.append(tf.config.experimental.get_memory_info("GPU:0")["peak"])
    print(json.dumps({**answer, "peaks": peaks[3:], "time": statistics.median(times[3:])}))


def measured(*arguments: str) -> dict:
    command = [sys.executable, __file__, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    return json.loads(done.stdout.strip().splitlines()[-1])


def row(name: str, share: float, directory: str, plain: dict) -> str:
    got = measured(name, directory, str(share))
    low, peak, high = (size / 2**20 for size in got["predicted"])
    median = statistics.median(got["peaks"]) / 2**20
    slower = got["time"] / plain["time"] - 1
    return (
        f"| {name} | {got['recorded'] / 2**20:,.0f} | {got['budget'] / 2**20:,.0f} | {got['segments']} | {peak:,.0f} "
        f"({low:,.0f}–{high:,.0f}) | {median:,.0f} ({100 * (median / peak - 1):+.1f} %) | {got['extra_time']:+.0%} | "
        f"{slower:+.0%} | {got['planning']:.1f} s |"
    )


if __name__ == "__main__":
    if len(sys.argv) == 4:
        train(*sys.argv[1:])
    else:
        print(
            "| model | recorded | budget | segments | predicted, MiB | median peak, MiB | predicted | time | planning |"
        )
        print("|---|---|---|---|---|---|---|---|---|")
        for model_name in sys.argv[1:] or MODELS:
            with tempfile.TemporaryDirectory() as temporary:
                recorded_training = measured(model_name, temporary, "record")
                for share_of_peak in SHARES:
                    print(row(model_name, share_of_peak, temporary, recorded_training), flush=True)
