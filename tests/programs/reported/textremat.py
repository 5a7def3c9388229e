import keras
import numpy as np
import tensorflow as tf

import tb_memplugin

L = keras.layers


def make():
    text = keras.Input((1,), dtype="string", name="text")
    num = keras.Input((16,), name="num")
    tv = L.TextVectorization(300, output_sequence_length=12, name="vectorize")
    tv.adapt([" ".join(f"t{j}" for j in range(280))])
    x = L.Concatenate(name="join")(
        [L.GlobalAveragePooling1D()(L.Embedding(300, 64, name="words")(tv(text))), num]
    )
    return keras.Model(
        {"text": text, "num": num}, L.Dense(1)(L.Dense(64, "gelu", name="deep")(x)), name="net"
    )


data = {"text": np.array([["t1 t2 t3"]] * 32, object), "num": np.random.rand(32, 16).astype("f")}
ds = tf.data.Dataset.from_tensors((data, np.random.rand(32, 1).astype("f"))).repeat(3)
for called in (False, True):
    m = make()
    if called:
        m.predict(ds.map(lambda x, y: x), verbose=0)
    try:
        r = tb_memplugin.remat(m, [("vectorize", "join")])
        r.compile("adam", "mse")
        r.fit(ds, verbose=0)
        print("called", called, "trains")
    except Exception as e:
        print("called", called, type(e).__name__, str(e)[:250])
