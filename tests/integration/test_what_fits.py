"""Programs that memory ends, in processes of their own: what they then print of what fits is true,
and nothing else about them changes."""

import itertools
import pathlib
import re
import subprocess
from collections.abc import Mapping

import pytest
from child import child_environment
from prepared_python import run_python

import tb_memplugin

MODEL = """
import atexit, functools, gc, os, signal, sys, threading
import keras, numpy as np, tb_memplugin

atexit.unregister(gc.freeze)  # these programs end as a stranger's does: see prepared_python
import tensorflow as tf

tf.config.threading.set_inter_op_parallelism_threads(
    1
)  # operations of small models run in one order
keras.utils.set_random_seed(1)
L = keras.layers
batch, runs, jit, kind = int(sys.argv[1]), sys.argv[2], sys.argv[3] == "jit", sys.argv[4]
at_failure = functools.partial(tb_memplugin.print_what_fits, seconds=200)  # on a busy machine
inputs = keras.Input((64,), dtype="int32")
hidden = L.Embedding(300, 64)(inputs)
for _ in range(2):
    hidden = L.Add()(
        [hidden, L.Dense(64)(L.Dense(256, activation="gelu")(L.LayerNormalization()(hidden)))]
    )
model = keras.Model(inputs, L.Dense(3)(L.GlobalAveragePooling1D()(hidden)))
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=jit)
x, y = np.ones((4096, 64), "int32"), np.arange(4096, dtype="int32") % 3


def train(**more):
    model.fit(x, y, batch_size=batch, steps_per_epoch=3, verbose=0, **more)
"""
IMAGES = """
inputs = keras.Input((32, 32, 3))
hidden = inputs
for width in (16, 32):
    hidden = L.MaxPooling2D()(
        L.ReLU()(L.BatchNormalization()(L.Conv2D(width, 3, padding="same")(hidden)))
    )
model = keras.Model(inputs, L.Dense(3)(L.GlobalAveragePooling2D()(hidden)))
x, y = np.ones((2048, 32, 32, 3), "float32"), np.arange(2048, dtype="int32") % 3
"""
CNN = MODEL.replace("model.compile", IMAGES + "model.compile").replace(
    "x, y = np.ones((4096", "_ = np.ones((4096"
)
FAILS = """
if kind == "hook":
    sys.excepthook = lambda kind, error, trace: print(
        "my own hook:", kind.__name__, file=sys.stderr, flush=True
    )
if kind == "limit":
    at_failure = lambda error, run: tb_memplugin.print_what_fits(error, run, seconds=0.5)
if kind == "interrupt":

    def at_failure(error, run):
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        tb_memplugin.print_what_fits(error, run)


callbacks = [] if kind == "command" else [tb_memplugin.MemoryCallback(runs, at_failure=at_failure)]
if kind == "caught":
    try:
        train(callbacks=callbacks)
    except Exception:
        print("caught", flush=True)
    thread = threading.Thread(target=train, kwargs={"callbacks": callbacks})
    thread.start()
    thread.join()
    raise ValueError("another one")
if kind == "later":
    model.fit(x, y, batch_size=8, steps_per_epoch=6, verbose=0, callbacks=callbacks)
train(callbacks=callbacks)
"""
FAILED, LIMIT = 1024, "128"
BEGINS = "\nLooking for what fits: up to 200 s, Ctrl+C ends it.\n"


