import sys

import keras
import numpy as np
import tensorflow as tf

import tb_memplugin

L = keras.layers
text = keras.Input((1,), dtype="string", name="text")
num = keras.Input((256,), name="num")
tv = L.TextVectorization(300, output_sequence_length=12, name="vectorize")
tv.adapt([" ".join(f"t{j}" for j in range(280))])
x = L.Concatenate()([L.GlobalAveragePooling1D()(L.Embedding(300, 64, name="words")(tv(text))), num])
for i in range(8):
    x = L.Dropout(0.1)(L.Dense(512, "gelu", name=f"deep{i}")(x))
m = keras.Model({"text": text, "num": num}, L.Dense(1)(x), name="net")
m.compile("adam", "mse")
B = 500
data = {"text": np.array([["t1 t2 t3"]] * B, object), "num": np.random.rand(B, 256).astype("f")}
ds = tf.data.Dataset.from_tensors((data, np.random.rand(B, 1).astype("f"))).repeat(12)
m.fit(
    ds,
    verbose=0,
    callbacks=[tb_memplugin.MemoryCallback(sys.argv[1] + "/run", trace_steps=[3, 5, 7])],
)
run = tb_memplugin.load(sys.argv[1])["run"]
peak = float(np.median(run.samples.devices["CPU:0"].peak_bytes[3:]))
for share in (0.9, 0.8, 0.7, 0.6):
    plan = tb_memplugin.plan(run, budget=int(share * peak))
    print(share, "fits", plan.fits, "segments", [(s[0], s[-1]) for s in plan.segments or ()])
    if plan.segments:
        try:
            r = tb_memplugin.remat(m, plan)
            r.compile("adam", "mse")
            r.fit(ds.take(2), verbose=0)
            print("   remat trains")
        except Exception as e:
            print("   remat:", type(e).__name__, str(e)[:300])
