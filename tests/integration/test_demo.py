"""The demo as a newcomer runs it, in small: real trainings, read by `inspect`, shown by
TensorBoard."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

import tb_memplugin

ROOT = pathlib.Path(__file__).resolve().parents[2]
SERVE = ROOT / "demo" / "serve.py"
SCRIPTS = tuple(
    re.findall(r'"(\w+)"', re.search(r"^SCRIPTS = (.*)$", SERVE.read_text("utf-8"), re.M)[1])  # type: ignore[index]
)

# From VGG16's paper: 3 × 3 kernels and biases of its thirteen convolutions, float32.
CHANNELS = [
    (3, 64),
    (64, 64),
    (64, 128),
    (128, 128),
    (128, 256),
    (256, 256),
    (256, 256),
    (256, 512),
] + [(512, 512)] * 5
BACKBONE = [4 * (9 * before * after + after) for before, after in CHANNELS]
HEAD = 4 * (512 * 256 + 256) + 4 * (256 * 8 + 8)
STEPS = 4
"""Steps of each stage of the run `frozen`."""
BLOCK_5, BLOCKS_2_TO_5 = BACKBONE[10:], BACKBONE[2:]


def demo(script: str, *arguments: object) -> str:
    """What a script of the demo prints."""
    command = [sys.executable, str(ROOT / "demo" / f"{script}.py"), *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=240).stdout


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The demo's run `frozen`, one epoch of four steps in each of its three stages."""
    directory = tmp_path_factory.mktemp("demo") / "runs"
    demo(
        "frozen_backbone", "--logdir", directory, "--run", "frozen", "--epochs", 3, "--steps", STEPS
    )
    return directory


def inspect(logdir: pathlib.Path, *arguments: str, run: str = "frozen") -> dict:
    command = [
        sys.executable,
        "-m",
        "tb_memplugin",
        "inspect",
        str(logdir),
        "--format",
        "json",
        *arguments,
    ]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    return json.loads(done.stdout)["runs"][run]


def weights(run: dict, trainable: bool) -> int:
    return sum(layer["weight_bytes"] for layer in run["layers"] if layer["trainable"] == trainable)


@pytest.mark.long
def test_weights_equal_the_architectures_in_each_stage(logdir: pathlib.Path) -> None:
    stages = [inspect(logdir, "--step", "2"), inspect(logdir, "--step", "6"), inspect(logdir)]
    for run, unfrozen in zip(stages, ([], BLOCK_5, BLOCKS_2_TO_5), strict=True):
        assert weights(run, False) == sum(BACKBONE) - sum(unfrozen)
        assert weights(run, True) == sum(unfrozen) + HEAD
    assert (stages[0]["steps"], stages[0]["first_step"], stages[0]["last_step"]) == (12, 0, 11)


@pytest.fixture(scope="module")
def leaking(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The demo's leak: each of 60 steps keeps 16 x 16 x 16 x 128 floats."""
    directory = tmp_path_factory.mktemp("leak")
    demo("leak", "--logdir", directory, "--steps", 60)
    return directory


def test_the_tab_opens_after_the_first_training(tmp_path: pathlib.Path) -> None:
    # GIVEN trainings that record at once, the first of them a run
    (tmp_path / "serve.py").write_bytes(SERVE.read_bytes())
    small = ROOT / "tests" / "fixtures" / "runs" / "small"
    for script in SCRIPTS:
        body = f"shutil.copytree({str(small)!r}, sys.argv[2] + '/{script}', dirs_exist_ok=True)"
        noise = "print('from TensorFlow', file=sys.stderr)"
        lines = ("import shutil, sys", body, noise, f"print('{script}: done')")
        (tmp_path / f"{script}.py").write_text("\n".join(lines), "utf-8")
    command = [sys.executable, str(tmp_path / "serve.py"), str(tmp_path / "runs")]
    done = subprocess.run(
        [*command, "--train", "--check", "--port", "0"],
        check=True,
        capture_output=True,
        text=True,
        timeout=240,
    )
    # THEN the address is printed before the others train, and again at last
    lines = done.stdout.splitlines()
    first, others = SCRIPTS[0], SCRIPTS[1:]
    address = lines[-1]
    assert re.fullmatch("http://localhost:.*/#tb_memplugin", address)
    assert lines[:2] == [
        f"{first}: done",
        f"The tab shows {first}; more runs follow: {address}",
    ]
    assert lines[2:-2] == [f"{script}: done" for script in others]
    assert "from TensorFlow" not in done.stdout + done.stderr


def test_make_demo_trains_the_documented_runs_and_serves_them() -> None:
    # GIVEN a recipe that trains and serves in one process, and one that only trains
    for word, of_recipe in (("demo", ["serve"]), ("train", list(SCRIPTS))):
        command = ["make", "--dry-run", word]
        done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
        assert re.findall(r"demo/(\w+)\.py", done.stdout) == of_recipe
        assert ("--train" in done.stdout) == (word == "demo")
    source = (ROOT / "demo" / "frozen_backbone.py").read_text(encoding="utf-8")
    (names,) = re.findall(r"^RUNS = \((.*)\)$", source, re.MULTILINE)
    table = (ROOT / "docs" / "getting_started.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\w+", names)) | {"out_of_memory", "leak"} == set(
        re.findall(r"^\| `(\w+)` \|", table, re.M)
    )


