"""What the recorder says on a real GPU, and what it costs: VGG16 and ResNet50, plain and compiled, frozen and
trainable.

Every configuration trains in a process of its own. Printed is a Markdown table: the allocator's peak of the traced
step beside the ledger's sum (closure), the share of it that has no owner, and the ratio of training time with and
without the callback at default settings (pairs in turn, the first one not counted).

usage: python tests/gpu/measure.py [--image 224] [--batch 64] [--steps 60] [--pairs 6] [--profiles DIRECTORY]
"""

import argparse
import gzip
import json
import pathlib
import pickle
import statistics
import subprocess
import sys
import tempfile
import time

MODELS = ("VGG16", "ResNet50")
MODES = ("graph", "xla")
PARTS = ("trainable", "frozen")
COLUMNS = (
    "model",
    "mode",
    "layers",
    "peak, bytes",
    "ledger − peak",
    "unattributed",
    "held for backward",
    "step",
    "time with / without",
    "snapshots",
)


def make_model(name: str, mode: str, part: str, image: int) -> "keras.Model":  # noqa: F821
    """The model without weights; of a frozen one all but the last fifth of the layers are frozen."""
    import keras

    keras.utils.set_random_seed(1)
    model = getattr(keras.applications, name)(weights=None, input_shape=(image, image, 3))
    if part == "frozen":
        for layer in model.layers[: len(model.layers) * 4 // 5]:
            layer.trainable = False
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(), jit_compile=mode == "xla")
    return model


def keep_last_trace(callback: "tb_memplugin.MemoryCallback") -> list:  # noqa: F821
    """A list that the callback's traced steps are added to, as they are worked through."""
    kept: list = []
    callback._session.start()
    tracer = callback._session.recording._tracer
    work_through = tracer.work_through

    def keep(traced: object) -> object:
        kept[:] = [traced]
        return work_through(traced)

    tracer.work_through = keep
    return kept


def measure_one(arguments: argparse.Namespace) -> dict[str, object]:
    """Trains one configuration and returns its row."""
    import numpy as np
    import tensorflow as tf

    import tb_memplugin

    name, mode, part = arguments.one
    model = make_model(name, mode, part, arguments.image)
    random = np.random.default_rng(1)
    images = tf.constant(random.random((arguments.batch, arguments.image, arguments.image, 3), "float32"))
    labels = tf.constant(random.integers(0, 1000, arguments.batch))
    data = tf.data.Dataset.from_tensors((images, labels)).repeat(arguments.steps)
    with tempfile.TemporaryDirectory() as directory:
        callback = tb_memplugin.MemoryCallback(pathlib.Path(directory) / "run")
        kept = keep_last_trace(callback) if arguments.profiles is not None else []
        seconds: dict[bool, list[float]] = {True: [], False: []}
        for pair in range(arguments.pairs + 1):
            for recorded in (False, True) if pair % 2 else (True, False):
                began = time.perf_counter()
                model.fit(data, verbose=0, callbacks=[callback] if recorded else [])
                if pair:
                    seconds[recorded].append(time.perf_counter() - began)
        callback.close()
        run = tb_memplugin.load(directory)["run"]
        for traced in kept[-1:]:
            stored = arguments.profiles / f"{name}_{mode}_{part}.xplane.pb.gz"
            stored.write_bytes(gzip.compress(traced.profile))
            facts = pickle.dumps({"step": traced.step, "facts": dict(traced.facts)})
            stored.with_suffix("").with_suffix(".facts.gz").write_bytes(gzip.compress(facts))
    snapshot = run.snapshots[-1]
    figures = run.samples.devices[snapshot.device]
    same = (run.samples.step == snapshot.step) & (run.samples.phase == 0)
    ratios = [with_ / without for with_, without in zip(seconds[True], seconds[False], strict=True)]
    return {
        "model": name,
        "mode": mode,
        "part": part,
        "device": snapshot.device,
        "peak": int(figures.peak_bytes[same][0]),
        "ledger": sum(row.bytes for row in snapshot.ledger),
        "unattributed": sum(row.bytes for row in snapshot.ledger if row.category == "unattributed"),
        "held": sum(row.bytes for row in snapshot.saved_for_backward),
        "recorded_mode": snapshot.mode,
        "step_ms": 1000 * statistics.median(seconds[False]) / arguments.steps,
        "ratio": statistics.median(ratios),
        "range": [min(ratios), max(ratios)],
        "snapshots": len(run.snapshots),
        "pool": snapshot.pool_bytes,
        "not_available": list(snapshot.not_available),
    }


def row_text(row: dict) -> str:
    """One row of the table."""
    share = 100 * row["unattributed"] / row["ledger"]
    closes = "exactly" if row["peak"] == row["ledger"] else f"{row['ledger'] - row['peak']:+,}"
    return (
        f"| {row['model']} | {row['mode']} | {row['part']} | {row['peak']:,} | {closes} | {share:.3f} % | "
        f"{row['held']:,} | {row['step_ms']:.1f} ms | "
        f"{row['ratio']:.4f} ({row['range'][0]:.4f} to {row['range'][1]:.4f}) | {row['snapshots']} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--image", type=int, default=224)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--profiles", type=pathlib.Path, help="keep one raw profile of each configuration here")
    parser.add_argument("--one", nargs=3, metavar=("MODEL", "MODE", "PART"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print("ROW " + json.dumps(measure_one(arguments)), flush=True)
        return
    size, batch = arguments.image, arguments.batch
    print(f"images {size} × {size}, batch {batch}, {arguments.pairs} pairs of {arguments.steps} steps\n")
    print("| " + " | ".join(COLUMNS) + " |")
    print("|---|---|---|---:|---|---:|---:|---:|---|---:|", flush=True)
    for name in MODELS:
        for mode in MODES:
            for part in PARTS:
                done = subprocess.run(
                    [sys.executable, __file__, *sys.argv[1:], "--one", name, mode, part], capture_output=True, text=True
                )
                rows = [line[4:] for line in done.stdout.splitlines() if line.startswith("ROW ")]
                if not rows:
                    print(f"| {name} | {mode} | {part} | failed: {done.stderr.strip().splitlines()[-1:]} |", flush=True)
                    continue
                row = json.loads(rows[0])
                print(row_text(row), *row["not_available"], flush=True)


if __name__ == "__main__":
    main()
