"""Children that a recorded process forks: nothing of the recorder runs in them."""

import pathlib

from child import run_child

import tb_memplugin

FORKED = """
import glob, multiprocessing, os, signal, threading
import keras, numpy as np, tensorflow as tf, tb_memplugin
from tb_memplugin.recorder.base import background

original_call = keras.layers.Layer.__call__
x, y = np.zeros((64, 8), "float32"), np.zeros((64, 4), "float32")
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])
model.compile("sgd", "mse")


def run_files():
    return {
        path: os.path.getsize(path)
        for path in glob.glob(sys.argv[1] + "*/**/*tfevents*", recursive=True)
    }


told = []


def look(read_end, write_end, how):
    signal.alarm(200)
    background.WAIT_SECONDS = background.WORK_SECONDS = (
        3600.0  # a child that waits for the thread never ends
    )
    # In the child: what does it see, and can it go on using what it inherited?
    if how != "process":
        os.close(read_end)
    recorder.end_step()
    with recorder.step(90):
        pass
    recorder.flush()
    recorder.close()
    callback.close()
    os.write(
        write_end,
        json.dumps(
            {
                "wrapped": keras.layers.Layer.__call__ is not original_call,
                "guarded": hasattr(model.train_function, "tb_memplugin_original"),
                "dump": os.environ.get("TF_BFC_MEMORY_DUMP"),
                "files": [
                    path
                    for path in map(os.path.realpath, glob.glob("/proc/self/fd/*"))
                    if "tfevents" in path
                ],
                "threads": [thread.name for thread in threading.enumerate()],
            }
        ).encode(),
    )


def fork(how):
    background.wait()
    background._thread.due.clear()  # so that only a child could write meanwhile
    before, window = run_files(), recorder._recording.sender.steps.windows._window
    directories = [os.path.dirname(os.environ["TF_BFC_MEMORY_DUMP"])] + (
        [window.profiler._directory.path] if window else []
    )
    read_end, write_end = os.pipe()
    if how == "process":
        child = multiprocessing.get_context("fork").Process(
            target=look, args=(read_end, write_end, how)
        )
        child.start()
        child.join()
        status = child.exitcode
    else:
        pid = os.fork()
        if not pid:
            try:
                look(read_end, write_end, how)
            except BaseException:
                os._exit(1)
            sys.exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.close(write_end)
    told.append(
        {
            "how": how,
            "child": json.loads(os.read(read_end, 1 << 16)),
            "status": status,
            "untouched": run_files() == before,
            "kept": all(map(os.path.isdir, directories)),
            "directories": len(directories),
        }
    )


class Fork(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 1:
            fork("process")


recorder = tb_memplugin.MemoryRecorder(sys.argv[1] + "_own", trace_steps=[1])
recorder.start()
callback = tb_memplugin.MemoryCallback(sys.argv[1], overhead=0)
for step in range(4):
    with recorder.step(step):
        tf.zeros(1000)
        if step == 1:
            fork("fork")  # later, TensorFlow's thread pools would abort a child that exits
model.fit(x, y, batch_size=16, verbose=0, callbacks=[callback, Fork()])
recorder.close()
answer(told)
"""


def test_nothing_of_the_recorder_runs_in_a_forked_child(tmp_path: pathlib.Path) -> None:
    told = run_child(FORKED, str(tmp_path / "run"), timeout=120)
    assert [each["how"] for each in told] == ["fork", "process"]
    assert told[0]["directories"] == 2  # the step was being traced
    for each in told:
        # THEN the child sees no wrapper, no file and no thread of the recorder, and does not wait
        # as it exits
        child = each["child"]
        assert not child["wrapped"] and not child["guarded"] and child["dump"] is None
        assert child["files"] == [] and child["threads"] == ["MainThread"]
        assert each["status"] == 0, told
        # AND the parent's files and directories are as before.
        assert each["untouched"] and each["kept"]
    # AND the parent's runs are complete.
    runs = tb_memplugin.load(tmp_path)
    assert (
        runs["run"].samples.step.tolist() == runs["run_own"].samples.step.tolist() == [0, 1, 2, 3]
    )
    assert [snapshot.step for snapshot in runs["run_own"].snapshots] == [1]
    assert all(not run.damage for run in runs.values())
