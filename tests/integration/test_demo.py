"""The demo as a newcomer runs it, in small: real trainings, read by `inspect`, shown by TensorBoard."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

import tb_memplugin
from tb_memplugin.allocator.fit import would_fit
from tb_memplugin.allocator.rules import rules_of
from tb_memplugin.model import GRADIENTS, IN_USE, UNKNOWN_STATE
from tb_memplugin.model.layers import former_name
from tb_memplugin.prediction.history import History
from tb_memplugin.prediction.sized_steps import as_recorded, start_map

ROOT = pathlib.Path(__file__).resolve().parents[2]

# From VGG16's paper: 3 × 3 kernels and biases of its thirteen convolutions, float32.
CHANNELS = [(3, 64), (64, 64), (64, 128), (128, 128), (128, 256), (256, 256), (256, 256), (256, 512)] + [(512, 512)] * 5
BACKBONE = [4 * (9 * before * after + after) for before, after in CHANNELS]
HEAD = 4 * (512 * 256 + 256) + 4 * (256 * 8 + 8)
STEPS = 4
"""Steps of each stage of the run `frozen`."""
BLOCK_5, BLOCKS_2_TO_5 = BACKBONE[10:], BACKBONE[2:]


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The demo's run `frozen`, one epoch of four steps in each of its three stages."""
    directory = tmp_path_factory.mktemp("demo") / "runs"
    command = [sys.executable, str(ROOT / "demo/frozen_backbone.py"), "--logdir", str(directory), "--run", "frozen"]
    subprocess.run([*command, "--epochs", "3", "--steps", str(STEPS)], check=True, capture_output=True, timeout=240)
    return directory


def inspect(logdir: pathlib.Path, *arguments: str, run: str = "frozen") -> dict:
    command = [sys.executable, "-m", "tb_memplugin", "inspect", str(logdir), "--format", "json", *arguments]
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


def in_use(snapshot: dict) -> list[dict]:
    """The ledger's rows without those of optimizers that were replaced, whose slots TensorFlow keeps."""
    return [row for row in snapshot["ledger"] if former_name(row["layer"]) is None]


