"""Names of optimizers and models that the program no longer uses, but whose variables TensorFlow still keeps.

Their rows in a breakdown have layer paths that begin with such a name: ``Adam replaced at step 72/net/dense``.
"""

import re

_NAME = re.compile(r".+( replaced at step \d+|, no longer used)")


def replaced_optimizer(name: str, step: int) -> str:
    """Name of an optimizer that another one replaced at a step."""
    return f"{name} replaced at step {step}"


def unused(name: str) -> str:
    """Name of a model, or of an optimizer without a known last step, that no longer exists."""
    return f"{name}, no longer used"


def former_name(layer: str | None) -> str | None:
    """The name that a layer path begins with if it is of a former optimizer or model; None for other paths."""
    name = (layer or "").partition("/")[0]
    return name if _NAME.fullmatch(name) else None
