"""Runs whose files cannot be written, copies of callbacks, and temporary directories of killed
processes."""

import os
import pathlib
import tempfile

from child import WARNINGS, run_child

import tb_memplugin

COMMON = """
import copy, gc, glob, os, pickle, resource, shutil, signal, time
import keras, numpy as np, tensorflow as tf, tb_memplugin
from tb_memplugin.recorder.base import background

place = sys.argv[1]


def record(directory, steps=3, after=lambda step: None):
    recorder = tb_memplugin.MemoryRecorder(directory, overhead=0)
    for step in range(steps):
        with recorder.step(step):
            tf.zeros(1000)
        recorder.flush()
        after(step)
    return recorder


def open_files():
    return [
        path for path in map(os.path.realpath, glob.glob("/proc/self/fd/*")) if "tfevents" in path
    ]


def taken():
    told = list(warnings)
    del warnings[:]
    return told
"""

FULL = """
def fill(step):
    # No file may grow: the system refuses writes as on a full disk.
    if step == 0:
        (path,) = glob.glob(place + "/full/memory/*tfevents*")
        resource.setrlimit(
            resource.RLIMIT_FSIZE, (os.path.getsize(path) + 100, resource.RLIM_INFINITY)
        )


recorder = record(place + "/full", after=fill)
before = len(open_files())
recorder.close()
told = {"full": taken(), "open before": before, "open": open_files()}
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
record(place + "/full", steps=5).close()
told["after"] = taken()

recorder = record(place + "/deleted", after=lambda step: step or shutil.rmtree(place + "/deleted"))
recorder.close()
told["deleted"] = taken()
recorder = record(place + "/deleted_last")
shutil.rmtree(place + "/deleted_last")
recorder.close()
told["deleted last"] = taken()
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])
model.compile("sgd", "mse")
x, y = np.zeros((32, 8), "float32"), np.zeros((32, 4), "float32")
callback = tb_memplugin.MemoryCallback(place + "/between", overhead=0)
model.fit(x, y, batch_size=16, verbose=0, callbacks=[callback])
background.wait()
shutil.rmtree(place + "/between")
model.fit(x, y, batch_size=16, verbose=0, callbacks=[callback])
background.wait()
told["deleted between"] = taken()

read_only = sys.argv[2]
made = tb_memplugin.MemoryRecorder(read_only, overhead=0)
os.chmod(read_only, 0o555)
if os.geteuid() == 0:
    os.setuid(65534)  # permissions do not bind root
with made.step(0):
    tf.zeros(1000)
made.close()
told["read only"] = taken()
try:
    tb_memplugin.MemoryRecorder(read_only)
except tb_memplugin.RecordingError as error:
    told["refused"] = str(error)
told["open at the end"] = open_files()
told["threads"] = background.wait()
answer(told)
"""


def test_files_that_cannot_be_written_cost_one_warning_and_nothing_else(
    tmp_path: pathlib.Path,
) -> None:
    # unlike tmp_path, others than root can reach it
    with tempfile.TemporaryDirectory() as read_only:
        told = run_child(WARNINGS + COMMON + FULL, str(tmp_path), read_only, timeout=120)
        assert os.listdir(read_only) == []
    # A full disk is said once, the file is closed all the same, and ends with a whole record.
    assert len(told["full"]) == 1, told["full"]
    assert "writing the memory run stopped: OSError" in told["full"][0]
    assert told["open before"] > 0 and told["open"] == []
    # The next recorder writes into the same directory, not into one of a second process.
    assert told["after"] == []
    run = tb_memplugin.load(tmp_path)["full"]
    assert run.workers == ("",) and run.samples.step.tolist() == list(range(5)) and run.damage == ()
    # A directory that is deleted is reported, whenever that happens.
    for when in ("deleted", "deleted last", "deleted between"):
        assert (
            len(told[when]) == 1
            and ("writing the memory run stopped: FileNotFoundError") in told[when][0]
        ), told
    assert not (tmp_path / "deleted").exists()
    # A directory that became read-only, too; one that is read-only is refused at once.
    assert len(told["read only"]) == 1 and "PermissionError" in told["read only"][0]
    assert "log_dir is not writable" in told["refused"]
    assert told["open at the end"] == [] and told["threads"] is True


