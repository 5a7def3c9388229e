"""``python -m tb_memplugin`` is ``tb-memplugin``."""

import sys

from tb_memplugin.cli import main

if __name__ == "__main__":
    sys.exit(main())
