"""``TB_MEMPLUGIN=0`` turns off what could touch a training: nothing of it is imported, patched or written."""

import os
from collections.abc import Mapping

SWITCH = "TB_MEMPLUGIN"
"""Environment variable."""
SENTENCE = f"{SWITCH}=0 is set: nothing is recorded or measured"


def is_off(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the user turned recording off. Set it before the process starts: what was imported before stays on."""
    return environment.get(SWITCH, "").strip() == "0"
