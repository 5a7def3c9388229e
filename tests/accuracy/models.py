"""The models that `train.py` trains."""

from typing import Any

import keras
from feeds import LENGTH
from keras import layers as L  # noqa: N812

APPLICATIONS = ("MobileNetV2", "ResNet50", "VGG16")
SMALL = dict(vocabulary_size=2000, num_layers=2, num_heads=4, hidden_dim=128, intermediate_dim=512)  # noqa: C408
SMALL["max_sequence_length"] = LENGTH
"""A backbone of KerasHub."""


def application(name: str) -> Any:
    kind = getattr(keras.applications, name)
    if name == "VGG16":  # without its fully connected layers, which hold nearly all of its weights
        return kind(weights=None, include_top=False, pooling="avg", input_shape=(96, 96, 3))
    return kind(weights=None, input_shape=(96, 96, 3), classes=10, classifier_activation=None)


def unet() -> Any:
    def twice(x: Any, filters: int) -> Any:
        for _ in range(2):
            x = L.Conv2D(filters, 3, padding="same", activation="relu")(x)
        return x

    inputs = x = keras.Input((96, 96, 3))
    skipped = []
    for filters in (16, 32, 64):
        x = twice(x, filters)
        skipped.append(x)
        x = L.MaxPooling2D()(x)
    x = twice(x, 128)
    for filters in (64, 32, 16):
        x = L.Concatenate()([L.Conv2DTranspose(filters, 2, 2)(x), skipped.pop()])
        x = twice(x, filters)
    return keras.Model(inputs, L.GlobalAveragePooling2D()(L.Conv2D(10, 1)(x)), name="unet")


def lstm() -> Any:
    inputs = keras.Input((64,), dtype="int32")
    x = L.LSTM(128, return_sequences=True)(L.Embedding(1000, 128)(inputs))
    return keras.Model(inputs, L.Dense(10)(L.LSTM(128)(x)), name="lstm")


def transformer() -> Any:
    inputs = keras.Input((128,), dtype="int32")
    x = L.Embedding(1000, 128)(inputs)
    for _ in range(2):
        x = L.LayerNormalization()(x + L.Dropout(0.1)(L.MultiHeadAttention(4, 32)(x, x)))
        x = L.LayerNormalization()(x + L.Dense(128)(L.Dense(512, activation="gelu")(x)))
    return keras.Model(inputs, L.Dense(10)(L.GlobalAveragePooling1D()(x)), name="transformer")


def decoder() -> Any:
    """A causal Transformer that predicts the class from the last token, with a wide vocabulary."""
    inputs = keras.Input((96,), dtype="int32")
    x = L.Embedding(4000, 192)(inputs)
    for _ in range(3):
        x = x + L.MultiHeadAttention(6, 32)(L.LayerNormalization()(x), x, use_causal_mask=True)
        x = x + L.Dense(192)(L.Dense(768, activation="relu")(L.LayerNormalization()(x)))
    return keras.Model(inputs, L.Dense(10)(L.Dense(4000)(x)[:, -1]), name="decoder")


def mlp() -> Any:
    inputs = x = keras.Input((256,))
    for width in (1024, 1024, 512, 2048):
        x = L.Dropout(0.1)(L.BatchNormalization()(L.Dense(width, activation="relu")(x)))
    return keras.Model(inputs, L.Dense(10)(x), name="mlp")


def mixer() -> Any:
    """An MLP-Mixer: layers over tokens and over features in turn."""
    inputs = keras.Input((64, 48))
    x = L.Dense(128)(inputs)
    for _ in range(3):
        across = L.Permute((2, 1))(L.LayerNormalization()(x))
        across = L.Dense(64)(L.Dense(128, activation="gelu")(across))
        x = x + L.Permute((2, 1))(across)
        x = x + L.Dense(128)(L.Dense(256, activation="gelu")(L.LayerNormalization()(x)))
    return keras.Model(inputs, L.Dense(10)(L.GlobalAveragePooling1D()(x)), name="mixer")


def bert() -> Any:
    import keras_hub

    backbone = keras_hub.models.BertBackbone(**SMALL)
    return keras_hub.models.BertTextClassifier(backbone=backbone, num_classes=10, preprocessor=None)


def gpt2() -> Any:
    import keras_hub

    backbone = keras_hub.models.GPT2Backbone(**SMALL)
    return keras_hub.models.GPT2CausalLM(backbone=backbone, preprocessor=None)


def blocks() -> Any:
    """A subclassed model with Transformer blocks in a list, whose order of calls Keras does not
    know."""
    from remat_child import Block

    class Blocks(keras.Model):
        input = keras.KerasTensor((None, 128), "int32")
        output_shape = (None, 10)

        def __init__(self) -> None:
            super().__init__(name="blocks")
            self.embedding, self.head = L.Embedding(1000, 32), L.Dense(10)
            self.blocks = [Block(name=f"block{at}") for at in range(6)]

        def call(self, tokens: Any) -> Any:
            tensor = self.embedding(tokens)
            for block in self.blocks:
                tensor = block(tensor)
            return self.head(keras.ops.mean(tensor, 1))

    model = Blocks()
    model(keras.ops.zeros((2, 128), "int32"))
    return model
