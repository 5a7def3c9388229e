"""The packages of Keras in this process: Keras 3, and Keras 2 (``tf_keras``) if the program imported it.

With ``TF_USE_LEGACY_KERAS=1``, ``tf.keras`` is ``tf_keras`` as well.
"""

import sys
from typing import Any

PREFIXES = ("keras.", "tf_keras.")
"""Beginnings of the names of Keras's modules."""


def packages() -> list[Any]:
    """Keras's packages that are imported completely, Keras 3 first."""
    import keras

    legacy = sys.modules.get("tf_keras")
    return [package for package in (keras, legacy) if hasattr(package, "Model")]


def models() -> tuple[type, ...]:
    """The class `Model` of each package."""
    return tuple(package.Model for package in packages())


def dtype_name(dtype: Any) -> str:
    """Name such as ``float32`` of a dtype of Keras 3 or TensorFlow."""
    return str(getattr(dtype, "name", dtype))
