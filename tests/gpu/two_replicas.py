"""Measures trainings of `MirroredStrategy` on two GPUs with Keras's defaults: breakdowns,
predictions for two and three times the batch, followed plans, the largest batch size, losses, and
many traces.

Each training is a process of its own, of which several run at a time; a line is printed for each
result, and written as JSON to `$OUT/PART.jsonl` if OUT is set. With `--cpu` the models are small,
and the replicas are two logical devices of the CPU, which share one allocator.

usage: python tests/gpu/two_replicas.py PART … [--cpu] [--jobs 12] [--seconds 170] [--traces 60]
       [--only NAME …]
       python tests/gpu/two_replicas.py child JSON
"""

import argparse
import concurrent.futures
import dataclasses
import functools
import hashlib
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

ROOT = pathlib.Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT))

from harness import ROW, answer, by_category, counted  # noqa: E402

STEPS, SETTLED = 8, 4  # steps of a training, and those before its peak is measured
SHARE = 0.7
EXAMPLES = 16  # times the batch: the data that the largest batch size is asked with
ALIKE = 12  # times the batch: data for whole batches of one, two and three times the size


@dataclasses.dataclass(frozen=True)
class Size:
    """The global batch of a model, and the capacity of each GPU for its largest one."""

    batch: int
    tight_mib: int
    roomy_mib: int = 7000  # of 16 processes at a time on a GPU of 139 GiB


SIZES = {
    "ResNet50": Size(64, 2500),
    "BERT": Size(32, 3000),
    "GAN": Size(64, 0),
    "arrays": Size(128, 1200),
}
SMALL = {
    "ResNet50": Size(8, 1700, 3500),
    "BERT": Size(8, 300, 1500),
    "GAN": Size(8, 0, 1500),
    "arrays": Size(16, 250, 1500),
}
FITTED = [name for name in SIZES if name != "GAN"]
"""Models that `fit` trains; the GAN is a loop of `strategy.run`."""


# --- in a process of its own ------------------------------------------------------------------


class Replicas:
    """The strategy on two devices of this size, and their allocators' statistics."""

    def __init__(self, cpu: bool, mib: int) -> None:
        os.environ.setdefault("NCCL_NVLS_ENABLE", "0")  # NVLink multicast is not everywhere
        if cpu:
            os.environ["TF_CPU_BFC_MEM_LIMIT_IN_MB"] = str(mib)
        import tensorflow as tf

        import tb_memplugin  # noqa: F401  # chooses the allocator of the CPU

        self._info = tf.config.experimental
        part = tf.config.LogicalDeviceConfiguration
        if cpu:
            (card,) = tf.config.list_physical_devices("CPU")
            tf.config.set_logical_device_configuration(card, [part(), part()])
            self.names, devices = ["CPU:0"], ["CPU:0", "CPU:1"]
        else:
            devices = self.names = ["GPU:0", "GPU:1"]
            for card in tf.config.list_physical_devices("GPU")[:2]:
                tf.config.set_logical_device_configuration(card, [part(memory_limit=mib)])
        self.strategy = tf.distribute.MirroredStrategy(devices)
        self.peaks: list[list[int]] = []

    def begin(self, *_: Any, **__: Any) -> None:
        for name in self.names:
            self._info.reset_memory_stats(name)

    def end(self, *_: Any, **__: Any) -> None:
        self.peaks.append([self._info.get_memory_info(name)["peak"] for name in self.names])

    def settled(self) -> dict[str, int]:
        """The median peak of each device's later steps."""
        later = zip(*self.peaks[SETTLED:], strict=True)
        return {
            name: int(statistics.median(of)) for name, of in zip(self.names, later, strict=False)
        }


