# load_model and predict in a loop
import keras
import numpy as np

keras.Sequential(
    [keras.Input((256,)), keras.layers.Dense(1024, name="a"), keras.layers.Dense(10, name="b")]
).save("m.keras")
x = np.random.rand(64, 256).astype("float32")
for _ in range(20):
    m = keras.models.load_model("m.keras")
    m.predict(x, verbose=0)
