import keras
import numpy as np

import tb_memplugin

BATCH = 16

model = keras.applications.MobileNetV2(weights=None, input_shape=(96, 96, 3), classes=10)
model.compile(loss="sparse_categorical_crossentropy", metrics=["accuracy"])

x_test = np.random.rand(96, 96, 96, 3).astype("float32")
y_test = np.random.randint(0, 10, 96)
callback = tb_memplugin.MemoryCallback("runs/exp1")
losses = model.evaluate(x_test, y_test, batch_size=BATCH, callbacks=[callback])
predictions = model.predict(x_test, batch_size=BATCH, callbacks=[callback])
