"""``ironlaw serve``: the page, on this machine alone."""

from __future__ import annotations

import socket
import sys

import click

from ironlaw.cli.help import AnswerCommand
from ironlaw.errors import InputError, ValueRangeError, import_extra

PORT = 8765

_EXAMPLES = """
\b
Examples:
  ironlaw serve
  ironlaw serve --port 9000
  ironlaw serve --port 0      (any free port)
"""


@click.command("serve", cls=AnswerCommand, epilog=_EXAMPLES)
@click.option("--port", metavar="PORT", default=str(PORT), show_default=True, help="port on 127.0.0.1; 0 takes a free one")
def command(port: str) -> int:
    """Serve the page on 127.0.0.1: estimates, plans and comparisons to look at, until Ctrl-C. No other machine can reach it."""
    number = read_port(port)
    import_extra("uvicorn", "web", "ironlaw serve")
    import_extra("starlette", "web", "ironlaw serve")
    return serve(number)


def read_port(port: str) -> int:
    """The number of a port; an error where there is none of it."""
    number = int(port) if port.isdigit() and len(port) < 6 else -1
    if not 0 <= number <= 65535:
        raise ValueRangeError(f"--port {port}: give a whole number from 0 to 65535")
    return number


def serve(port: int, saved: str = "", browser: bool = False) -> int:
    """Serve the page until Ctrl-C, and say where it is; ``saved``: the page of a saved answer, which then is the address."""
    import uvicorn

    from ironlaw.web.app import make_app

    listening = _listen(port)
    address = f"http://127.0.0.1:{listening.getsockname()[1]}/{'saved' if saved else ''}"
    sys.stdout.write(f"ironlaw is at {address}  (Ctrl-C stops it)\n")
    sys.stdout.flush()
    if browser:
        import webbrowser

        webbrowser.open(address)
    settings = uvicorn.Config(
        make_app(saved), log_level="warning", access_log=False, server_header=False, h11_max_incomplete_event_size=65536
    )
    uvicorn.Server(settings).run(sockets=[listening])
    return 0


def _listen(port: int) -> socket.socket:
    """A socket on loopback; an error where the port is taken."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind(("127.0.0.1", port))
    except OSError as error:
        made.close()
        raise InputError(f"port {port} on 127.0.0.1: {error.strerror}; give another with --port, or 0 for a free one") from None
    return made
