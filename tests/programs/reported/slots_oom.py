# OOM in fit before the first batch: the optimizer's slots (or the weights of an unbuilt model) do
# not fit
import os
import sys

os.environ["TF_CPU_BFC_MEM_LIMIT_IN_MB"] = "250"
import keras
import numpy as np

x = np.random.rand(64, 25088).astype("float32")
y = np.random.randint(0, 10, 64)
layers = [
    keras.layers.Dense(1024, activation="relu", name="fc1"),
    keras.layers.Dense(10, name="out"),
]
if sys.argv[1:] == ["built"]:
    layers.insert(0, keras.Input((25088,)))
m = keras.Sequential(layers)
m.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
m.fit(x, y, batch_size=16, epochs=1, verbose=0)
