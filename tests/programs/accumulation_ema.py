import keras
import numpy as np

import tb_memplugin

BATCH = 32

x = np.random.rand(512, 256).astype("float32")
y = np.random.rand(512, 4).astype("float32")

inputs = keras.Input((256,))
h = keras.layers.Dense(512, activation="swish")(inputs)
h = keras.layers.Dense(512, activation="swish")(h)
model = keras.Model(inputs, keras.layers.Dense(4)(h))

optimizer = keras.optimizers.Adam(
    1e-3, gradient_accumulation_steps=4, use_ema=True, ema_momentum=0.99, clipnorm=1.0
)
model.compile(optimizer, "mse")
history = model.fit(
    x,
    y,
    batch_size=BATCH,
    epochs=2,
    verbose=2,
    callbacks=[tb_memplugin.MemoryCallback("runs/exp1")],
)
