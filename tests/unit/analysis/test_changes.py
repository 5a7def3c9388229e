"""Layer changes, epochs and validation passes."""

import dataclasses

import numpy as np
from reading_cases import MIB, make_layer, make_samples, make_table

from tb_memplugin.analysis.changes import (
    MOST_BYTES,
    Epoch,
    LayerTotals,
    ValidationPass,
    epochs,
    layer_changes,
    layer_totals,
    table_at,
    trainable_layers,
    validation_passes,
)
from tb_memplugin.schema import MISSING
from tb_memplugin.storage.read.columns import empty_samples, join_samples


def test_totals_split_weights_by_what_training_changes() -> None:
    assert layer_totals(make_table(0, unfrozen=False)) == LayerTotals(4_000_000, 2_000, 0, 4_000_000, 4_012, 12, 1, 1)
    assert layer_totals(make_table(0, unfrozen=True)) == LayerTotals(0, 4_002_000, 0, 0, 8_004_012, 12, 0, 2)


def test_statistics_of_a_trainable_layer_are_not_frozen() -> None:
    # GIVEN a batch normalization: half of its weights are never trained
    layer = dataclasses.replace(make_layer("bn", True, 100), trainable_weight_bytes=200)
    table = dataclasses.replace(make_table(0, unfrozen=False), layers=(layer, make_layer("pool", True, 0)))
    totals = layer_totals(table)
    assert (totals.frozen_weight_bytes, totals.trainable_weight_bytes, totals.statistics_bytes) == (0, 200, 200)
    assert (totals.frozen_layers, totals.trainable_layers, totals.unfreezing_weight_bytes) == (0, 1, 0)


def test_unfreezing_trains_no_statistics() -> None:
    # GIVEN a frozen batch normalization of 64 channels, of whose 256 weights Keras trains 128 when it is unfrozen
    layer = dataclasses.replace(
        make_layer("bn", False, 256), type="BatchNormalization", output_shape=(-1, 8, 8, 64), trainable_weight_bytes=0
    )
    totals = layer_totals(dataclasses.replace(make_table(0, unfrozen=False), layers=(layer,)))
    assert (totals.frozen_weight_bytes, totals.unfreezing_weight_bytes) == (4 * 256, 4 * 128)


def test_sums_of_a_hostile_table_are_limited() -> None:
    huge = dataclasses.replace(
        make_layer("x", True, 1), weight_bytes=0, trainable_weight_bytes=2**53 - 1, optimizer_bytes=2**53 - 1
    )
    totals = layer_totals(dataclasses.replace(make_table(0, unfrozen=False), layers=(huge,) * 5000))
    assert totals.frozen_weight_bytes == 0
    assert totals.trainable_weight_bytes == totals.optimizer_bytes == MOST_BYTES


def test_an_unfreezing_names_its_layers() -> None:
    first, second, third = layer_changes(
        [make_table(0, unfrozen=False), make_table(7, unfrozen=True), make_table(9, unfrozen=False)]
    )
    assert (first.became_trainable, first.became_frozen) == ((), ())
    assert (second.step, second.became_trainable, second.became_frozen) == (7, ("model/backbone",), ())
    assert (third.became_trainable, third.became_frozen) == ((), ("model/backbone",))


def test_a_layer_without_weights_is_neither_frozen_nor_trainable() -> None:
    # GIVEN a change that also sets the flags of a pooling layer and of the model around the layers
    tables = [
        dataclasses.replace(
            make_table(step, unfrozen=unfrozen),
            layers=(*make_table(step, unfrozen=unfrozen).layers, make_layer("model/pool", unfrozen, 0)),
        )
        for step, unfrozen in ((0, False), (7, True))
    ]
    before, after = layer_changes(tables)
    assert after.became_trainable == ("model/backbone",)
    assert after.totals.trainable_layers - before.totals.trainable_layers == len(after.became_trainable)
    assert trainable_layers(tables[1]) == {"model/backbone": True, "model/head": True}


def test_the_table_of_a_step_is_the_last_one_not_after_it() -> None:
    tables = [make_table(step, unfrozen=False) for step in (2, 5, 5, 9)]
    expected = {0: tables[0], 2: tables[0], 4: tables[0], 5: tables[2], 8: tables[2], 100: tables[3], None: tables[3]}
    assert all(table_at(tables, step) is table for step, table in expected.items())
    assert table_at([], 3) is None


def test_epochs_cover_their_training_steps() -> None:
    parts = [
        make_samples(range(3), [1] * 3, epoch=0),
        make_samples([2], [1], phase="validation"),
        make_samples([3, 4], [1] * 2, epoch=1),
    ]
    assert epochs(join_samples(parts)[0]) == [Epoch(0, 0, 2), Epoch(1, 3, 4)]
    outside = dataclasses.replace(make_samples([1], [1]), epoch=np.asarray([MISSING]))
    assert epochs(outside) == epochs(empty_samples()) == []


def test_validation_passes_come_after_their_training_step() -> None:
    parts = [
        make_samples(range(3), [900] * 3),
        make_samples([2, 2], [5 * MIB, 3 * MIB], phase="validation"),
        make_samples([5], [MISSING], phase="validation", in_use=[0]),
    ]
    samples = join_samples(parts)[0]
    assert validation_passes(samples, "CPU:0") == [ValidationPass(2, 2, 5 * MIB), ValidationPass(5, 1, None)]
    assert validation_passes(samples, "GPU:3") == [ValidationPass(2, 2, None), ValidationPass(5, 1, None)]
