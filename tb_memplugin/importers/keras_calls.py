"""Layers and arguments that Keras adds to the message of an exception: Keras 3 and Keras 2 of
TensorFlow 2.7 and later."""

import re
from collections.abc import Iterator
from typing import NamedTuple

_CALL = re.compile(
    r"Exception encountered when calling (?:layer ['\"](?P<name>[^'\"\n]{1,200})['\"] "
    r"\(type (?P<type>\w{1,100})\)|(?P<class>\w{1,100})\.call\(\))\."
)
_ARGUMENTS = re.compile(r"rguments received(?: by [^\n]{1,320})?:[^\n]{0,20}\n")
_TENSOR = re.compile(r"tf\.Tensor\(shape=\((?P<shape>[\d, ]{0,200})\), dtype=(?P<type>\w{1,20})\)")
MAX_MESSAGE, MAX_ARGUMENTS = 20_000, 4_000  # characters
_TYPE_NAMES = {"float32": "float", "float64": "double", "float16": "half"}
"""Python's name of an element type to that in TensorFlow's messages."""
_OF_INPUT_SHAPE = re.compile(
    "Abs|Add|AddV2|Elu|Erf|Erfc|Exp|Expm1|LeakyRelu|Log|Log1p|LogSoftmax|Maximum|Minimum|Mul|Neg|"
    "RealDiv|Relu|Relu6|Selu|Sigmoid|Softmax|Softplus|Softsign|Sqrt|Square|Sub|Tanh"
)
"""Op types whose result has the shape and type of their inputs, if all of these have one shape."""
_KEEP_SHAPE = re.compile(
    "Activation|Add|Average|ELU|LeakyReLU|Maximum|Minimum|Multiply|ReLU|Softmax|Subtract"
)
"""Layer types that run such ops on tensors of the shape of their inputs only. Others, such as Dense
with an activation, run them on results of another shape."""


class KerasCall(NamedTuple):
    """The call of a layer that raised.

    Attributes:
        message: The exception's own message.
        layer: The layer's name, in Keras 3 its type.
        named: Whether `layer` is its name.
        type_name: The layer's type.
        tensors: Shape and type of the tensors among the arguments, each once, as TensorFlow prints
            them: ``[16,32] float``."""

    message: str
    layer: str
    named: bool
    type_name: str
    tensors: tuple[str, ...]

    def result_of(self, op: str) -> str | None:
        """Shape and type of the result of an op of this type in the call; None if they do not
        follow from the arguments."""
        keeps = _KEEP_SHAPE.fullmatch(self.type_name) or self.type_name.lower() == op.lower()
        follows = keeps and _OF_INPUT_SHAPE.fullmatch(op) and len(self.tensors) == 1
        return self.tensors[0] if follows else None


def keras_calls(text: str) -> Iterator[KerasCall]:
    """The calls in a log, in order, of which it has message and arguments."""
    for call in _CALL.finditer(text):
        received = _ARGUMENTS.search(text, call.end(), call.end() + MAX_MESSAGE)
        if received is None:
            continue
        end = text.find("\n\n", received.end(), received.end() + MAX_ARGUMENTS)
        end = received.end() + MAX_ARGUMENTS if end < 0 else end
        tensors = dict.fromkeys(
            f"[{match['shape'].replace(' ', '').rstrip(',')}] "
            f"{_TYPE_NAMES.get(match['type'], match['type'])}"
            for match in _TENSOR.finditer(text, received.end(), end)
        )
        yield KerasCall(
            text[call.end() : received.start()],
            call["name"] or call["class"],
            call["name"] is not None,
            call["type"] or call["class"],
            tuple(tensors),
        )
