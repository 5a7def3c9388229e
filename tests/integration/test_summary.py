"""The summary-writer API, with real `tf.summary` writers, read back from their event files."""

import pathlib

from child import WARNINGS, run_child

import tb_memplugin

SETUP = (
    WARNINGS
    + """
import tensorflow as tf, tb_memplugin
from tb_memplugin import summary
writer = tf.summary.create_file_writer(sys.argv[1] + "/memory")
"""
)


def test_every_step_of_a_loop_is_kept(tmp_path: pathlib.Path) -> None:
    code = """
with writer.as_default():
    wrote = [
        summary.layer_activations({"a/b": 1000 + step, "c": step % 7}, step=step)
        for step in range(3000)
    ]
writer.close()
answer({"wrote": all(wrote)})
"""
    assert run_child(SETUP + code, str(tmp_path / "run"))["wrote"]
    activations = tb_memplugin.load(tmp_path)["run"].activations
    assert activations.layers == ("a/b", "c")
    assert activations.step.tolist() == list(range(3000))
    assert activations.bytes.tolist() == [[1000 + step, step % 7] for step in range(3000)]


def test_nothing_is_lost_at_an_exception_at_exit_or_without_close(tmp_path: pathlib.Path) -> None:
    code = """
try:
    with writer.as_default():
        summary.layer_activations({"a": 1}, step=1)
        raise KeyError("user's own")
except KeyError:
    pass
writer.set_as_default()
summary.layer_activations({"a": 2}, step=2)
other = tf.summary.create_file_writer(sys.argv[1] + "_other/memory")
with other.as_default():
    summary.layer_activations({"b": 3}, step=3)
del other
answer({})
"""
    run_child(SETUP + code, str(tmp_path / "run"))
    runs = tb_memplugin.load(tmp_path)
    assert runs["run"].activations.bytes[:, 0].tolist() == [1, 2]
    assert runs["run_other"].activations.bytes[:, 0].tolist() == [3]


def test_it_is_shaped_like_tf_summary(tmp_path: pathlib.Path) -> None:
    code = """
wrote = {}
wrote["no writer"] = [summary.layer_activations({"a": 1}, step=0) for _ in range(3)]
with writer.as_default(step=7):
    wrote["default step"] = summary.layer_activations({"a": 7})
    with tf.summary.record_if(False):
        wrote["not recording"] = summary.layer_activations({"a": 8})
    wrote["variable step"] = summary.layer_activations(
        {"a": 9}, step=tf.Variable(9, dtype=tf.int64)
    )
    tf.summary.scalar("loss", 0.5)
    try:
        tf.function(lambda: summary.layer_activations({"a": 1}, step=0))()
    except tb_memplugin.RecordingError as error:
        wrote["in a function"] = str(error)
answer({"wrote": wrote, "warnings": warnings})
"""
    told = run_child(SETUP + code, str(tmp_path / "run"))
    assert "tf.function" in told["wrote"].pop("in a function")
    assert told["wrote"] == {
        "no writer": [False, False, False],
        "default step": True,
        "not recording": False,
        "variable step": True,
    }
    assert (
        len(told["warnings"]) == 1 and ("there is no default summary writer") in told["warnings"][0]
    )
    activations = tb_memplugin.load(tmp_path)["run"].activations
    assert activations.step.tolist() == [7, 9]
    assert activations.bytes[:, 0].tolist() == [7, 9]


def test_a_snapshot_keeps_what_it_was_given_and_names_the_rest(tmp_path: pathlib.Path) -> None:
    code = """
with writer.as_default():
    summary.allocator_snapshot(
        {
            "device": "GPU:0",
            "in_use_bytes": 1000,
            "pool_bytes": 4096,
            "largest_free_bytes": 3000,
            "capacity_bytes": 8192,
            "ledger": [
                {
                    "layer": "net/conv",
                    "category": "weights",
                    "trainable": True,
                    "bytes": 768,
                    "rounding_bytes": 4,
                }
            ],
            "saved_for_backward": [{"layer": "net/conv", "bytes": 128}],
        },
        step=3,
    )
    summary.allocator_snapshot(
        {
            "device": "GPU:0",
            "in_use_bytes": 2048,
            "saved_for_backward": [{"layer": "net/head", "bytes": 64}],
        },
        step=4,
    )
writer.close()
answer({})
"""
    run_child(SETUP + code, str(tmp_path / "run"))
    first, second = tb_memplugin.load(tmp_path)["run"].snapshots
    assert (first.step, first.in_use_bytes, first.pool_bytes, first.largest_free_bytes) == (
        3,
        1000,
        4096,
        3000,
    )
    assert [
        (row.layer, row.category, row.trainable, row.bytes, row.rounding_bytes)
        for row in first.ledger
    ] == [
        ("net/conv", "weights", True, 764, 0),
        (None, "unattributed", None, 232, None),
        ("net/conv", "rounding", True, 4, 4),
    ]
    assert (first.rounding_bytes, second.rounding_bytes) == (4, None)
    assert [(row.layer, row.bytes) for row in first.saved_for_backward] == [("net/conv", 128)]
    # AND the field's earlier name is accepted
    assert [(row.layer, row.bytes) for row in second.saved_for_backward] == [("net/head", 64)]
    assert [(row.category, row.bytes) for row in second.ledger] == [("unattributed", 2048)]
