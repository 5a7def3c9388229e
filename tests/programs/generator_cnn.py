import keras
import numpy as np
from keras import layers

import tb_memplugin

BATCH = 16
STEPS = 12


def batches():
    while True:
        yield np.random.rand(BATCH, 64, 64, 3).astype("float32"), np.random.randint(0, 10, BATCH)


model = keras.Sequential([keras.Input((64, 64, 3)), layers.Rescaling(1.0 / 255)])
for filters in (32, 64, 128):
    model.add(layers.Conv2D(filters, 3, padding="same", use_bias=False))
    model.add(layers.BatchNormalization())
    model.add(layers.ReLU())
    model.add(layers.MaxPooling2D())
model.add(layers.Flatten())
model.add(layers.Dropout(0.5))
model.add(layers.Dense(10))

model.compile(
    optimizer=keras.optimizers.SGD(0.01, momentum=0.9),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
)
history = model.fit(
    batches(),
    steps_per_epoch=STEPS,
    epochs=2,
    validation_data=batches(),
    validation_steps=2,
    callbacks=[tb_memplugin.MemoryCallback("runs/exp1")],
)