def child(code: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = child_environment({"TF_CPU_BFC_MEM_LIMIT_IN_MB": LIMIT})
    return run_python(["-c", code, *arguments], environment=environment, timeout=280)


def passes(batch: int, how: str, code: str = "", model: str = MODEL) -> bool:
    done = child(
        model + code + "\ntrain()\nprint('passed', flush=True)\nos._exit(0)",
        str(batch),
        "",
        how,
        "",
    )
    return "passed" in done.stdout


def answer(text: str) -> tuple[int, Mapping[str, str]]:
    """The largest batch size, and the lines to paste for it and for the plan."""
    assert text.count(BEGINS) == 1 and "Not measured" not in text
    parts = text.split(BEGINS)[1].split(f"\nPlan for batch size {FAILED:,}: ")
    parts[1] = parts[1].partition("\nF0000")[0]  # what TensorFlow says as it aborts
    assert sum(not line.startswith("    ") for line in "".join(parts).splitlines()) < 15
    size = int(re.findall(r"largest batch size: ([\d,]+)", parts[0])[0].replace(",", ""))
    codes = ["\n".join(re.findall(r"^    (\S.*|    .*)$", part, re.M)) for part in parts]
    assert codes[0] == f"batch_size = {size}  # of the data set, or of fit"
    return size, dict(zip(("largest", "plan"), codes, strict=True))


def test_the_batch_size_that_a_failed_first_step_prints_at_last_passes(
    tmp_path: pathlib.Path,
) -> None:
    # GIVEN a training whose first step fails, in a program with a hook of its own
    done = child(MODEL + FAILS, str(FAILED), str(tmp_path), "graph", "hook")
    # THEN its hook and its exit code are as without, and what was measured comes last
    assert done.returncode == 1
    assert done.stderr.index("my own hook: ResourceExhaustedError") < done.stderr.index(BEGINS)
    size, codes = answer(done.stderr)
    assert "Verified: two steps ran" in done.stderr and 8 < size < FAILED
    assert passes(size, "graph", codes["largest"])


@pytest.mark.long
@pytest.mark.parametrize(
    ("model", "how", "kind"),
    [
        *((MODEL, *case) for case in itertools.product(("graph", "jit"), ("first", "later"))),
        (CNN, "jit", "first"),
    ],
    ids=["graph-first", "graph-later", "jit-first", "jit-later", "cnn"],
)
def test_what_is_printed_passes_when_it_is_followed(
    model: str, how: str, kind: str, tmp_path: pathlib.Path
) -> None:
    done = child(model + FAILS, str(FAILED), str(tmp_path), how, kind)
    # As it ends, TensorFlow itself aborts after a compiled step that failed.
    assert done.returncode == (1 if how == "graph" else -6)
    size, codes = answer(done.stderr)
    # THEN the batch size passes and twice as much fails; a plan passes with the batch size that
    # failed
    assert passes(size, how, codes["largest"], model) and not passes(2 * size, how, model=model)
    assert codes["plan"] or how == "jit"
    if codes["plan"]:
        parts = int((re.findall(r'"gradient_accumulation_steps": (\d+)', codes["plan"]) or [1])[0])
        assert (
            parts * int((re.findall(r"batch_size = (\d+)", codes["plan"]) or [FAILED])[0]) == FAILED
        )
        assert passes(FAILED, how, codes["plan"].replace("batch_size =", "batch ="), model)


@pytest.mark.long
def test_where_the_program_goes_on_nothing_is_measured(tmp_path: pathlib.Path) -> None:
    # GIVEN a failure that is caught, another one in a thread, and then an exception that is none
    done = child(MODEL + FAILS, str(FAILED), str(tmp_path), "graph", "caught")
    assert (
        done.returncode == 1
        and done.stdout == "caught\n"
        and ("ValueError: another one") in done.stderr
    )
    assert "Looking for" not in done.stderr


LONG = """
import sys
import keras, numpy as np, tensorflow as tf, tb_memplugin


def clips():
    for number in range(8):
        length = 1600 if number == 6 else 20 + 3 * number
        yield np.ones((16, length, 32), "float32"), np.ones((16, 1), "float32")


specs = tf.TensorSpec((16, None, 32)), tf.TensorSpec((16, 1))
data = tf.data.Dataset.from_generator(clips, output_signature=specs)
hidden = [keras.layers.Dense(256, "relu") for _ in range(3)]
pooled = keras.layers.GlobalAveragePooling1D()
model = keras.Sequential([keras.Input((None, 32)), *hidden, pooled, keras.layers.Dense(1)])
model.compile("adam", "mse")
callback = tb_memplugin.MemoryCallback(sys.argv[1], at_failure=tb_memplugin.print_what_fits)
model.fit(data, verbose=0, callbacks=[callback])
"""


@pytest.mark.long
def test_what_fits_is_measured_with_the_lengths_of_the_failed_batch(tmp_path: pathlib.Path) -> None:
    # GIVEN a training that fails at a batch of longer sequences: of 16 x 1,600 x 256 floats
    environment = child_environment({"TF_CPU_BFC_MEM_LIMIT_IN_MB": "80"})
    done = run_python(["-c", LONG, str(tmp_path)], environment=environment, timeout=280)
    assert done.returncode == 1
    assert "The failed batch was unlike the first one: (batch, 1600, 32) instead of " in done.stderr
    # THEN the size that is verified has these lengths: their activations alone need 4.7 MiB each
    size = int(re.findall(r"largest batch size: (\d+)", done.stderr)[0])
    assert "Verified: two steps ran" in done.stderr and 6 <= size <= 12
    assert "Plan for batch size 16: no change" not in done.stderr


CAUGHT = """
import functools, os
import keras, numpy as np, tensorflow as tf, tb_memplugin

model = keras.Sequential(
    [keras.Input((8,)), keras.layers.Dense(4096, "relu"), keras.layers.Dense(1)]
)
model.compile("adam", "mse", jit_compile=True)
x, y = np.ones((16384, 8), "float32"), np.ones((16384, 1), "float32")
model.fit(x[:8], y[:8], verbose=0)
try:
    model.fit(x, y, batch_size=16384, verbose=0)
except tf.errors.ResourceExhaustedError:
    print("caught", flush=True)
plan = functools.partial(tb_memplugin.plan, budget="64MiB")
for measure in tb_memplugin.probe, tb_memplugin.largest_batch_size, plan:
    try:
        measure(model, (x[:8], y[:8]))
    except tb_memplugin.RecordingError as error:
        print(error, flush=True)
os._exit(0)
"""


def test_a_model_whose_variables_a_caught_failure_freed_is_refused() -> None:
    # GIVEN a program that catches a compiled step's failure, which has freed what the step was
    # changing
    done = child(CAUGHT)
    # THEN nothing of it is read or run
    assert done.returncode == 0 and done.stdout.startswith("caught\n")
    assert done.stdout.count("Start the program again") == 3


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "ends"),
    [("interrupt", r"^"), ("limit", r"Not verified: .*\n+.*\nStopped after 0 " r"s\.\n")],
)
def test_an_interrupt_and_the_time_limit_end_it(
    kind: str, ends: str, tmp_path: pathlib.Path
) -> None:
    done = child(MODEL + FAILS, str(FAILED), str(tmp_path), "graph", kind)
    assert done.returncode == 1 and "ResourceExhaustedError" in done.stderr
    printed = done.stderr.partition("Ctrl+C ends it.\n")[2]
    assert re.search(f"{ends}Out of memory at step 0 \\(train\\): ", printed), printed


