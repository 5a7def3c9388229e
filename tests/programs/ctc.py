import keras
import numpy as np
from keras import layers

import tb_memplugin

BATCH = 16
FRAMES = 80
CHARACTERS = 29

spectrograms = keras.Input((FRAMES, 64))
x = layers.Conv1D(64, 11, padding="same", use_bias=False)(spectrograms)
x = layers.BatchNormalization()(x)
x = layers.ReLU()(x)
x = layers.Bidirectional(layers.LSTM(64, return_sequences=True))(x)
x = layers.Dropout(0.5)(x)
x = layers.Dense(128, activation="relu")(x)
model = keras.Model(spectrograms, layers.Dense(CHARACTERS, activation="softmax")(x), name="speech")

audio = np.random.rand(160, FRAMES, 64).astype("float32")
text = np.random.randint(1, CHARACTERS, (160, 12))
model.compile(optimizer="adam", loss=keras.losses.CTC())
history = model.fit(
    audio, text, batch_size=BATCH, epochs=2, callbacks=[tb_memplugin.MemoryCallback("runs/exp1")]
)
