"""``python -m tb_memplugin``: the same as the command ``tb-memplugin``."""

import os
import sys

from tb_memplugin.cli import main

if __name__ == "__main__":
    status = main()
    if sys.argv[1:2] == ["view"]:
        # A thread of the server may still answer a request: it must not meet an interpreter that is torn down.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)
