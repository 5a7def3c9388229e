"""What a program that records itself prints at its end, in processes of their own."""

import pathlib

import pytest
from child import child_environment
from prepared_python import run_python

import tb_memplugin
from tb_memplugin.schema import format_bytes

PROGRAM = """
import logging, os, sys, keras, numpy as np, tb_memplugin
batch, how = int(sys.argv[1]), sys.argv[2]
os.chdir(sys.argv[3])
if how == "silent": logging.getLogger("tb_memplugin").setLevel(logging.ERROR)
model = keras.Sequential([keras.Input((128,)), *(keras.layers.Dense(1024, "relu") for _ in range(3))])
model.compile("sgd", "mse", jit_compile=False)
callback = tb_memplugin.MemoryCallback("runs/exp1")
try:
    model.fit(np.ones((batch, 128)), np.ones((batch, 1024)), batch_size=batch, verbose=0, callbacks=[callback])
except Exception:
    if how != "caught": raise
"""
SEE = "tensorboard --logdir runs"


LONG = [pytest.param(*one, marks=pytest.mark.long) for one in ((9000, "caught"), (8, "silent"))]


@pytest.mark.parametrize(("batch", "how"), [(8, "plain"), (9000, "plain"), *LONG])
def test_one_line_says_where_the_run_is(tmp_path: pathlib.Path, batch: int, how: str) -> None:
    environment = child_environment({"TF_CPU_BFC_MEM_LIMIT_IN_MB": "128"})
    done = run_python(
        ["-c", PROGRAM, str(batch), how, str(tmp_path)], environment=environment, timeout=240
    )
    (run,) = tb_memplugin.load(tmp_path / "runs").values()
    told = [line for line in done.stderr.splitlines() if "runs/exp1" in line or SEE in line]
    if how == "silent":
        assert told == []
    elif batch == 9000 and how == "plain":
        (oom,) = run.ooms
        assert done.returncode == 1
        assert told == [
            f"Out of memory at step 0 (train): {oom.reason.rstrip('.')}. tb-memplugin inspect "
            "runs/exp1"
        ]
    else:
        peak = max(int(one.peak_bytes.max()) for one in run.samples.devices.values())
        assert told == [f"Memory recorded in runs/exp1: peak {format_bytes(peak)}. {SEE}"]
