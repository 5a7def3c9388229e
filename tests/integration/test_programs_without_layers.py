"""Programs that call no layer of Keras: graphs of `tf.compat.v1.Session` and samplers in loops.

What they allocate belongs to name scopes, and a session's variables are known from its graph."""

import pathlib
from typing import Any

import pytest
from child import run_child

SESSION = """
import numpy as np, tensorflow as tf2, tb_memplugin
tf, rows = tf2.compat.v1, 256
graph = tf.Graph()
with graph.as_default():
    x, y = tf.placeholder(tf.float32, [None, 128]), tf.placeholder(tf.int32, [None])
    hidden = x
    for name, units in (("first", 512), ("second", 384), ("last", 8)):
        with tf.variable_scope(name, use_resource=sys.argv[2] == "resource"):
            kernel = tf.get_variable("kernel", [hidden.shape[-1], units])
            bias = tf.get_variable("bias", [units], initializer=tf.zeros_initializer())
            hidden = tf.tanh(tf.matmul(hidden, kernel) + bias)
    if sys.argv[2] == "resource":
        with tf.variable_scope("recurrent"):
            turn = tf.get_variable("turn", [8, 8], use_resource=True)
            hidden = tf.while_loop(
                lambda t, state: t < 4, lambda t, state: (t + 1, tf.tanh(state @ turn)), (0, hidden)
            )[1]
    loss = tf.losses.sparse_softmax_cross_entropy(y, hidden)
    train = tf.train.AdamOptimizer().minimize(loss)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        made = len(graph.get_operations())
        graph.finalize()  # an op of the recorder would raise
        fed = {x: np.ones([rows, 128], "f"), y: np.zeros([rows], "i")}
        with tb_memplugin.MemoryRecorder(sys.argv[1], trace_steps=[3]) as recorder:
            for step in range(5):
                with recorder.step(step):
                    session.run([train, loss], fed)
        trainable = sum(int(np.prod(one.shape)) for one in tf.trainable_variables())
        answer([made, len(graph.get_operations()), 4 * trainable])
"""

SAMPLER = """
import tensorflow as tf, tb_memplugin
data = tf.random.normal([1024, 32])
def density(position):
    return -tf.reduce_sum(tf.nn.softplus(position @ tf.transpose(data)), -1)
def slope(position):
    with tf.GradientTape() as tape:
        tape.watch(position)
        value = density(position)
    return tape.gradient(value, position)
@tf.function
def sample(position):
    with tf.name_scope("chain"):
        def body(count, position):
            with tf.name_scope("leapfrog"):
                momentum = tf.random.normal(tf.shape(position)) + 0.01 * slope(position)
            return count + 1, position + 0.01 * momentum
        return tf.while_loop(lambda count, _: count < 6, body, (0, position))[1]
position = tf.zeros([256, 32])
with tb_memplugin.MemoryRecorder(sys.argv[1], trace_steps=[3]) as recorder:
    for step in range(5):
        with recorder.step(step):
            position = sample(position)
answer(None)
"""

SMALL = 4 * (8 * 8 + 8)
"""Bytes of the smallest variables, whose size many chunks have."""


def snapshot_of(directory: pathlib.Path) -> Any:
    from tb_memplugin import load

    (run,) = load(directory).values()
    return run.snapshots[-1]


def bytes_of(snapshot: Any, category: str) -> dict[str | None, int]:
    rows = [row for row in snapshot.ledger if row.category == category]
    return {row.layer: row.bytes for row in rows}


@pytest.mark.parametrize("kind", ["resource", "reference"])
def test_a_sessions_variables_and_ops_belong_to_their_name_scopes(
    tmp_path: pathlib.Path, kind: str
) -> None:
    # WHEN a graph of TensorFlow 1 trains, with Adam
    made, left, trainable = run_child(SESSION, str(tmp_path / "run"), kind)
    snapshot = snapshot_of(tmp_path)
    weights, slots = (bytes_of(snapshot, one) for one in ("weights", "optimizer_state"))
    # THEN the graph is as the program made it, and its bytes have owners
    assert made == left
    assert 0 <= trainable - sum(weights.values()) <= SMALL
    assert weights["second"] == 4 * (512 * 384 + 384)
    assert slots == {layer: 2 * size for layer, size in weights.items()}
    assert bytes_of(snapshot, "weight_gradients").keys() <= weights.keys()
    of_nobody = sum(bytes_of(snapshot, "unattributed").values())
    assert of_nobody < 0.001 * snapshot.in_use_bytes
    assert snapshot.batch_size == 256
    assert any("name scopes" in note for note in snapshot.not_available)


def test_a_samplers_loop_belongs_to_its_name_scopes(tmp_path: pathlib.Path) -> None:
    # WHEN a loop inside a function draws samples with gradients and without layers
    run_child(SAMPLER, str(tmp_path / "run"))
    snapshot = snapshot_of(tmp_path)
    layers = {row.layer for row in snapshot.ledger if row.layer is not None}
    # THEN what it allocates belongs to the program's scopes, without those of loop and gradient
    assert "chain/leapfrog" in layers
    assert not any(part in layer for part in ("while", "gradient_tape") for layer in layers)
    of_nobody = sum(bytes_of(snapshot, "unattributed").values())
    assert of_nobody < 0.01 * snapshot.in_use_bytes
    without = sum(row.bytes for row in snapshot.ledger if row.layer is None) / snapshot.in_use_bytes
    assert any(f"{without:.1%} of the bytes in use" in one for one in snapshot.not_available)
