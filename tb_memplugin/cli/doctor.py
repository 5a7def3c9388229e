"""``tb-memplugin doctor``: says whether recording works on this machine, and what to do where it
does not.

One check each for what recording needs, and a short recording whose figures are compared."""

import argparse
import functools
import importlib.metadata
import importlib.util
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

from tb_memplugin.cli.parser import CommandParser
from tb_memplugin.environment import SWITCH, is_off, keras_backend, why_unrecorded
from tb_memplugin.export import load
from tb_memplugin.recorder.devices import Driver, MemoryMaps
from tb_memplugin.recorder.devices import statistics as allocator
from tb_memplugin.schema import Snapshot, clean, is_gpu

SECONDS = 2.0  # how long the recorded training runs
TRACED = (3, 10)
MAX_UNATTRIBUTED = 0.05  # largest share of the bytes in use without an owner
_DRIVER_FILES = ("/dev/nvidiactl", "/dev/dxg")


def add_arguments(parser: CommandParser) -> None:
    parser.describe(
        "Checks TensorFlow, the allocator, the memory map, the GPU, its driver and TensorBoard's "
        "plugin, records a small training for two seconds and compares the run with Keras's own "
        "count. Each line is `ok`, or says what to do.",
        examples=("tb-memplugin doctor",),
        exit_codes={0: "every line is ok", 1: "a line says what to do"},
    )
    parser.set_defaults(command=_doctor)


def _doctor(_: argparse.Namespace) -> int:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # what TensorFlow logs would bury the lines
    if not is_off() and keras_backend() == "jax":
        return 1 - all([_said("JAX", _jax), _said("TensorBoard", _tensorboard)])
    backend = None if is_off() else why_unrecorded()
    if backend is not None:
        return int(not _said("Keras", lambda: (False, f"{backend}.")))
    well = [
        _said("switch", _switch),
        _said("TensorFlow", _tensorflow),
        _said("TensorBoard", _tensorboard),
    ]
    if well[1]:
        well += [_said("GPU", _gpu), _said("allocator", _allocator)]
        well += [_said("memory map", _memory_map), _said("GPU driver", _driver)]
        if well[4] and not is_off():
            well.append(_said("recording", functools.partial(_recording, SECONDS)))
    return 0 if all(well) else 1


def _said(name: str, check: Callable[[], tuple[bool, str]]) -> bool:
    """Print what a check finds, as soon as it is known: a fact, or what is wrong and what to do."""
    try:
        ok, sentence = check()
    except Exception as error:
        ok, sentence = False, f"{type(error).__name__}: {error}"
    print(f"{'ok' if ok else '!!':<4}{name}: {clean(sentence)}", flush=True)
    return ok


def _switch() -> tuple[bool, str]:
    if is_off():
        return False, f"{SWITCH}=0 turns recording off: unset it"
    return True, f"recording is not turned off ({SWITCH} is not 0)"


def _jax() -> tuple[bool, str]:
    if importlib.util.find_spec("jax") is None:
        return False, "it is not installed here: pip install jax"
    import jax

    (device, *_) = jax.local_devices()
    samples = "and the bytes in use" if device.memory_stats() else "but no bytes in use"
    return True, (
        f"version {jax.__version__}; MemoryCallback and tb-memplugin run record what XLA planned, "
        f"{samples} of {device.platform.upper()}:{device.id}; MemoryRecorder and "
        "print_what_fits need tensorflow"
    )


def _tensorflow() -> tuple[bool, str]:
    if importlib.util.find_spec("tensorflow") is None:
        return False, (
            "it is not installed here; viewing works, to record: pip install 'tensorflow>=2.16'"
        )
    import tensorflow as tf

    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)  # other processes may use the GPU
    build = "with CUDA" if tf.sysconfig.get_build_info().get("is_cuda_build") else "without CUDA"
    version = tuple(int(part) for part in tf.__version__.split(".")[:2])
    if version < (2, 16):
        return False, f"version {tf.__version__} is older than 2.16: pip install -U tensorflow"
    return True, f"version {tf.__version__}, built {build}"


def _tensorboard() -> tuple[bool, str]:
    points = importlib.metadata.entry_points(group="tensorboard_plugins")
    found = [point for point in points if point.value.startswith("tb_memplugin.")]
    if not found:
        return False, (
            "the Memory tab is not registered in this environment: install tb_memplugin here"
        )
    found[0].load()
    return True, f"version {importlib.metadata.version('tensorboard')} loads the Memory tab"


