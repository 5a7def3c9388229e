"""Which argument of a `tf.function` changed from one trace to the next. Pure, on TensorFlow's descriptions of types."""

from collections.abc import Mapping
from typing import Any

MAX_VALUE_CHARACTERS = 40


def changed_argument(before: Any, after: Any) -> str | None:
    """A phrase on the first argument that differs between two function types (`ConcreteFunction.function_type`).

    Such as "argument `scale` changed from 1 to 2 (Python value)"; None if none differs.
    """
    earlier: Mapping[str, Any] = before.parameters
    for name, parameter in after.parameters.items():
        if name not in earlier:
            return f"argument `{name}` is new"
        phrase = _difference(name, earlier[name].type_constraint, parameter.type_constraint)
        if phrase is not None:
            return phrase
    return next((f"argument `{name}` is gone" for name in earlier if name not in after.parameters), None)


def _difference(name: str, before: Any, after: Any) -> str | None:
    if before == after:
        return None
    argument = f"argument `{name}`"
    if type(before) is not type(after):
        return f"{argument} changed its type"
    if type(after).__name__ == "Literal":
        if not all(one.value is None or isinstance(one.value, (bool, int, float)) for one in (before, after)):
            return f"{argument} changed its value (Python {type(after.value).__name__})"  # texts may name persons
        return f"{argument} changed from {_text(before.value)} to {_text(after.value)} (Python value)"
    shapes, dtypes = ([getattr(one, field, None) for one in (before, after)] for field in ("shape", "dtype"))
    if shapes[0] != shapes[1]:
        return f"the shape of {argument} changed from {shape_text(shapes[0])} to {shape_text(shapes[1])}"
    if dtypes[0] != dtypes[1]:
        names = [getattr(dtype, "name", dtype) for dtype in dtypes]
        return f"the dtype of {argument} changed from {names[0]} to {names[1]}"
    earlier, items = _items(before), _items(after)
    if earlier.keys() == items.keys():
        differences = (_difference(f"{name}[{key}]", earlier[key], items[key]) for key in items)
        return next((phrase for phrase in differences if phrase is not None), f"{argument} is another object")
    return f"{argument} changed from {len(earlier)} to {len(items)} items"


def _items(constraint: Any) -> dict[str, Any]:
    """The types in that of a tuple, list, named tuple or dict, by index or key; empty for other types."""
    mapping = getattr(constraint, "mapping", None)
    if isinstance(mapping, Mapping):
        return {_text(key): item for key, item in mapping.items()}
    for field in ("components_tuple", "attributes"):
        constraint = getattr(constraint, field, constraint)
    components = getattr(constraint, "components", ())
    return {str(at): item for at, item in enumerate(components)} if isinstance(components, (tuple, list)) else {}


def shape_text(shape: Any) -> str:
    """A shape such as ``(32, 8)``, with ``?`` for unknown dimensions."""
    if shape is None or getattr(shape, "rank", 0) is None:
        return "unknown"
    sizes = ["?" if size is None else str(size) for size in shape]
    return f"({sizes[0]},)" if len(sizes) == 1 else f"({', '.join(sizes)})"


def _text(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= MAX_VALUE_CHARACTERS else text[: MAX_VALUE_CHARACTERS - 1] + "…"
