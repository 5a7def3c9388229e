"""What the process's environment decides.

``TB_MEMPLUGIN=0`` turns off what could touch a training: nothing of it is imported, patched or
written.

Nothing is recorded either if Keras runs on another backend, which does not use TensorFlow's
allocators.

TensorFlow's plain CPU allocator keeps no statistics, its BFC allocator does. TensorFlow chooses
when it makes the allocator, with the first tensor or variable: importing this package before that
is early enough."""

import functools
import logging
import os
import sys
import types
from collections.abc import Mapping, MutableMapping

SWITCH = "TB_MEMPLUGIN"  # environment variable
SENTENCE = f"{SWITCH}=0 is set: nothing is recorded or measured"


def is_off(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the user turned recording off. Set it before the process starts: what was imported
    before stays on."""
    return environment.get(SWITCH, "").strip() == "0"


KERAS_BACKEND = "KERAS_BACKEND"  # Keras's environment variable


def keras_backend(environment: Mapping[str, str] = os.environ) -> str:
    """The backend of the imported Keras, else the one that it would take. Imports neither Keras nor
    a backend."""
    ask = getattr(getattr(sys.modules.get("keras"), "backend", None), "backend", None)
    return (
        str(ask())
        if callable(ask)
        else environment.get(KERAS_BACKEND) or _configured(environment) or "tensorflow"
    )


def _configured(environment: Mapping[str, str]) -> str | None:
    """The backend in Keras's own configuration file."""
    import json

    folder = environment.get("KERAS_HOME") or os.path.join(os.path.expanduser("~"), ".keras")
    try:
        with open(os.path.join(folder, "keras.json"), encoding="utf-8") as file:
            name = json.load(file)["backend"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return name if isinstance(name, str) else None


def why_unrecorded(
    environment: Mapping[str, str] = os.environ, *, on_jax: bool = False
) -> str | None:
    """Why nothing is recorded in this process, a sentence without its full stop; None if it can be
    recorded: on JAX only what works `on_jax`."""
    if is_off(environment):
        return SENTENCE
    name = keras_backend(environment)
    if name == "tensorflow" or (on_jax and name == "jax"):
        return None
    if name == "jax":
        return (
            "Keras runs on jax: MemoryCallback, tb-memplugin run, probe, plan and "
            "largest_batch_size work with it, all else only with tensorflow"
        )
    return (
        f"Keras runs on {name}: so far, nothing can be recorded or measured with this backend, "
        "only with tensorflow and jax"
    )


def is_unrecorded(on_jax: bool = False) -> bool:
    """Whether nothing is recorded in this process, as for `why_unrecorded`. Another backend is said
    once, the switch is not."""
    why = why_unrecorded(on_jax=on_jax)
    if why is not None and not is_off():
        _warn(why)
    return why is not None


@functools.cache
def _warn(sentence: str) -> None:
    logging.getLogger("tb_memplugin").warning("%s.", sentence)


VARIABLE = "TF_CPU_ALLOCATOR_USE_BFC"  # TensorFlow's environment variable
_GPU_FILES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
"""Device files of NVIDIA's and AMD's drivers, and of GPUs in the Windows Subsystem for Linux."""


def prefer_bfc(environment: MutableMapping[str, str] = os.environ) -> None:
    """Ask for the BFC allocator, unless the variable is set to anything, or there is nothing or a
    GPU to record."""
    wanted = sys.platform == "linux" and VARIABLE not in environment and not is_off(environment)
    if wanted and not _has_gpu(environment):
        environment[VARIABLE] = "1"


def _has_gpu(environment: MutableMapping[str, str]) -> bool:
    hidden = environment.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    return not hidden and any(map(os.path.exists, _GPU_FILES))


def absolute(path: str) -> str:
    """A local path as it is from every working directory; a URL as it is."""
    return path if "://" in path else os.path.abspath(path)


def shown(path: str) -> str:
    """A path relative to the working directory if it lies below it; else, or if that is gone, as it
    is."""
    try:
        relative = path if "://" in path else os.path.relpath(path)
    except (OSError, ValueError):  # on Windows, another drive
        return path
    return path if relative.startswith("..") else relative


OWN_FILES = os.path.dirname(os.path.abspath(__file__)) + os.sep
"""How the paths of this package's files begin."""


def without_own_frames(trace: types.TracebackType | None) -> types.TracebackType | None:
    """A traceback without the frames of this package, which is changed in place."""
    first: types.TracebackType | None = None
    last: types.TracebackType | None = None
    while trace is not None:
        following = trace.tb_next
        if not trace.tb_frame.f_code.co_filename.startswith(OWN_FILES):
            if last is None:
                first = trace
            else:
                last.tb_next = trace
            last = trace
        trace = following
    if last is not None:
        last.tb_next = None
    return first