@pytest.mark.long
@pytest.mark.parametrize("options", [[], ["--no-probe"]])
def test_the_command_measures_unless_it_is_told_not_to(
    options: list[str], tmp_path: pathlib.Path
) -> None:
    program = tmp_path / "train.py"
    program.write_text(MODEL + FAILS, encoding="utf-8")
    given = [
        "--logdir",
        str(tmp_path / "runs"),
        *options,
        str(program),
        str(FAILED),
        "",
        "graph",
        "command",
    ]
    done = child(f"from tb_memplugin.cli.run import main; main({given!r})")
    assert done.returncode == 1
    begins = BEGINS.replace("200", "120")
    assert (begins in done.stderr) is not bool(options)
    if not options:
        summary, printed = done.stderr.split(begins)
        assert "tensorboard --logdir" in summary and "recording stopped" not in done.stderr
        assert printed.startswith(("largest batch size: ", "Stopped after 120 s"))


SHELL = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.user_ns["sys"] = sys
shell.run_cell(CELLS[0])
shell.run_cell(CELLS[1])
sys.stdout.flush()
print("MARK", file=sys.stderr, flush=True)
shell.run_cell("batch = 8; train(callbacks=callbacks); print('trained')")
"""


@pytest.mark.long
def test_a_notebook_measures_after_the_cell_and_trains_on(tmp_path: pathlib.Path) -> None:
    code = f"import sys\nCELLS = {[MODEL, FAILS]!r}\n{SHELL}"
    environment = child_environment(
        {"TF_CPU_BFC_MEM_LIMIT_IN_MB": LIMIT, "IPYTHONDIR": str(tmp_path / "ipython")}
    )
    command = ["-c", code, str(FAILED), str(tmp_path / "runs" / "exp1"), "graph", "first"]
    done = run_python(command, environment=environment, timeout=280)
    assert done.returncode == 0 and done.stdout.index("ResourceExhaustedError") < done.stdout.index(
        "trained"
    )
    assert answer(done.stderr.partition("MARK")[0])[0] > 8
    # THEN the run holds the failure, the steps after it, and nothing of what was measured
    run = tb_memplugin.load(tmp_path / "runs")["exp1"]
    assert len(run.ooms) == 1 and run.samples.step.tolist() == [0, 1, 2, 3]
