"""Observing a program: it leaves no trace, changes no result, and knows functions that an earlier
observer saw."""

import textwrap
from typing import Any

from child import run_child

PREAMBLE = """
import keras, numpy as np, tensorflow as tf
from tb_memplugin.recorder.base import Faults
from tb_memplugin.recorder.watch import LayerWatch, call_notes
from tb_memplugin.recorder.watch.wrappers import places

def model():
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(4, name="dense"), keras.layers.Dense(2, name="dense_1")]
    built = keras.Sequential([keras.Input((8,)), *layers])
    built.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return built

x = np.random.default_rng(0).random((64, 8), dtype="float32")
y = np.random.default_rng(0).integers(0, 2, 64)
wrapped = list(places())
assert len(wrapped) == 21, wrapped
"""


def run(body: str) -> Any:
    return run_child(PREAMBLE + textwrap.dedent(body))


def test_wrappers_are_gone_when_the_last_observer_is() -> None:
    answer = run(
        """
        before = [vars(owner)[name] for owner, name in wrapped]
        one, two = LayerWatch(Faults()), LayerWatch(Faults())
        one.install(); one.install(); two.install()
        during = [vars(owner)[name] for owner, name in wrapped]
        one.remove(); one.remove()
        still = [vars(owner)[name] for owner, name in wrapped]
        two.remove()
        after = [vars(owner)[name] for owner, name in wrapped]
        answer([before == after, during == still, any(b is d for b, d in zip(before, during))])
        """
    )
    assert answer == [True, True, False]


def test_arguments_are_those_of_the_call_and_no_captures() -> None:
    answer = run(
        """
        built = model()
        observer = LayerWatch(Faults())
        observer.install()
        def step(Images, labels, options):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(built(Images)) + tf.reduce_sum(labels) * options["scale"]
            gradients = tape.gradient(loss, built.trainable_variables)
            built.optimizer.apply(gradients, built.trainable_variables)
        built.optimizer.build(built.trainable_variables)
        arguments = tf.constant(x), tf.constant(y, tf.float32), {"scale": tf.constant(2.0)}
        function = tf.function(step)
        observer.begin_window()
        function(*arguments)
        facts = observer.end_window("CPU:0")
        signature = function.get_concrete_function(*arguments).function_def.signature
        answer([sorted(facts.arguments), [argument.name for argument in signature.input_arg]])
        """
    )
    # TensorFlow's signature has the captured variables behind the arguments.
    found, names_that_run = answer
    assert len(found) == 3 and len(names_that_run) > 3 and found == sorted(names_that_run[:3])


def test_a_later_observer_knows_what_an_earlier_one_saw() -> None:
    answer = run(
        """
        built = model()
        first = LayerWatch(Faults())
        first.install()
        first.watch(built)
        built.fit(x, y, batch_size=16, verbose=0)
        first.remove()
        second = LayerWatch(Faults())
        second.install()
        second.watch(built)
        second.begin_window()
        built.fit(x, y, batch_size=16, verbose=0)
        facts = second.end_window("CPU:0")
        second.remove()
        answer(
            sorted(
                {fact.layer for graph in facts.graphs for fact in graph.ops.values() if fact.layer}
            )
        )
        """
    )
    assert {"sequential/dense", "sequential/dense_1"} <= set(answer)


def test_a_failing_layer_leaves_the_stack_of_calls_as_it_was() -> None:
    answer = run(
        """
        class Broken(keras.layers.Layer):
            def call(self, inputs):
                raise ValueError("on purpose")
        observer = LayerWatch(Faults()); observer.install()
        @tf.function
        def use(value):
            return Broken()(value)
        try:
            use(tf.zeros([2]))
        except ValueError:
            pass
        depth = len(call_notes.of_thread.stack)
        observer.remove()
        answer(depth)
        """
    )
    assert answer == 0
