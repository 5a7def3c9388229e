"""``python -m tb_memplugin`` is ``tb-memplugin``."""

import sys


def main() -> int:
    """Run the command line."""
    if sys.argv[1:2] == ["run"]:
        # The program comes before all that the other commands import.
        from tb_memplugin.cli.run import main as run

        run(sys.argv[2:])
    from tb_memplugin.cli import main as other

    return other()


if __name__ == "__main__":
    sys.exit(main())
