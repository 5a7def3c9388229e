"""What the process's environment decides.

``TB_MEMPLUGIN=0`` turns off what could touch a training: nothing of it is imported, patched or written.

TensorFlow's plain CPU allocator keeps no statistics, its BFC allocator does. TensorFlow chooses when it makes the
allocator, with the first tensor or variable: importing this package before that is early enough."""

import os
import sys
from collections.abc import Mapping, MutableMapping

SWITCH = "TB_MEMPLUGIN"  # environment variable
SENTENCE = f"{SWITCH}=0 is set: nothing is recorded or measured"


def is_off(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the user turned recording off. Set it before the process starts: what was imported before stays on."""
    return environment.get(SWITCH, "").strip() == "0"


VARIABLE = "TF_CPU_ALLOCATOR_USE_BFC"  # TensorFlow's environment variable
_GPU_FILES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
"""Device files of NVIDIA's and AMD's drivers, and of GPUs in the Windows Subsystem for Linux."""


def prefer_bfc(environment: MutableMapping[str, str] = os.environ) -> None:
    """Ask for the BFC allocator, unless the variable is set to anything, or there is nothing or a GPU to record."""
    wanted = sys.platform == "linux" and VARIABLE not in environment and not is_off(environment)
    if wanted and not _has_gpu(environment):
        environment[VARIABLE] = "1"


def _has_gpu(environment: MutableMapping[str, str]) -> bool:
    hidden = environment.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    return not hidden and any(map(os.path.exists, _GPU_FILES))


def absolute(path: str) -> str:
    """A local path as it is from every working directory; a URL as it is."""
    return path if "://" in path else os.path.abspath(path)
