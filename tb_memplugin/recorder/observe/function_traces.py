"""Counts the traces of each `tf.function`, and the signatures for which XLA compiles one.

Functions are told apart by their Python code, so that a `tf.function` that is made anew counts as the same function.
"""

import logging
from typing import Any

from tb_memplugin.recorder.base.due import changes
from tb_memplugin.recorder.observe.changed_arguments import changed_argument, shape_text

logger = logging.getLogger("tb_memplugin")

MAX_FUNCTIONS = 64
"""Most functions that are counted, the first ones that were traced."""
MAX_SIGNATURES = 10_000
"""Most signatures that are counted for a function."""
MAX_ITEMS = 32
"""Most arguments of a call, or items of one, that belong to its signature."""


class TracedFunction:
    """What is known of a function.

    Attributes:
        name: Its name in Python.
        traces: Calls that traced it.
        retraced: Why the last call traced it again, None if unknown.
        signatures: Number of different signatures it was called with, if XLA compiles it.
        reshaped: How the last new signature differs from the one before, None if unknown.
    """

    def __init__(self, name: str, code: Any) -> None:
        self.name = name
        self._code = code  # so that no other code gets its id
        self.traces = 0
        self.retraced: str | None = None
        self.reshaped: str | None = None
        self._hashes: set[int] = set()
        self._last: tuple[Any, ...] = ()

    @property
    def signatures(self) -> int:
        return len(self._hashes)

    def add_signature(self, signature: tuple[Any, ...]) -> bool:
        """Note the signature of a call; return whether it is new."""
        key = hash(signature)
        if key in self._hashes or len(self._hashes) >= MAX_SIGNATURES:
            return False
        if self._hashes:
            self.reshaped = _reshaped(self._last, signature)
        self._hashes.add(key)
        self._last = signature
        return True


class FunctionTraces:
    """The traced functions of one process. Any thread may call a method; none raises.

    Attributes:
        functions: By id of the code, or else by name.
        changed: Whether a count changed since this was set to False.
    """

    def __init__(self) -> None:
        self.functions: dict[Any, TracedFunction] = {}
        self.changed = False

    def called(self, function: Any, traces_before: int, args: Any, kwargs: Any) -> None:
        """Note an outermost call of a `tf.function`.

        Args:
            function: It.
            traces_before: Its number of traces before the call.
            args, kwargs: Its arguments.
        """
        try:
            compiled = getattr(function, "_jit_compile", None)
            traces = traces_of(function)
            if traces != traces_before:
                self._traced(function, traces_before, traces)
            if compiled:
                known = self._function(function)
                if known is not None and known.add_signature((*_signature(args), *_signature(kwargs))):
                    self.changed = True
                    changes.note()
        except Exception:
            logger.debug("a trace could not be counted", exc_info=True)

    def _traced(self, function: Any, before: int, after: int) -> None:
        known = self._function(function)
        if known is None:
            return
        if not before:
            known.retraced = "it was a new tf.function object" if known.traces else None
        else:
            types = [one.function_type for one in function._function_cache.values()[-2:]]
            known.retraced = changed_argument(*types) if len(types) == 2 else None
        known.traces += after - before if before else 1
        self.changed = True
        changes.note()

    def _function(self, function: Any) -> TracedFunction | None:
        python = getattr(function, "_python_function", None)
        name = str(getattr(python, "__name__", None) or type(python).__name__)
        code = getattr(python, "__code__", None)
        key = name if code is None else id(code)  # hashing code takes longer than all else here
        known = self.functions.get(key)
        if known is None and len(self.functions) < MAX_FUNCTIONS:
            known = self.functions[key] = TracedFunction(name, code)
        return known


def traces_of(function: Any) -> int:
    """Number of traces of a `tf.function` that exist; 0 if unknown."""
    try:
        return int(function.experimental_get_tracing_count())
    except Exception:
        return 0


def _signature(value: Any) -> Any:
    """Shape and dtype of each tensor or array in the arguments, and each plain Python value; nested as they are."""
    shape = getattr(value, "_shape_tuple", None)
    if shape is not None:  # an eager tensor; its `shape` takes several times as long
        return shape(), value._datatype_enum()
    if isinstance(value, (list, tuple)):
        return tuple([_signature(item) for item in value[:MAX_ITEMS]])
    if isinstance(value, dict):
        return tuple([(str(key), _signature(value[key])) for key in list(value)[:MAX_ITEMS]])
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return (tuple(value.shape), value.dtype) if hasattr(value, "shape") and hasattr(value, "dtype") else None


def _reshaped(before: tuple[Any, ...], after: tuple[Any, ...]) -> str | None:
    """A clause on the first argument whose shape differs between two signatures; None for other differences."""
    for at, (one, other) in enumerate(zip(before, after, strict=False)):
        if one != other and all(isinstance(part, tuple) and part and _is_shape(part[0]) for part in (one, other)):
            return f"the shape of argument {at} changed from {shape_text(one[0])} to {shape_text(other[0])}"
    return None


def _is_shape(value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(size, int) for size in value)