@pytest.mark.long
def test_slots_belong_to_trainable_layers_only_and_weigh_twice_their_weights(logdir: pathlib.Path) -> None:
    run = inspect(logdir)
    trained = [HEAD, HEAD + sum(BLOCK_5), HEAD + sum(BLOCKS_2_TO_5)]
    for snapshot in run["snapshots"]:
        if snapshot["phase"] != "train":
            continue
        slots = [row for row in in_use(snapshot) if row["category"] == "optimizer_state" and row["layer"]]
        assert {row["trainable"] for row in slots} == {True}
        assert sum(row["bytes"] for row in slots) == 2 * trained[snapshot["step"] // STEPS]
        assert sum(row["bytes"] for row in snapshot["ledger"]) == snapshot["in_use_bytes"]
    assert {one["step"] // STEPS for one in run["snapshots"] if one["phase"] == "train"} == {0, 1, 2}
    assert "validation" in {one["phase"] for one in run["snapshots"]}


@pytest.mark.long
@pytest.mark.parametrize(
    ("conditions", "unfrozen"),
    [({}, BLOCKS_2_TO_5), ({"freeze": "*/block[23]_*,*/block4_*"}, BLOCK_5), ({"unfreeze": "*/block1_*"}, BACKBONE)],
)
def test_predicted_weights_and_slots_are_those_of_the_architecture(
    logdir: pathlib.Path, conditions: dict[str, str], unfrozen: list[int]
) -> None:
    # The optimizer replaces the chunk of every weight in each step.
    prediction = tb_memplugin.what_if(tb_memplugin.load(logdir)["frozen"], **conditions).prediction
    assert sum(row.bytes for row in prediction.ledger) == prediction.peak_bytes
    held = {trainable: [row for row in prediction.ledger if row.trainable is trainable] for trainable in (True, False)}
    of_weights = {key: sum(row.bytes for row in rows if row.category == "weights") for key, rows in held.items()}
    assert of_weights == {True: HEAD + sum(unfrozen), False: sum(BACKBONE) - sum(unfrozen)}
    slots = [row.bytes for row in held[True] if row.category == "optimizer_state"]
    assert sum(slots) == 2 * of_weights[True]


@pytest.mark.long
def test_the_last_stage_saves_more_for_the_backward_pass_than_any_other_category_holds(logdir: pathlib.Path) -> None:
    *_, last = [one for one in inspect(logdir)["snapshots"] if one["phase"] == "train"]
    sums: dict[str, int] = {}
    for row in in_use(last):
        sums[row["category"]] = sums.get(row["category"], 0) + row["bytes"]
    # What training the blocks 2 to 5 needs at least: the inputs of their convolutions after the first, float32.
    saved = sum(row["bytes"] for row in last["saved_for_backward"])
    sides = [56] * 1 + [28] * 2 + [14] * 2 + [7] * 2
    channels = [128] * 1 + [256] * 2 + [512] * 4
    assert saved >= 4 * 16 * sum(side * side * count for side, count in zip(sides, channels, strict=True))
    # At the peak, the backward pass may have used up some of them already.
    assert saved > max(size for category, size in sums.items() if category != "activations")


@pytest.mark.long
def test_almost_every_byte_has_an_owner(logdir: pathlib.Path) -> None:
    for snapshot in inspect(logdir)["snapshots"]:
        nobodys = sum(row["bytes"] for row in snapshot["ledger"] if row["category"] == "unattributed")
        assert nobodys <= 0.001 * snapshot["in_use_bytes"], (snapshot["phase"], snapshot["step"])


@pytest.mark.long
def test_the_map_of_every_traced_step_is_whole_and_answers_what_fits(logdir: pathlib.Path) -> None:
    run = tb_memplugin.load(logdir)["frozen"]
    assert {(memory_map.phase, memory_map.step) for memory_map in run.maps} == {
        (one.phase, one.step) for one in run.snapshots
    }
    for memory_map in run.maps:
        assert memory_map.complete and UNKNOWN_STATE not in memory_map.state
        assert memory_map.bytes.sum() == memory_map.region_bytes.sum() == memory_map.pool_bytes
        assert memory_map.bytes[memory_map.state == IN_USE].sum() == memory_map.in_use_bytes
        # Regions of a growing pool: 2 MiB, then each twice the one before or larger, up to the limit.
        sizes = sorted(memory_map.region_bytes.tolist())
        assert sizes[0] == 2 << 20 and len(sizes) <= 9 and sum(sizes) <= 640 << 20
        for mib in (1, 64, 200, 700):
            assert would_fit(memory_map, mib << 20).fits is not None
        assert would_fit(memory_map, 700 << 20).fits is False
    for snapshot in run.snapshots:
        assert snapshot.replay is not None
        assert (snapshot.replay.addresses, snapshot.replay.chunks) == (
            snapshot.replay.of_addresses,
            snapshot.replay.of_chunks,
        )


@pytest.mark.long
def test_the_capacity_is_the_stated_one(logdir: pathlib.Path) -> None:
    assert inspect(logdir)["devices"]["CPU:0"]["capacity_bytes"] == 640 << 20


@pytest.fixture(scope="module")
def leaking(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The demo's leak: each of 60 steps keeps 16 x 16 x 16 x 128 floats."""
    directory = tmp_path_factory.mktemp("leak")
    command = [sys.executable, str(ROOT / "demo/leak.py"), "--logdir", str(directory), "--steps", "60"]
    subprocess.run(command, check=True, capture_output=True, timeout=240)
    return directory


def test_tensorboard_shows_it_and_the_address_comes_last(leaking: pathlib.Path) -> None:
    command = [sys.executable, str(ROOT / "demo/serve.py"), str(leaking), "--check", "--port", "0"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120, env=dict(os.environ))
    assert "leak" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("http://localhost:")
    assert done.stdout.splitlines()[-1].endswith("/#tb_memplugin")


def test_make_demo_trains_the_documented_runs_and_serves_them() -> None:
    command = ["make", "--dry-run", "demo"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    scripts = re.findall(r"demo/(\w+)\.py", printed)
    assert scripts == ["out_of_memory", "leak", "frozen_backbone", "serve"]
    source = (ROOT / "demo" / "frozen_backbone.py").read_text(encoding="utf-8")
    (names,) = re.findall(r"^RUNS = \((.*)\)$", source, re.MULTILINE)
    table = (ROOT / "docs" / "getting_started.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\w+", names)) | {"out_of_memory", "leak"} == set(re.findall(r"^\| `(\w+)` \|", table, re.M))


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
    (finding,) = run["findings"]
    assert "memory in use at step end grows by " in finding
    assert ": held tensors, " in finding
    source = (ROOT / "demo/leak.py").read_text(encoding="utf-8").splitlines()
    line = next(number for number, text in enumerate(source, 1) if "features = model(" in text)
    assert f"kept alive by list `history` in module __main__, made at demo/leak.py:{line}" in finding


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> tuple[pathlib.Path, dict]:
    """The demo that runs out of memory: its run, and the post-mortem as `inspect` tells it."""
    logdir = tmp_path_factory.mktemp("failed") / "runs"
    command = [sys.executable, str(ROOT / "demo/out_of_memory.py"), "--logdir", str(logdir)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=240)
    assert "ran out of memory, as it should" in done.stdout
    command = [sys.executable, "-m", "tb_memplugin", "inspect", str(logdir), "--format", "json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    (oom,) = json.loads(done.stdout)["runs"]["out_of_memory"]["oom"]
    return logdir / "out_of_memory", oom


@pytest.mark.long
def test_running_out_of_memory_leaves_who_held_it(failed: tuple[pathlib.Path, dict]) -> None:
    _, oom = failed
    assert oom["step"] == 12
    assert oom["verdict"] == ("fragmentation" if oom["free_bytes"] >= oom["requested_bytes"] else "capacity")
    held = {row["category"]: 0 for row in oom["ledger"]}
    for row in oom["ledger"]:
        held[row["category"]] += row["bytes"]
    assert held.get("unattributed", 0) <= 0.1 * sum(held.values())
    if "gradient" not in oom["op"]:  # the forward pass has none
        assert not held.keys() & set(GRADIENTS)
    # One score for each pair of 256 words, of 4 heads and 96 texts, float32: attention keeps at least one such tensor.
    assert held["activations"] >= 256 * 256 * 4 * 96 * 4


@pytest.mark.long
def test_a_training_simulated_from_its_first_step_on_has_the_measured_peaks(
    failed: tuple[pathlib.Path, dict],
) -> None:
    (run,) = tb_memplugin.load(failed[0]).values()
    # GIVEN that the pool grew in the first step
    recorded = [as_recorded(one) for one in run.requests[:2]]
    first, second = (one.requests for one in recorded)
    assert first.first and len(first.added_bytes) > 0 and second.step == first.step + 1
    rules = rules_of(start_map(first))
    assert rules is not None and rules.grows
    # WHEN the allocator's rules alone place its chunks and regions
    outcome = History(recorded, rules).run([0, 1])
    # THEN its chunks are left in the pieces in which the next step found them
    peaks = dict(zip(run.samples.step.tolist(), run.samples.devices["CPU:0"].peak_bytes.tolist(), strict=True))
    measured = [peaks[first.step], peaks[second.step]]
    assert outcome.peaks[0].bytes == pytest.approx(measured[0], rel=2e-3)
    # Between the steps, a busy machine may free a few chunks in another order.
    assert outcome.peaks[1].bytes == pytest.approx(measured[1], rel=1.5e-2)


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
def test_the_advice_after_running_out_of_memory_works(failed: tuple[pathlib.Path, dict]) -> None:
    _, oom = failed
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


@pytest.mark.long
def test_what_if_agrees_with_the_failure(failed: tuple[pathlib.Path, dict]) -> None:
    run_directory, oom = failed
    (run,) = tb_memplugin.load(run_directory).values()
    before, after = (tb_memplugin.what_if(run, batch_size=size) for size in (4, 96))
    assert before.prediction.fits and before.prediction.reproduced.whole
    assert after.prediction.fits is False and after.prediction.fails_at is not None
    assert after.largest_batch_size == next(fix["batch_size"] for fix in oom["fixes"] if fix["kind"] == "batch")
