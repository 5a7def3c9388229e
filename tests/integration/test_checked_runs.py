"""`tb-memplugin check` on real trainings: a larger batch is a regression, and a fault of the recorder is no pass."""

import json
import pathlib

import pytest
from child import run_child

import tb_memplugin
from tb_memplugin.cli import main

TRAIN = """
import keras, numpy as np, tb_memplugin
import tb_memplugin.recorder.sampling.devices as devices
run, batch_size, breaks = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "breaks"
model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(8192, activation="relu"), keras.layers.Dense(1)])
model.compile("sgd", "mse")
x = np.ones((4 * batch_size, 64), "float32")
def broken(batch, logs):
    if breaks and batch == 1:
        def memory_info(device): raise RuntimeError("broken on purpose")
        devices.memory_info = memory_info
callback = tb_memplugin.MemoryCallback(run, overhead=0)
hook = keras.callbacks.LambdaCallback(on_train_batch_end=broken)
model.fit(x, x[:, :1], batch_size=batch_size, verbose=0, callbacks=[callback, hook])
callback.close()
answer({})
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    directory = tmp_path_factory.mktemp("runs")
    for name, batch_size, breaks in (
        ("main", "256", ""),
        ("same", "256", ""),
        ("larger", "1024", ""),
        ("broken", "256", "breaks"),
    ):
        run_child(TRAIN, str(directory / name / "net"), batch_size, breaks)
    return directory


def checked(runs: pathlib.Path, name: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, object]]:
    compare = ["--baseline", str(runs / "main"), "--max-regression", "20%", "--format", "json"]
    code = main(["check", str(runs / name), *compare])
    (one,) = json.loads(capsys.readouterr().out)["checks"]
    return code, one


def peak(runs: pathlib.Path, name: str) -> int:
    return int(tb_memplugin.load(runs / name)["net"].samples.devices["CPU:0"].peak_bytes.max())


@pytest.mark.long
def test_the_same_training_is_within_and_a_larger_batch_is_not(
    runs: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, same = checked(runs, "same", capsys)
    assert (code, same["status"], same["measured_bytes"]) == (0, "within", peak(runs, "same"))
    code, larger = checked(runs, "larger", capsys)
    assert (code, larger["status"], larger["measured_bytes"]) == (1, "violated", peak(runs, "larger"))
    assert larger["baseline_bytes"] == peak(runs, "main")
    assert larger["allowed_bytes"] == peak(runs, "main") * 6 // 5 < peak(runs, "larger")


@pytest.mark.long
def test_a_recorder_that_stopped_does_not_pass(runs: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, broken = checked(runs, "broken", capsys)
    assert (code, broken["status"]) == (2, "unchecked")
    assert "memory samples stopped: RuntimeError: broken on purpose" in str(broken["reason"])
