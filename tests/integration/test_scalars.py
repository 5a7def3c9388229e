"""`MemoryCallback(scalars=True)`: TensorBoard's own dashboards show the peaks that `load` reads."""

import json
import pathlib
import urllib.parse
import urllib.request
from typing import Any

import numpy as np
import pytest
from child import WARNINGS, run_child
from servers import start, wait_for
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import tb_memplugin
from tb_memplugin.schema import PHASES

RUN_TAG = "memory/peak_bytes"
EPOCH_TAG = "memory/epoch_peak_bytes"

FIT = """
import keras, numpy as np, tensorflow as tf, tb_memplugin
from tensorboard.plugins.hparams import api as hp

x = np.ones((256, 64), "float32")


def losses(run, callbacks, epochs=3):
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [keras.Input((64,)), keras.layers.Dense(512, activation="relu"), keras.layers.Dense(1)]
    )
    model.compile("adam", "mse")
    fitted = model.fit(
        x,
        x[:, :1],
        batch_size=32,
        epochs=epochs,
        validation_data=(x[:64], x[:64, :1]),
        verbose=0,
        callbacks=callbacks,
    )
    return [loss.hex() for loss in fitted.history["loss"]]
"""

ALL_TOGETHER = """
logdir = sys.argv[1]
with tf.summary.create_file_writer(logdir).as_default():
    hp.hparams_config(
        hparams=[hp.HParam("units", hp.IntInterval(1, 1000))],
        metrics=[hp.Metric("memory/peak_bytes", group="memory", display_name="peak memory")],
    )
run = logdir + "/exp"
callback = tb_memplugin.MemoryCallback(run, scalars=True)
told = losses(
    run, [callback, keras.callbacks.TensorBoard(run), hp.KerasCallback(run, {"units": 512})]
)
callback.close()
answer({"same": told == losses(run, []), "warnings": warnings})
"""


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    directory = tmp_path_factory.mktemp("runs")
    told = run_child(WARNINGS + FIT + ALL_TOGETHER, str(directory))
    assert told["same"] and told["warnings"] == []
    return directory


def peaks(run: Any, phase: str, epoch: int | None = None) -> np.ndarray[Any, Any]:
    rows = run.samples.phase == PHASES.index(phase)
    return run.samples.devices["CPU:0"].peak_bytes[
        rows if epoch is None else rows & (run.samples.epoch == epoch)
    ]


def rounded(sizes: np.ndarray[Any, Any]) -> float:
    """The highest size as TensorBoard's 32-bit floats have it."""
    return float(np.float32(sizes.max()))


def scalars(directory: pathlib.Path) -> dict[str, list[tuple[int, float]]]:
    """Tag to steps and values, read by TensorBoard's own accumulator."""
    accumulator = EventAccumulator(str(directory), size_guidance={"tensors": 0})
    accumulator.Reload()
    found: dict[str, list[tuple[int, float]]] = {}
    for tag in accumulator.Tags()["tensors"]:
        if accumulator.SummaryMetadata(tag).plugin_data.plugin_name == "scalars":
            found[tag] = [
                (event.step, float(event.tensor_proto.float_val[0]))
                for event in accumulator.Tensors(tag)
            ]
    return found


def test_the_scalars_are_the_peaks_of_load(logdir: pathlib.Path) -> None:
    run, written = tb_memplugin.load(logdir)["exp"], scalars(logdir / "exp" / "memory")
    assert set(written) == {RUN_TAG, f"{EPOCH_TAG}/train/CPU:0", f"{EPOCH_TAG}/validation/CPU:0"}
    for phase in ("train", "validation"):
        expected = [(8 * epoch + 7, rounded(peaks(run, phase, epoch))) for epoch in range(3)]
        assert written[f"{EPOCH_TAG}/{phase}/CPU:0"] == expected
    values = [value for _, value in written[RUN_TAG]]
    assert values == sorted(values) and values[-1] == rounded(
        run.samples.devices["CPU:0"].peak_bytes
    )
    assert len(run.samples) == 30 and run.damage == ()


@pytest.fixture(scope="module", params=["true", "false"], ids=["fast", "python"])
def address(
    request: pytest.FixtureRequest, logdir: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> Any:
    with start(logdir, tmp_path_factory.mktemp("blocker"), request.param) as running:
        wait_for(lambda: "exp/memory" in get(running.address, "scalars/tags"))
        yield running.address


def get(address: str, route: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"{address}data/plugin/{route}",
        data,
        {} if data is None else {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


def test_the_scalars_dashboard_shows_them_beside_those_of_keras(
    address: str, logdir: pathlib.Path
) -> None:
    tags = get(address, "scalars/tags")
    assert set(tags["exp/memory"]) == {
        RUN_TAG,
        f"{EPOCH_TAG}/train/CPU:0",
        f"{EPOCH_TAG}/validation/CPU:0",
    }
    assert "epoch_loss" in tags["exp/train"] and not set(tags["exp/train"]) & set(
        tags["exp/memory"]
    )
    tag = urllib.parse.quote(RUN_TAG, safe="")
    points = get(address, f"scalars/scalars?run=exp%2Fmemory&tag={tag}")
    highest = rounded(tb_memplugin.load(logdir)["exp"].samples.devices["CPU:0"].peak_bytes)
    assert points[-1][2] == highest


def test_the_hparams_dashboard_has_the_peak_as_a_metric(address: str, logdir: pathlib.Path) -> None:
    wanted = {
        "experimentName": "",
        "allowedStatuses": ["STATUS_UNKNOWN", "STATUS_SUCCESS", "STATUS_FAILURE", "STATUS_RUNNING"],
        "colParams": [{"metric": {"tag": RUN_TAG, "group": "memory"}, "order": "ORDER_DESC"}],
        "startIndex": 0,
        "sliceSize": 10,
    }
    (group,) = get(address, "hparams/session_groups", wanted)["sessionGroups"]
    assert group["hparams"]["units"] == 512
    values = {metric["name"]["tag"]: metric["value"] for metric in group["metricValues"]}
    highest = rounded(tb_memplugin.load(logdir)["exp"].samples.devices["CPU:0"].peak_bytes)
    assert values[RUN_TAG] == highest


def test_the_memory_tab_ignores_the_scalars(address: str) -> None:
    (run,) = get(address, "tb_memplugin/runs")["runs"]
    assert (run["run"], run["steps"], run["damage"]) == ("exp", 24, [])
