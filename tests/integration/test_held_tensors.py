"""Garbage that another thread collects while a step is traced does not end the process."""

from typing import Any

from child import run_child

CODE = """
import gc, threading, time
import keras, numpy as np, tensorflow as tf
import tb_memplugin

stop = threading.Event()


class Slow:
    def __del__(self):
        time.sleep(0.02)


class Node:
    pass


def collects():
    while not stop.is_set():
        tensor = tf.constant([1.0, 2.0])  # older than the node: cleared first
        node = Node()
        node.me, node.slow = node, np.array([Slow()])
        node.tensor = tensor
        del tensor, node
        gc.collect()


gc.disable()
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(8)])
model.compile("adam", "mse")
thread = threading.Thread(target=collects)
thread.start()
x = np.zeros((400, 8), "float32")
try:
    model.fit(
        x,
        x,
        batch_size=4,
        verbose=0,
        callbacks=[tb_memplugin.MemoryCallback(sys.argv[1], trace_steps=list(range(2, 60, 2)))],
    )
finally:
    stop.set()
    thread.join()
(run,) = tb_memplugin.load(sys.argv[1]).values()
answer([len(run.snapshots), run.notes])
"""


def test_a_thread_that_makes_cyclic_garbage_beside_traced_steps(tmp_path: Any) -> None:
    snapshots, notes = run_child(CODE, str(tmp_path / "run"))
    assert snapshots and not [note for note in notes if "stopped" in note]
