import keras
import numpy as np

V, D = 20000, 64
model = keras.Sequential(
    [
        keras.Input((8,), dtype="int32"),
        keras.layers.Embedding(V, D, name="table"),
        keras.layers.Flatten(),
        keras.layers.Dense(1, name="out"),
    ]
)
model.compile(keras.optimizers.Adam(), "mse")
model.fit(np.random.randint(0, V, (32 * 40, 8)), np.random.rand(32 * 40, 1), batch_size=32, verbose=0)
