"""Errors with messages for the user, which say what is wrong, what was received and what to do. Any
other exception is a bug."""


class MemoryPluginError(Exception):
    """Base class of errors with a message for the user."""


# AutoGraph, which repeats an error with the user's line, keeps the type of those with this
# `__init__` only.
MemoryPluginError.__init__ = Exception.__init__  # type: ignore[method-assign]


class RecordingError(MemoryPluginError, ValueError):
    """Invalid arguments of a recorder or summary call; a `ValueError`, like those of
    `tf.summary`."""


class RecomputationError(MemoryPluginError, ValueError):
    """Layers of a model cannot be recomputed exactly, or are not the model's; a `ValueError`."""


class FormatError(MemoryPluginError):
    """Bytes are damaged, hostile or of another format; other data stays readable."""


class NewerFormatError(FormatError):
    """Bytes were written by a newer version of this package."""


class NotFoundError(MemoryPluginError, KeyError):
    """The requested run, device, step or file does not exist; a `KeyError`, like that of any other
    mapping."""

    # A KeyError would show its text in quotation marks.
    __str__ = Exception.__str__


class RequestError(MemoryPluginError):
    """A parameter is missing, repeated or malformed; `parameter` is its name, None if it is not one
    alone."""

    def __init__(self, message: str, parameter: str | None = None) -> None:
        super().__init__(message)
        self.parameter = parameter
