"""Puts the helpers beside the tests on the path."""

import pathlib
import sys

for folder in ("integration",):
    sys.path.insert(0, str(pathlib.Path(__file__).parent / folder))
