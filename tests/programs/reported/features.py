import keras
import numpy as np

import tb_memplugin

L = keras.layers
i = keras.Input((32, 32, 3))
a = L.Conv2D(32, 3, activation="relu", name="c1")(i)
b = L.Conv2D(64, 3, activation="relu", name="c2")(a)
backbone = keras.Model(i, L.Dense(10)(L.GlobalAveragePooling2D()(b)), name="backbone")


class Segmenter(keras.Model):
    def __init__(self):
        super().__init__()
        self.features = keras.Model(
            backbone.inputs,
            [backbone.get_layer("c1").output, backbone.get_layer("c2").output],
            name="features",
        )
        self.head = L.Conv2D(4, 1, name="head")

    def call(self, x):
        return self.head(self.features(x)[1])


m = Segmenter()
m.compile("adam", "mse")
m.fit(
    np.random.rand(80, 32, 32, 3).astype("f"),
    np.random.rand(80, 28, 28, 4).astype("f"),
    batch_size=8,
    verbose=0,
    callbacks=[tb_memplugin.MemoryCallback("feat/run", trace_steps=[3, 5])],
)
