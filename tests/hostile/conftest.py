"""Makes the modules of this folder and the helpers of other tests importable."""

import pathlib
import sys

for folder in (pathlib.Path(__file__).parent, pathlib.Path(__file__).parents[1] / "integration"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