def test_the_leak_is_found_and_what_keeps_it_is_named(leaking: pathlib.Path) -> None:
    run = inspect(leaking, run="leak")
    # THEN traced steps hold one more of them for each step before
    snapshots = run["snapshots"]
    assert [one["step"] for one in snapshots] == [9, 19, 29, 39, 49, 59]
    for snapshot in snapshots:
        kept = [group for group in snapshot["held_tensors"] if group["shape"] == [16, 16, 16, 128]]
        count = sum(group["count"] for group in kept)
        assert snapshot["step"] <= count <= snapshot["step"] + 1
        assert sum(group["bytes"] for group in kept) == count * 16 * 16 * 16 * 128 * 4
        leaked = max(kept, key=lambda group: group["count"])
        assert leaked["held_by"] == "list `history` in module __main__"
        assert leaked["retaining_path"] == "module __main__ › history (list) › […]"
    # AND the trend names them and the list
    (found,) = run["findings"]
    assert (found["kind"], found["device"], found["minor"]) == ("growth", "CPU:0", False)
    finding = found["sentence"]
    assert "memory in use at step end grows by " in finding
    assert ": held tensors, " in finding
    source = (ROOT / "demo/leak.py").read_text(encoding="utf-8").splitlines()
    line = next(number for number, text in enumerate(source, 1) if "features = model(" in text)
    assert (
        f"kept alive by list `history` in module __main__, made at demo/leak.py:{line}"
    ) in finding


ADVISED = """
import sys
batch, capacity, accumulated = map(int, sys.argv[1:])
import os
os.environ.update(TF_CPU_ALLOCATOR_USE_BFC="1", TF_CPU_BFC_MEM_LIMIT_IN_MB=str(capacity >> 20))
import out_of_memory as demo
import keras
model = demo.make_model()
if accumulated > 1:
    adam = keras.optimizers.Adam(gradient_accumulation_steps=accumulated)
    model.compile(adam, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(demo.make_batches(2 * accumulated + 6, batch), verbose=0)
"""


def trains(batch: int, capacity: int, accumulated: int = 1) -> bool:
    """Whether a training of the demo's model passes."""
    done = subprocess.run(
        [sys.executable, "-c", ADVISED, str(batch), str(capacity), str(accumulated)],
        env={**os.environ, "PYTHONPATH": f"{ROOT}/demo:{ROOT}", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0 or "ResourceExhaustedError" in done.stderr, done.stderr[-3000:]
    return done.returncode == 0


@pytest.mark.long
def test_the_advice_after_running_out_of_memory_works(tmp_path: pathlib.Path) -> None:
    assert "ran out of memory, as it should" in demo("out_of_memory", "--logdir", tmp_path / "runs")
    (oom,) = inspect(tmp_path / "runs", run="out_of_memory")["oom"]
    fixes = {fix["kind"]: fix for fix in oom["fixes"]}
    assert {"batch", "accumulation", "limit"} <= set(fixes), oom["fixes"]
    assert all(fix["enough"] for fix in oom["fixes"] if fix["kind"] != "precision")
    capacity = oom["capacity_bytes"]
    # WHEN the advice is followed in a real training, THEN it passes
    batch = fixes["batch"]["batch_size"]
    assert trains(batch, capacity)
    parts = fixes["accumulation"]["batch_size"]
    assert trains(parts, capacity, 96 // parts)
    assert trains(96, fixes["limit"]["capacity_bytes"])
    # AND it is not far from the largest batch size that passes: 48 does, and 64 does not
    assert 36 <= batch < 64
    # AND so does the largest batch size for another capacity
    run = tb_memplugin.load(tmp_path / "runs")["out_of_memory"]
    larger = tb_memplugin.what_if(run, capacity="768MiB").largest_batch_size
    assert larger and batch < larger < 96 and trains(larger, 768 << 20)