def bert(cpu: bool) -> Any:
    import keras

    width, blocks, length = (64, 2, 32) if cpu else (512, 6, 128)
    layers = keras.layers
    tokens = keras.Input((length,), dtype="int32")
    positions = layers.Embedding(length, width)(keras.ops.arange(length))
    hidden = layers.LayerNormalization()(layers.Embedding(8000, width)(tokens) + positions)
    for block in range(blocks):
        attention = layers.MultiHeadAttention(8, width // 8, dropout=0.1, name=f"attention{block}")
        attended = layers.Dropout(0.1)(attention(hidden, hidden))
        hidden = layers.LayerNormalization()(hidden + attended)
        inner = layers.Dense(4 * width, activation="gelu", name=f"wide{block}")(hidden)
        inner = layers.Dropout(0.1)(layers.Dense(width, name=f"narrow{block}")(inner))
        hidden = layers.LayerNormalization()(hidden + inner)
    return keras.Model(tokens, layers.Dense(10, name="head")(hidden[:, 0]))


def cnn(side: int) -> Any:
    import keras

    layers = keras.layers
    model = keras.Sequential([keras.Input((side, side, 3))])
    for number, width in enumerate((64, 128, 256)):
        model.add(layers.Conv2D(width, 3, activation="relu", padding="same", name=f"conv{number}"))
        model.add(layers.MaxPooling2D(name=f"pool{number}"))
    model.add(layers.GlobalAveragePooling2D())
    model.add(layers.Dense(10, name="head"))
    return model


def made(name: str, cpu: bool) -> tuple[Any, Callable[[int], tuple[Any, Any]]]:
    """The model as Keras compiles it by default, and a function that makes so many examples."""
    import keras
    import numpy as np

    keras.utils.set_random_seed(1)
    rng, side = np.random.default_rng(1), 32 if cpu else 96
    if name == "BERT":
        model = bert(cpu)
    elif name == "ResNet50":
        model = keras.applications.ResNet50(
            weights=None, input_shape=(side, side, 3), classes=10, classifier_activation=None
        )
    else:
        model = cnn(side)
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    shape = model.inputs[0].shape[1:]

    def examples(count: int) -> tuple[Any, Any]:
        if name == "BERT":
            inputs = rng.integers(0, 8000, (count, *shape)).astype("int32")
        else:
            inputs = rng.random((count, *shape), dtype="float32")
        return inputs, rng.integers(0, 10, count)

    return model, examples


def fed(name: str, examples: Any, batch: int) -> dict[str, Any]:
    """The data as `fit` takes them: arrays, or a data set as in Keras's guide."""
    import tensorflow as tf

    x, y = examples
    if name == "arrays":
        return {"x": x, "y": y, "batch_size": batch}
    return {"x": tf.data.Dataset.from_tensor_slices((x, y)).batch(batch)}


def losses_kept(losses: list[str]) -> Any:
    import keras

    return keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda step, logs: losses.append(float(logs["loss"]).hex())
    )


