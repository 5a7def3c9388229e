"""Programs of `tf.Module` without Keras: weights by attribute path, trainable or not, with the
model given or found."""

from typing import Any

import pytest
from child import run_child

CODE = """
import tensorflow as tf, tb_memplugin


class Linear(tf.Module):
    def __init__(self, inputs, outputs, trainable=True):
        super().__init__()
        self.kernel = tf.Variable(tf.random.normal([inputs, outputs]) * 0.01, trainable=trainable)
        self.bias = tf.Variable(tf.zeros([outputs]), trainable=trainable)

    def __call__(self, x):
        return tf.tanh(x @ self.kernel + self.bias)


class Net(tf.Module):
    def __init__(self):
        super().__init__(name="net")
        self.embed = Linear(300, 400, trainable=False)
        self.stack = [Linear(400, 500), Linear(500, 300)]
        self.scale = tf.Variable(tf.ones([300]))

    def __call__(self, x):
        x = self.embed(x)
        for layer in self.stack:
            x = layer(x)
        return x * self.scale


net, x = Net(), tf.random.normal([64, 300])


@tf.function
def train(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((net(x) - x) ** 2)
    for variable, gradient in zip(
        net.trainable_variables, tape.gradient(loss, net.trainable_variables)
    ):
        variable.assign_sub(0.1 * gradient)
    return loss


answers = []
for directory, model in ((sys.argv[1], net), (sys.argv[2], None)):
    with tb_memplugin.MemoryRecorder(directory, model=model, trace_steps=[2, 4]) as recorder:
        for step in range(6):
            with recorder.step(step):
                train(x)
    (run,) = tb_memplugin.load(directory).values()
    last = run.snapshots[-1]
    layers = run.layer_tables[-1].layers if run.layer_tables else ()
    answers.append(
        {
            "rows": [(row.layer, row.category, row.trainable, row.bytes) for row in last.ledger],
            "in_use": last.in_use_bytes,
            "notes": run.notes,
            "saved": sum(row.bytes for row in last.saved_for_backward),
            "table": [
                (layer.path, layer.type, layer.trainable, layer.weight_bytes) for layer in layers
            ],
        }
    )
answer(answers)
"""
WEIGHTS = {
    ("net", True): 300 * 4,
    ("net/embed", False): (300 * 400 + 400) * 4,
    ("net/stack/0", True): (400 * 500 + 500) * 4,
    ("net/stack/1", True): (500 * 300 + 300) * 4,
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Any:
    directory = tmp_path_factory.mktemp("modules")
    return run_child(CODE, str(directory / "passed"), str(directory / "found"))


@pytest.mark.parametrize("at", [0, 1], ids=["passed", "found"])
def test_weights_are_those_of_each_module_and_what_the_gradients_read_is_saved(
    answers: Any, at: int
) -> None:
    rows = answers[at]["rows"]
    assert {
        (layer, trainable): size
        for layer, category, trainable, size in rows
        if category == "weights"
    } == WEIGHTS
    unattributed = sum(size for _, category, _, size in rows if category == "unattributed")
    assert unattributed <= 0.001 * answers[at]["in_use"]
    # The results of the three modules, and the difference that is squared.
    assert answers[at]["saved"] == 64 * (400 + 500 + 300 + 300) * 4


def test_the_layer_table_lists_the_modules(answers: Any) -> None:
    table = {(path, trainable): size for path, _, trainable, size in answers[0]["table"]}
    assert table == WEIGHTS
    assert [kind for _, kind, _, _ in answers[0]["table"]] == ["Net", "Linear", "Linear", "Linear"]
    assert answers[0]["notes"] == []
