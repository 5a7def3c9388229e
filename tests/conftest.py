"""Puts the helpers beside the tests on the path."""

import pathlib
import sys

from hypothesis import settings

# How long an example takes says more about the machine's load than about the code.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")

for folder in ("integration",):
    sys.path.insert(0, str(pathlib.Path(__file__).parent / folder))
