# a loop of predict and fit, as in reinforcement learning; argv: moves
import sys

import keras
import numpy as np

keras.utils.set_random_seed(0)
rng = np.random.default_rng(0)
policy = keras.Sequential(
    [keras.Input((24,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(4)]
)
policy.compile("adam", "mse")
memory, state = [], rng.random((1, 24))
for _move in range(int(sys.argv[1])):
    values = policy.predict(state, verbose=0)
    memory.append((state, int(values.argmax()), rng.random(), rng.random((1, 24))))
    state = memory[-1][3]
    if len(memory) >= 32:
        picks = [memory[i] for i in rng.integers(0, len(memory), 32)]
        x = np.concatenate([p[0] for p in picks])
        target = policy.predict(x, verbose=0)
        target[:, 0] = [p[2] for p in picks]
        history = policy.fit(x, target, epochs=1, verbose=0)
print("ended with", history.history["loss"][-1].hex())
