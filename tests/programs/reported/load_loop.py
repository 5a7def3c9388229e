# load_model and predict in a loop
import resource

import keras
import numpy as np
import tensorflow as tf

keras.Sequential([keras.Input((256,)), keras.layers.Dense(1024, name="a"), keras.layers.Dense(10, name="b")]).save(
    "m.keras"
)
x = np.random.rand(64, 256).astype("float32")
for i in range(20):
    m = keras.models.load_model("m.keras")
    m.predict(x, verbose=0)
    if i in (1, 10, 19):
        print(
            i,
            "current",
            tf.config.experimental.get_memory_info("CPU:0")["current"],
            "maxrss MiB",
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        )