GONE = """
os.mkdir(place + "/gone")
os.chdir(place + "/gone")
first, second = record(place + "/first"), record(place + "/second")
third, fourth = record(place + "/third"), record(place + "/fourth")
os.rmdir(place + "/gone")
first.close()
try:
    tb_memplugin.MemoryRecorder(".")
except tb_memplugin.RecordingError as error:
    refused = str(error)
from tb_memplugin.recorder.loop import session

ended = []
session.end_foreign_calls = ended.append
second._recording.sender.steps.sampler.host.close = (
    None  # one recording that cannot close a file of its own
)
third._recording.layers.remove = None  # and one that cannot end
session._close_all()
answer({"refused": refused, "ended": len(ended), "warnings": taken()})
"""


def test_without_a_working_directory_every_recording_ends(tmp_path: pathlib.Path) -> None:
    told = run_child(WARNINGS + COMMON + GONE, str(tmp_path), timeout=120)
    assert "log_dir cannot be created" in told["refused"] and told["ended"] == 1
    assert [line.split(" stopped")[0] for line in told["warnings"]] == [
        "memory samples",
        "memory recording",
    ], told
    runs = tb_memplugin.load(tmp_path)
    for name in ("first", "second", "third", "fourth"):
        assert f"Memory recorded in {tmp_path / name}: peak" in told["stderr"]
        assert runs[name].ended is (name != "third") and runs[name].samples.step.tolist() == [
            0,
            1,
            2,
        ]


COPIED = """
class Mine(tb_memplugin.MemoryCallback):
    def __init__(self, name, **named):
        super().__init__(**named)
        self.name = name


def settings(callback):
    return {**vars(callback._recording.settings), "type": type(callback).__name__}


model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])
model.compile("sgd", "mse")
x, y = np.zeros((32, 8), "float32"), np.zeros((32, 4), "float32")
callback = Mine(
    "a",
    log_dir=place + "/run",
    overhead=0.25,
    trace_steps=[1, 2],
    devices=["CPU:0"],
    keep_profile=True,
    worker="w",
    source_lines=False,
)
model.fit(x, y, batch_size=16, verbose=0, callbacks=[callback])
copies = [
    copy.deepcopy(callback),
    pickle.loads(pickle.dumps(callback)),
    copy.deepcopy({"c": [callback]})["c"][0],
]
told = {
    "same": [settings(one) == settings(callback) for one in copies],
    "names": [one.name for one in copies],
    "models": [one.model is None for one in copies],
    "own": [one._recording is not callback._recording for one in copies],
}
os.environ["TF_CONFIG"] = json.dumps(
    {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}}
)
one = pickle.dumps(tb_memplugin.MemoryCallback(place + "/second"))
os.environ["TF_CONFIG"] = os.environ["TF_CONFIG"].replace('"index": 0', '"index": 1')
told["worker"] = pickle.loads(one)._recording.settings.worker
# A copy records a model of its own.
other = keras.models.clone_model(model)
other.compile("sgd", "mse")
other.fit(x, y, batch_size=16, verbose=0, callbacks=[copies[0]])
copies[0].close()
answer(told)
"""


def test_a_callback_can_be_copied_and_pickled_as_its_configuration(tmp_path: pathlib.Path) -> None:
    told = run_child(WARNINGS + COMMON + COPIED, str(tmp_path), timeout=120)
    assert told["same"] == [True] * 3 and told["names"] == ["a"] * 3
    assert told["models"] == [True] * 3 and told["own"] == [True] * 3
    assert told["worker"] == "worker_1"
    assert len(tb_memplugin.load(tmp_path)["run"].sessions) == 2