def train_fit(name: str, replicas: Replicas, arguments: dict[str, Any]) -> Any:
    """`fit` of some steps; returns its losses and its model."""
    import keras

    import tb_memplugin

    run, batch = arguments.get("run"), arguments["batch"]
    steps = arguments.get("steps", STEPS)
    with replicas.strategy.scope():
        model, examples = made(name, arguments["cpu"])
        if arguments.get("segments"):
            model = tb_memplugin.remat(model, arguments["segments"])
            model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    losses: list[str] = []
    watch = keras.callbacks.LambdaCallback(
        on_train_batch_begin=replicas.begin, on_train_batch_end=replicas.end
    )
    callbacks = [losses_kept(losses), watch]
    if run:
        traced = arguments.get("traced")
        options = {"trace_steps": range(2, 2 + traced)} if traced else {}
        callbacks.append(tb_memplugin.MemoryCallback(run, **options))
    # Keras divides no batch unevenly, so an incomplete last one is left out.
    count = arguments.get("examples", batch * min(steps, STEPS))
    each = count // batch
    model.fit(
        **fed(name, examples(count), batch),
        epochs=-(-steps // min(steps, each)),
        steps_per_epoch=min(steps, each),
        verbose=0,
        callbacks=callbacks,
    )
    for callback in callbacks[2:]:
        callback.close()
    return losses, model


def train_gan(replicas: Replicas, arguments: dict[str, Any]) -> Any:
    """A custom loop of two models and two optimizers, outside of the scope."""
    import contextlib

    import keras
    import numpy as np
    import tensorflow as tf

    import tb_memplugin

    keras.utils.set_random_seed(1)
    layers, cpu, batch = keras.layers, arguments["cpu"], arguments["batch"]
    side, width = (16, 16) if cpu else (64, 128)
    strategy, steps = replicas.strategy, arguments.get("steps", STEPS)
    with strategy.scope():
        generator = keras.Sequential([keras.Input((64,))], name="generator")
        generator.add(layers.Dense((side // 4) ** 2 * width))
        generator.add(layers.Reshape((side // 4, side // 4, width)))
        for filters in (width, width // 2):
            generator.add(layers.Conv2DTranspose(filters, 4, 2, "same"))
            generator.add(layers.BatchNormalization())
            generator.add(layers.LeakyReLU())
        generator.add(layers.Conv2D(3, 3, padding="same", activation="tanh"))
        discriminator = keras.Sequential([keras.Input((side, side, 3))], name="discriminator")
        for filters in (width // 2, width):
            discriminator.add(layers.Conv2D(filters, 4, 2, "same"))
            discriminator.add(layers.LeakyReLU())
        discriminator.add(layers.Flatten())
        discriminator.add(layers.Dense(1))
        makes, judges = keras.optimizers.Adam(1e-4), keras.optimizers.Adam(1e-4)
        makes.build(generator.trainable_variables)
        judges.build(discriminator.trainable_variables)
    judged = keras.losses.BinaryCrossentropy(from_logits=True, reduction="none")

    def replica(images: Any) -> Any:
        noise = tf.random.normal((tf.shape(images)[0], 64), seed=1)
        with tf.GradientTape(persistent=True) as tape:
            real = discriminator(images, training=True)
            fake = discriminator(generator(noise, training=True), training=True)
            right = tf.reduce_sum(judged(tf.ones_like(fake), fake)) / batch
            wrong = judged(tf.ones_like(real), real) + judged(tf.zeros_like(fake), fake)
            wrong = tf.reduce_sum(wrong) / batch
        makes.apply(tape.gradient(right, generator.trainable_variables))
        judges.apply(tape.gradient(wrong, discriminator.trainable_variables))
        return right + wrong

    @tf.function
    def train(images: Any) -> Any:
        return strategy.reduce("sum", strategy.run(replica, args=(images,)), axis=None)

    both = tf.Module(name="gan")
    both.generator, both.discriminator = generator, discriminator
    count = arguments.get("examples", batch * STEPS)
    images = np.random.default_rng(1).random((count, side, side, 3), dtype="float32")
    data = tf.data.Dataset.from_tensor_slices(images).batch(batch).repeat()
    batches = iter(strategy.experimental_distribute_dataset(data))
    losses, recorder = [], None
    with contextlib.ExitStack() as stack:
        if arguments.get("run"):
            traced = arguments.get("traced")
            options = {"trace_steps": range(2, 2 + traced)} if traced else {}
            recorder = stack.enter_context(
                tb_memplugin.MemoryRecorder(arguments["run"], model=both, **options)
            )
        for step in range(steps):
            replicas.begin()
            with recorder.step(step) if recorder else contextlib.nullcontext():
                losses.append(float(train(next(batches))).hex())
            replicas.end()
    return losses, generator


def child_train(arguments: dict[str, Any]) -> None:
    """Train, and answer with the peaks of each device or the failure."""
    import tensorflow as tf

    if arguments.get("deterministic"):
        tf.config.experimental.enable_op_determinism()
    replicas, name = Replicas(arguments["cpu"], arguments["mib"]), arguments["name"]
    try:
        if name == "GAN":
            losses, model = train_gan(replicas, arguments)
        else:
            losses, model = train_fit(name, replicas, arguments)
    except tf.errors.OpError as error:
        answer({"error": f"{type(error).__name__}: {error!s:.600}", "steps": len(replicas.peaks)})
        os._exit(0)  # a failed collective operation may keep the other replica waiting
    weights = hashlib.sha256(b"".join(one.numpy().tobytes() for one in model.weights)).hexdigest()
    answer(
        {
            "peaks": replicas.settled() if len(replicas.peaks) > SETTLED else {},
            "steps": len(losses),
            "losses": losses,
            "weights": weights,
            "counted": counted(model) if name != "GAN" else {},
        }
    )


def child_largest(arguments: dict[str, Any]) -> None:
    """Ask twice for the largest batch size in the scope."""
    import tb_memplugin

    replicas, name = Replicas(arguments["cpu"], arguments["mib"]), arguments["name"]
    with replicas.strategy.scope():
        model, examples = made(name, arguments["cpu"])
        data = fed(name, examples(EXAMPLES * arguments["batch"]), arguments["batch"])
        given = (data["x"], data["y"]) if name == "arrays" else data["x"]
        for _ in range(2):
            began = time.monotonic()
            found = tb_memplugin.largest_batch_size(model, given)
            answer(
                {
                    "batch": found.batch_size,
                    "verified": found.verified,
                    "peak": found.peak_bytes,
                    "seconds": round(time.monotonic() - began, 1),
                    "text": str(found),
                }
            )


def child_plan(arguments: dict[str, Any]) -> None:
    """Plan for a model in the scope of its strategy."""
    import tb_memplugin

    replicas, name = Replicas(arguments["cpu"], arguments["mib"]), arguments["name"]
    with replicas.strategy.scope():
        model, examples = made(name, arguments["cpu"])
        data = fed(name, examples(4 * arguments["batch"]), arguments["batch"])
        given = (data["x"], data["y"]) if name == "arrays" else data["x"]
        plan = tb_memplugin.plan(
            model, given, budget=arguments["budget"], batch_size=arguments["batch"]
        )
    answer(planned(plan))


def planned(plan: Any) -> dict[str, Any]:
    figures = ("device", "fits", "segments", "batch_size", "accumulation", "peak_bytes")
    return {name: getattr(plan, name) for name in figures} | {"text": str(plan)}


CHILDREN = {"train": child_train, "largest": child_largest, "plan": child_plan}


# --- what starts them -------------------------------------------------------------------------


class Bench:
    """Starts processes and prints their results; a process that takes too long is ended."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.cpu, self.jobs = options.cpu, options.jobs
        self._seconds, self._until = options.seconds, time.monotonic() + options.seconds
        self.only, self.traces = options.only, options.traces
        self.runs = pathlib.Path(tempfile.mkdtemp())
        self._part, self._lock = "", threading.Lock()

    def begin(self, part: str) -> None:
        self._part, self._until = part, time.monotonic() + self._seconds

    def sizes(self, names: list[str]) -> dict[str, Size]:
        sizes = SMALL if self.cpu else SIZES
        return {name: sizes[name] for name in names if name in self.only}

    def tell(self, line: str, **facts: Any) -> None:
        with self._lock:
            print(f"{self._part}: {line}", flush=True)
            if out := os.environ.get("OUT"):
                with (pathlib.Path(out) / f"{self._part}.jsonl").open("a") as file:
                    file.write(json.dumps({"line": line, **facts}, default=str) + "\n")

    def child(self, kind: str, **arguments: Any) -> list[dict[str, Any]]:
        """The rows that a process answered, with an ``error`` in the last one if it failed."""
        arguments = {"kind": kind, "cpu": self.cpu, **arguments}
        with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
            process = subprocess.Popen(
                [sys.executable, __file__, "child", json.dumps(arguments, default=str)],
                stdout=output,
                stderr=errors,
                env={"TF_CPP_MIN_LOG_LEVEL": "1", **os.environ},
                start_new_session=True,
            )
            late = ""
            try:
                process.wait(max(1.0, self._until - time.monotonic()))
            except subprocess.TimeoutExpired:
                late = "took too long; "
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            output.seek(0)
            errors.seek(0)
            rows = [
                json.loads(line[len(ROW) :])
                for line in output.read().splitlines()
                if line.startswith(ROW)
            ]
            if process.returncode:
                said = errors.read().strip()[-3000:]
                rows.append({"error": f"{late}exit status {process.returncode}: {said}"})
        if error := rows[-1].get("error"):
            said = error if len(error) < 400 else f"{error[:200]} … {error[-200:]}"
            self.tell(f"{told(arguments)} FAILED {said!r}", **rows[-1])
        return rows

    def train(self, **arguments: Any) -> dict[str, Any]:
        return self.child("train", **arguments)[-1]

    def together(self, works: list[Callable[[], Any]]) -> list[Any]:
        def contained(work: Callable[[], Any]) -> Any:
            try:
                return work()
            except Exception as fault:
                self.tell(f"FAULT {type(fault).__name__}: {fault!s:.500}")
                return None

        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            return list(pool.map(contained, works))


def told(arguments: dict[str, Any]) -> str:
    return " ".join(f"{arguments[key]}" for key in ("kind", "name", "batch") if key in arguments)


def mb(size: float | None) -> str:
    return "unknown" if size is None else f"{size / 1e6:,.1f} MB"


def off(predicted: float | None, real: float | None) -> str:
    return "–" if not predicted or not real else f"{100 * (predicted / real - 1):+.2f} %"


def recorded(run: pathlib.Path) -> Any:
    import tb_memplugin

    (found,) = tb_memplugin.load(run).values()
    return found


def tell_ledgers(bench: Bench, name: str, run: Any, truth: dict[str, Any]) -> None:
    """A line for each traced step of each device."""
    samples = run.samples
    for note in run.notes:
        bench.tell(f"{name} note: {note}")
    for shot in run.snapshots:
        here = (samples.step == shot.step) & (samples.phase == 0)
        peak = int(samples.devices[shot.device].peak_bytes[here].max())
        sums = by_category(shot.ledger)
        total = sum(sums.values())
        share = 100 * sums.get("unattributed", 0) / total
        layers: dict[tuple[str, str], int] = {}
        for row in shot.ledger:
            key = row.category, row.layer or ""
            layers[key] = layers.get(key, 0) + row.bytes
        copies = 2 if bench.cpu else 1
        wrong = [
            path
            for path, (weights, slots) in truth.items()
            if (copies * weights, copies * slots)
            != tuple(layers.get((category, path), 0) for category in ("weights", "optimizer_state"))
        ]
        bench.tell(
            f"{name} step {shot.step} {shot.device} {shot.mode}: peak {peak:,}, ledger − peak "
            f"{total - peak:+,}, unattributed {share:.4f} %, communication "
            f"{sums.get('communication', 0):,}, other weights or slots than Keras {wrong}, "
            f"replay {shot.replay and vars(shot.replay)}, notes {list(shot.not_available)}",
            categories=sums,
            step=shot.step,
            device=shot.device,
        )


def ledgers(bench: Bench) -> None:
    """Breakdowns of each traced step of each device, by default."""

    def one(name: str, size: Size) -> None:
        run = bench.runs / f"ledgers-{name}"
        common = {"name": name, "mib": size.roomy_mib, "batch": size.batch}
        found = bench.train(**common, run=run, steps=4 * STEPS)
        tell_ledgers(bench, name, recorded(run), found.get("counted", {}))

    sizes = bench.sizes(list(SIZES))
    bench.together([functools.partial(one, *item) for item in sizes.items()])
    if out := os.environ.get("OUT"):
        subprocess.run(
            ["tar", "-czf", pathlib.Path(out) / "ledgers.tar.gz", "-C", bench.runs, "."], check=True
        )


def what_if(bench: Bench) -> None:
    """Predictions for two and three times the global batch, beside trainings without a recorder."""
    import tb_memplugin

    sizes = bench.sizes(list(SIZES))
    works = []
    for name, size in sizes.items():
        for factor in (0, 1, 2, 3):
            recording = {} if factor else {"run": bench.runs / f"what-if-{name}"}
            batch = size.batch * max(1, factor)
            # A data set may lie on the device as a whole, so it is the same for all.
            common = {"name": name, "mib": size.roomy_mib, "batch": batch}
            common["examples"] = ALIKE * size.batch
            works.append(functools.partial(bench.train, **common, **recording))
    found = bench.together(works)
    for number, (name, size) in enumerate(sizes.items()):
        base, *real = found[4 * number : 4 * number + 4]
        run = recorded(bench.runs / f"what-if-{name}")
        for device in sorted({one.device for one in run.requests}):
            for factor, training in enumerate(real, 1):
                measured = (training or {}).get("peaks", {}).get(device)
                asked = tb_memplugin.what_if(run, batch_size=factor * size.batch, device=device)
                guess = asked.prediction
                inside = (
                    measured
                    and guess.low_bytes
                    and (guess.low_bytes <= measured <= guess.high_bytes)
                )
                bench.tell(
                    f"{name} {size.batch} ×{factor} {device}: predicted {mb(guess.peak_bytes)} "
                    f"({guess.method}), measured {mb(measured)}, "
                    f"error {off(guess.peak_bytes, measured)}, in range {bool(inside)}",
                    low=guess.low_bytes,
                    high=guess.high_bytes,
                    assumptions=guess.assumptions,
                )
        same = {device: (base or {}).get("peaks", {}).get(device) for device in real[0]["peaks"]}
        bench.tell(f"{name} {size.batch} peaks: recorded {same}, not recorded {real[0]['peaks']}")
        batch = max(one.batch_size or 0 for one in run.requests)
        bench.tell(f"{name}: recorded batch {batch} of {size.batch}")


def plans(bench: Bench) -> None:
    """Plans for 70 % of the peak, from the recorded run and for the model, followed."""
    import tb_memplugin

    def one(name: str, size: Size) -> None:
        run = bench.runs / f"plan-{name}"
        common = {"name": name, "mib": size.roomy_mib}
        found = bench.train(**common, batch=3 * size.batch, run=run)
        budget = int(SHARE * max(found["peaks"].values()))
        follow(f"{name} from a run", planned(tb_memplugin.plan(recorded(run), budget=budget)))
        if name != "GAN":
            asked = bench.child("plan", **common, batch=3 * size.batch, budget=budget)[-1]
            follow(f"{name} from the model", asked)

    def follow(title: str, plan: dict[str, Any]) -> None:
        name = title.partition(" ")[0]
        size = bench.sizes([name])[name]
        if not plan.get("fits") or plan["accumulation"] > 1:
            bench.tell(f"{title}: not followed: fits {plan.get('fits')}", **plan)
            return
        common = {"name": name, "mib": size.roomy_mib, "batch": plan["batch_size"]}
        found = bench.train(**common, segments=plan["segments"])
        real = found.get("peaks", {}).get(plan["device"])
        bench.tell(
            f"{title}: batch {plan['batch_size']}, {len(plan['segments'])} segments: planned "
            f"{mb(plan['peak_bytes'])}, measured {mb(real)} on {plan['device']}, error "
            f"{off(plan['peak_bytes'], real)}; peaks {found.get('peaks')}",
            **plan,
        )

    bench.together([functools.partial(one, *item) for item in bench.sizes(list(SIZES)).items()])


def largest(bench: Bench) -> None:
    """The largest batch size in the scope, which trains, and 1.15 times as many, which does not."""

    def one(name: str, size: Size) -> None:
        common = {"name": name, "mib": size.tight_mib}
        rows = bench.child("largest", **common, batch=size.batch)
        for row in rows:
            if "text" in row:
                bench.tell(
                    f"{name} in {size.tight_mib} MiB, {row['seconds']} s: {row['text']}", **row
                )
        if not rows[0].get("batch"):
            return
        batch = rows[0]["batch"]
        replicas = 2
        larger = -(-int(1.15 * batch) // replicas) * replicas
        for count in (batch, larger):
            # As much data as was asked with: arrays are on the device as a whole.
            found = bench.train(**common, batch=count, examples=max(EXAMPLES * size.batch, count))
            error, result = found.get("error", ""), f"trains, {found.get('peaks')}"
            if error:
                result = "fails" if "ResourceExhausted" in error else "ended otherwise"
            bench.tell(f"{name} in {size.tight_mib} MiB: batch {count} {result}", **found)

    bench.together([functools.partial(one, *item) for item in bench.sizes(FITTED).items()])


def losses(bench: Bench) -> None:
    """Losses and weights with the callback, and twice without."""
    sizes = bench.sizes(list(SIZES))
    works = []
    for name, size in sizes.items():
        common = {"name": name, "mib": size.roomy_mib, "batch": size.batch, "deterministic": True}
        for number in range(3):
            recording = {} if number else {"run": bench.runs / f"losses-{name}"}
            works.append(functools.partial(bench.train, **common, **recording, steps=2 * STEPS))
    found = bench.together(works)
    for number, name in enumerate(sizes):
        kept = [
            ((one or {}).get("losses"), (one or {}).get("weights"))
            for one in found[3 * number : 3 * number + 3]
        ]
        bench.tell(
            f"{name}: with the callback as without {kept[0] == kept[1]}, twice without "
            f"{kept[1] == kept[2]}, {len(kept[0][0] or ())} losses, last {(kept[0][0] or [0])[-1]}",
            losses=[one[0] for one in kept],
        )


def traces(bench: Bench) -> None:
    """Many traced steps, none of which may end a process."""
    sizes = bench.sizes(list(SIZES))
    processes = max(len(sizes), bench.jobs)
    each = -(-bench.traces // processes)
    works = []
    for number in range(processes):
        name = list(sizes)[number % len(sizes)]
        common = {"name": name, "mib": sizes[name].roomy_mib, "batch": sizes[name].batch}
        run = bench.runs / f"traces-{number}"
        works.append(functools.partial(bench.train, **common, run=run, traced=each, steps=each + 3))
    found = bench.together(works)
    traced = ended = 0
    for number, one in enumerate(found):
        ended += one is None or "error" in one
        try:
            run = recorded(bench.runs / f"traces-{number}")
            traced += len({shot.step for shot in run.snapshots})
        except Exception as fault:
            bench.tell(f"process {number}: {fault!s:.300}")
    bench.tell(
        f"{processes} processes of {each} traced steps: {traced} have breakdowns, {ended} "
        "processes failed"
    )


PARTS = {
    "ledgers": ledgers,
    "what_if": what_if,
    "plans": plans,
    "largest": largest,
    "losses": losses,
    "traces": traces,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--jobs", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=170, help="for each part")
    parser.add_argument("--traces", type=int, default=60)
    parser.add_argument("--only", nargs="*", choices=SIZES, default=list(SIZES))
    options = parser.parse_args()
    bench = Bench(options)
    for part in options.parts:
        began = time.monotonic()
        bench.begin(part)
        PARTS[part](bench)
        bench.tell(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        given = json.loads(sys.argv[2])
        CHILDREN[given["kind"]](given)
    else:
        main()
