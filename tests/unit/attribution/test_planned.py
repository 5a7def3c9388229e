"""XLA modules as steps, against what JAX and Keras say of them."""

import gzip
import json
import pathlib

import pytest

from tb_memplugin import FormatError
from tb_memplugin.attribution import owners_by_name, plan_of, planned_step
from tb_memplugin.importers import Totals, hlo_class, read_dumped_module
from tb_memplugin.schema import Module, Snapshot, sums_by

FIXTURES = pathlib.Path(__file__).parents[2] / "fixtures" / "xla"
EXPECTED = json.loads((FIXTURES / "expected.json").read_text())


def module_of(name: str) -> Module:
    return read_dumped_module(gzip.decompress((FIXTURES / f"{name}.hlo.pb.gz").read_bytes()))


def scheduled(name: str, live_bytes: int) -> Module:
    """The module without XLA's buffer assignment, as JAX has it for a GPU."""
    dump = hlo_class().FromString(gzip.decompress((FIXTURES / f"{name}.hlo.pb.gz").read_bytes()))
    dump.ClearField("buffer_assignment")
    totals = Totals(plan_of(module_of(name))["temporaries"], live_bytes)
    return read_dumped_module(dump.SerializeToString(), totals)


def snapshot_of(module: Module) -> Snapshot:
    step = planned_step(module, owners_by_name(module), device="CPU:0", step=3, wall_time=1.0)
    return step.snapshot


@pytest.mark.parametrize("name", EXPECTED)
def test_the_plan_is_that_of_jax(name: str) -> None:
    # GIVEN a module of a training step
    module, expected = module_of(name), EXPECTED[name]
    # THEN its figures are JAX's own, and its ledger sums to them
    plan = plan_of(module)
    assert {kind: expected[kind] for kind in plan} == plan
    constants = sum(one.bytes for one in module.arguments if one.constant)
    total = plan["arguments"] + plan["results"] - plan["aliases"] + plan["temporaries"]
    snapshot = snapshot_of(module)
    assert snapshot.in_use_bytes == total + constants == module.bytes
    assert (snapshot.mode, snapshot.phase, snapshot.capacity_bytes) == ("xla", "train", None)
    assert "not measured" in snapshot.not_available[0]


def test_weights_and_slots_of_keras_are_exact_and_have_layers() -> None:
    snapshot, expected = snapshot_of(module_of("keras_cnn")), EXPECTED["keras_cnn"]
    sums = sums_by(snapshot.ledger, lambda row: (row.category, row.trainable))
    # the dropout's seed is no weight; unused results of the loss's metrics are not there
    assert sums["weights", True] == expected["trainable_weights"]
    assert sums["weights", False] == expected["frozen_weights"]
    assert sums["optimizer_state", None] == expected["optimizer_state"]
    layers = {
        row.layer: row.bytes
        for row in snapshot.ledger
        if (row.category, row.trainable) == ("weights", False)
    }
    assert layers == {"frozen": (3 * 3 * 3 * 32 + 32) * 4, "norm": 2 * 32 * 4}


def test_weights_and_slots_of_flax_have_the_scopes_of_their_names() -> None:
    snapshot, expected = snapshot_of(module_of("flax_transformer")), EXPECTED["flax_transformer"]
    sums = sums_by(snapshot.ledger, lambda row: row.category)
    assert sums["weights"] == expected["weights"]
    assert sums["optimizer_state"] == expected["optimizer_state"]
    of = sums_by(snapshot.ledger, lambda row: (row.layer, row.category))
    dense = "Net/block_0/Dense_0"  # the same path as of what the layer computes
    assert of[dense, "weights"] == (256 * 64 + 64) * 4
    assert of[dense, "optimizer_state"] == 2 * (256 * 64 + 64) * 4
    assert of["Net/block_0", "activations"] > 0
    # this compiler makes what is to be recomputed in the forward pass, and keeps it
    assert of["Net/block_1", "activations"] > 0


@pytest.mark.parametrize("name", EXPECTED)
def test_temporaries_have_layers_and_lines(name: str) -> None:
    module = module_of(name)
    step = planned_step(module, owners_by_name(module), device="CPU:0", step=0, wall_time=1.0)
    timeline = step.timeline()
    assert timeline is not None and len(timeline.compiled) == 1
    assert [band.name for band in timeline.bands][:2] == ["forward", "backward"]
    rows = [row for row in step.snapshot.ledger if row.category.startswith("activation")]
    assert sum(row.bytes for row in rows if row.layer) >= 0.99 * sum(row.bytes for row in rows)
    assert {line.partition(":")[0] for line in timeline.lines} == {"make.py"}


# What XLA says is live at once of the temporaries: peak - arguments - results + aliases
@pytest.mark.parametrize(
    ("name", "live_bytes"),
    [("gpu_keras_cnn", 42_652_063), ("gpu_keras_rnn", 107_814_536), ("keras_cnn", 0)],
)
def test_without_xlas_assignment_the_schedule_tells_the_same(name: str, live_bytes: int) -> None:
    # GIVEN steps whose buffer assignment is taken away
    expected, found = snapshot_of(module_of(name)), snapshot_of(scheduled(name, live_bytes))
    # THEN bytes by layer and category are those of XLA's own assignment, within 0.1 %
    known = sums_by(expected.ledger, lambda row: (row.layer, row.category))
    read = sums_by(found.ledger, lambda row: (row.layer, row.category))
    moved = sum(abs(known[key] - read[key]) for key in {*known, *read})
    assert moved <= 0.001 * expected.in_use_bytes
    # and the arguments are the same to the byte
    for category in ("weights", "optimizer_state", "inputs"):
        assert (
            sums_by(found.ledger, lambda row: row.category)[category]
            == (sums_by(expected.ledger, lambda row: row.category)[category])
        )


def test_a_module_without_assignment_and_totals_is_refused() -> None:
    dump = hlo_class().FromString(
        gzip.decompress((FIXTURES / "gpu_keras_cnn.hlo.pb.gz").read_bytes())
    )
    dump.ClearField("buffer_assignment")
    with pytest.raises(FormatError, match="no buffer assignment"):
        read_dumped_module(dump.SerializeToString())
    dump.hlo_module.ClearField("schedule")
    with pytest.raises(FormatError, match="no buffer assignment"):
        read_dumped_module(dump.SerializeToString(), Totals(1 << 20, 1 << 20))
