"""``tb-memplugin view``: the Memory tab without TensorBoard's frame."""

import argparse
import contextlib
import time

from tb_memplugin.commands.command_parser import EXIT_CODES, Commands
from tb_memplugin.model.text import clean


def add_command(commands: Commands) -> None:
    """Add the command with its options."""
    viewing = commands.add_parser(
        "view",
        help="serve the Memory tab without TensorBoard's frame",
        description="Serves the page of the Memory tab alone; press Ctrl+C to stop. It reads the log directory as "
        "TensorBoard does, and shows new data as it arrives.",
        examples=("tb-memplugin view runs --open", "tb-memplugin view runs --port 0 --host 0.0.0.0"),
        exit_codes=EXIT_CODES,
    )
    viewing.add_logdir()
    viewing.add_argument(
        "--port", metavar="P", type=_port, default=6007, help="port; 0 takes a free one (default: 6007)"
    )
    viewing.add_argument("--host", metavar="H", default="localhost", help="host to listen on (default: localhost)")
    viewing.add_argument("--open", action="store_true", help="open the page in the default browser")
    viewing.set_defaults(command=_view)


def _view(options: argparse.Namespace) -> int:
    with contextlib.suppress(KeyboardInterrupt):
        # Other commands do not need the server, which is slow to import.
        from tb_memplugin.commands.view.server import start

        address = start(options.logdir, options.host, options.port)
        print(f"Memory tab of {clean(options.logdir)} (press Ctrl+C to stop):\n{address}", flush=True)
        if options.open:
            import webbrowser

            webbrowser.open(address)
        while True:
            # Ctrl+C may reach a thread of the server, which would not wake this one from a longer wait.
            time.sleep(0.5)
    return 0


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= 65535):
        raise argparse.ArgumentTypeError(f"port must be an integer from 0 to 65535. Received: {text!r}")
    return int(text)