def _gpu() -> tuple[bool, str]:
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        names = [
            tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name)
            for gpu in gpus
        ]
        # see recorder.watch.collectives
        several = "; replicas are traced from their second step on" if len(names) > 1 else ""
        return True, ", ".join(names) + several
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    if not hidden and any(map(os.path.exists, _DRIVER_FILES)):
        return False, (
            "there is a GPU, but TensorFlow cannot use it: pip install 'tensorflow[and-cuda]'"
        )
    return True, "none; CPU:0 is recorded"


def _allocator() -> tuple[bool, str]:
    devices, notes = allocator.choose_devices(None)
    for device in devices:
        allocator.memory_info(device.name)
    if notes or not devices:
        return False, " ".join(notes) or "no device keeps statistics"
    return True, f"{', '.join(device.name for device in devices)}: statistics can be read"


def _memory_map() -> tuple[bool, str]:
    import tensorflow as tf

    devices, _ = allocator.choose_devices(None)
    notes: list[str] = []
    names = [device.name for device in devices]
    maps = MemoryMaps(names, notes.append)
    with tf.device(names[0]):
        kept = tf.ones(1024)
    unread = [
        name for name in names if maps.read(name) is None and (name == names[0] or not is_gpu(name))
    ]
    del kept
    if notes or unread:
        return False, " ".join(notes) or f"the map of {', '.join(unread)} could not be read"
    return True, (
        f"{', '.join(names)}: can be read, and agrees with the statistics and with tensors of "
        "known sizes"
    )


def _driver() -> tuple[bool, str]:
    devices, _ = allocator.choose_devices(None)
    buses = {device.name: device.pci_bus_id for device in devices if device.pci_bus_id}
    if not buses:
        return True, "not needed: no GPU is recorded"
    if importlib.util.find_spec("pynvml") is None:
        return False, "other processes' memory on the GPU stays unknown: pip install nvidia-ml-py"
    driver = Driver(buses)
    driver.open()
    try:
        if not driver.answers:
            return False, (
                "NVIDIA's driver does not answer nvidia-ml-py: see whether nvidia-smi works here"
            )
        driver.read()
        return True, f"answers for {', '.join(sorted(driver.figures)) or 'no device'}"
    finally:
        driver.close()


def _recording(seconds: float) -> tuple[bool, str]:
    import keras
    import numpy as np

    from tb_memplugin.recorder.loop import MemoryCallback

    class Stop(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if time.monotonic() > until and int(self.model.optimizer.iterations) > max(TRACED):
                self.model.stop_training = True

    model = keras.Sequential(
        [keras.Input((64,)), keras.layers.Dense(256, activation="relu"), keras.layers.Dense(8)]
    )
    model.compile("adam", "mse")
    x, y = np.zeros((320, 64), "float32"), np.zeros((320, 8), "float32")
    with tempfile.TemporaryDirectory(prefix="tb_memplugin_doctor") as directory:
        callback = MemoryCallback(directory, trace_steps=TRACED)
        until = time.monotonic() + seconds
        model.fit(x, y, epochs=1_000_000, verbose=0, callbacks=[callback, Stop()])
        callback.close()
        runs = load(directory)
        run = next(iter(runs.values()), None)
        if run is None:
            return False, "nothing was recorded; a warning above says why"
        wrong = _wrong(run.snapshots, 4 * model.count_params())
        if wrong:
            return False, "; ".join([*wrong, *run.notes])
        return True, f"{len(run.samples.step):,} steps recorded; {_facts(run.snapshots[-1])}"


def _wrong(snapshots: Sequence[Snapshot], weight_bytes: int) -> list[str]:
    if not snapshots:
        return ["no step was traced"]
    last, wrong = snapshots[-1], []
    weights = sum(row.bytes for row in last.ledger if row.category == "weights")
    if weights != weight_bytes:
        wrong.append(f"weights are {weights:,} B, Keras counts {weight_bytes:,} B")
    if _unattributed(last) > MAX_UNATTRIBUTED:
        wrong.append(f"{_unattributed(last):.1%} of the bytes in use have no owner")
    replay = last.replay
    if replay is not None and (replay.addresses, replay.chunks) != (
        replay.of_addresses,
        replay.of_chunks,
    ):
        wrong.append(
            f"the replay reproduces {replay.addresses:,} of {replay.of_addresses:,} addresses"
        )
    return wrong


def _unattributed(snapshot: Snapshot) -> float:
    without = sum(row.bytes for row in snapshot.ledger if row.category == "unattributed")
    return without / max(snapshot.in_use_bytes, 1)


def _facts(snapshot: Snapshot) -> str:
    replay = snapshot.replay
    reproduced = (
        "not replayed"
        if replay is None
        else (f"the replay reproduces all {replay.of_addresses:,} addresses")
    )
    return f"weights equal Keras's count, {_unattributed(snapshot):.1%} unattributed, {reproduced}"
