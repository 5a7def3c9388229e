"""Memory of former optimizers and models is a finding, once it is more than a little."""

import dataclasses

from reading_cases import MIB, make_run, make_snapshot

from tb_memplugin.analysis.run_findings import findings
from tb_memplugin.schema import HeldTensorGroup, LedgerRow, Run
from tb_memplugin.schema.layers import replaced_optimizer, unused

ADAM, RESNET = replaced_optimizer("Adam", 72), unused("resnet50")


def run_with(*rows: LedgerRow) -> Run:
    snapshot = dataclasses.replace(make_snapshot(step=80), ledger=rows, in_use_bytes=sum(row.bytes for row in rows))
    return make_run(snapshots=(snapshot,))


def test_names_and_sizes_are_said_the_largest_first() -> None:
    run = run_with(
        LedgerRow("net/dense", "optimizer_state", True, 84 * MIB, 0),
        LedgerRow(f"{ADAM}/net/dense", "optimizer_state", None, 3 * MIB, 0),
        LedgerRow(f"{ADAM}/net/head", "optimizer_state", None, 1 * MIB, 0),
        LedgerRow(f"{ADAM}/net/head", "rounding", None, 2 * MIB, 2 * MIB),
        LedgerRow(f"{RESNET}/conv1", "weights", None, 10 * MIB, 0),
    )
    (sentence,) = findings({"": run})
    assert "14.0 MiB (14 % of the peak of step 80)" in sentence
    assert f"{RESNET} (10.0 MiB), {ADAM} (4.0 MiB)." in sentence
    assert "`tb_memplugin.release_unused()`" in sentence


def test_a_device_of_a_worker_is_named_in_full() -> None:
    run = run_with(LedgerRow(f"{ADAM}/net/dense", "optimizer_state", None, 3 * MIB, 0))
    (sentence,) = findings({"worker_1": run})
    assert sentence.startswith("worker_1/")


def test_less_than_one_percent_and_slots_in_use_are_no_finding() -> None:
    run = run_with(
        LedgerRow("net/dense", "optimizer_state", True, 1000 * MIB, 0),
        LedgerRow(f"{ADAM}/net/dense", "optimizer_state", None, 9 * MIB, 0),
    )
    assert findings({"": run}) == []


def test_the_share_is_of_a_training_step_where_one_has_a_breakdown() -> None:
    run = run_with(
        LedgerRow("net/dense", "activations", None, 90 * MIB, 0),
        LedgerRow(f"{ADAM}/net/dense", "optimizer_state", None, 10 * MIB, 0),
    )
    (trained,) = run.snapshots
    later = {"ledger": trained.ledger[1:], "in_use_bytes": 10 * MIB, "wall_time": trained.wall_time + 1}
    validated = dataclasses.replace(trained, phase="validation", **later)
    (sentence,) = findings({"": dataclasses.replace(run, snapshots=(trained, validated))})
    assert "(10 % of the peak of step 80)" in sentence
    (sentence,) = findings({"": dataclasses.replace(run, snapshots=(validated,))})
    assert "(100 % of the peak of validation step 80)" in sentence


def test_data_sets_constants_and_dense_gradients_that_take_much_are_said_with_what_to_do() -> None:
    rows = (
        LedgerRow(None, "inputs", None, 40 * MIB, 0),
        LedgerRow("net/project", "other_state", None, 20 * MIB, 0),
        LedgerRow("net/table", "weight_gradients", True, 30 * MIB, 0),
        LedgerRow("net/table", "weights", True, 10 * MIB, 0),
    )
    sparse = "sparse gradient of layer net/table"
    groups = (
        HeldTensorGroup((10, MIB), "float32", 1, 38 * MIB, "data set", category="inputs"),
        HeldTensorGroup((5,), "float32", 1, 20 * MIB, "constant in layer net/project", "a.py:3", None, "other_state"),
        HeldTensorGroup((MIB,), "uint8", 1, MIB, "variable `buffer`", category="other_state"),
        HeldTensorGroup((7,), "float32", 1, 28 * MIB, f"{sparse}, made dense", category="weight_gradients"),
    )

    def found(*held: HeldTensorGroup) -> list[str]:
        run = run_with(*rows)
        (snapshot,) = run.snapshots
        return findings({"": dataclasses.replace(run, snapshots=(dataclasses.replace(snapshot, held_tensors=held),))})

    data, constants, dense = found(*groups)
    assert "38.0 MiB (38 % of the peak of step 80) are the data set" in data and "batches take 2.0 MiB" in data
    assert "`keras.utils.PyDataset`" in data and "tf.device" not in data
    assert "20.0 MiB (20 %" in constants and "constant in layer net/project at a.py:3 (20.0 MiB)" in constants
    assert "28.0 MiB (28 %" in dense and "sparse gradient of layer net/table (28.0 MiB)" in dense
    # BUT not of a small data set, and not below a tenth
    assert found(dataclasses.replace(groups[0], bytes=15 * MIB)) == []
    assert found(*(dataclasses.replace(group, bytes=9 * MIB) for group in groups)) == []
