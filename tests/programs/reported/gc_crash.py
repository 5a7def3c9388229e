# another thread collects garbage; its tensors are cleared before they are freed, as something
# beside them waits; argv: steps
import gc
import sys
import threading
import time

import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(0)
gc.freeze()  # collections of what the program makes are frequent and short
gc.disable()
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
        # An array is freed while its owner is cleared, as the handle of an iterator is.
        node.me, node.slow = node, np.array([Slow()])
        node.tensor = tensor  # after `slow`: freed after it
        del tensor, node
        gc.collect()


thread = threading.Thread(target=collects)
thread.start()
model = keras.Sequential(
    [keras.Input((24,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(4)]
)
model.compile("adam", "mse")
x, y = np.ones((32, 24), "float32"), np.ones((32, 4), "float32")
for _step in range(int(sys.argv[1])):
    history = model.fit(x, y, verbose=0)
stop.set()
thread.join()
print("ended with", history.history["loss"][-1].hex())
