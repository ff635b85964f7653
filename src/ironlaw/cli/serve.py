"""``ironlaw serve``: the page, on this machine alone unless it is told otherwise."""

from __future__ import annotations

import ipaddress
import socket
import sys

import click

from ironlaw.cli.help import AnswerCommand
from ironlaw.errors import InputError, ValueRangeError, import_extra

PORT = 8765
MOST_CONNECTIONS = 256  # at once; more are told to come later

_EXAMPLES = """
\b
Examples:
  ironlaw serve
  ironlaw serve --port 9000
  ironlaw serve --port 0      (any free port)
  ironlaw serve --host 0.0.0.0      (for others, with a token; put a proxy with TLS before it)
"""


HOST = "127.0.0.1"


@click.command("serve", cls=AnswerCommand, epilog=_EXAMPLES)
@click.option("--port", metavar="PORT", default=str(PORT), show_default=True, help="port; 0 takes a free one")
@click.option("--host", metavar="HOST", default=HOST, show_default=True, help="address to serve; beyond loopback everybody needs a token")
def command(port: str, host: str) -> int:
    """Serve the page until Ctrl-C: answers to look at, change and send. No other machine can reach it, but where --host says so."""
    number = read_port(port)
    import_extra("uvicorn", "web", "ironlaw serve")
    import_extra("starlette", "web", "ironlaw serve")
    return serve(number, host=host)


def read_port(port: str) -> int:
    """The number of a port; an error where there is none of it."""
    number = int(port) if port.isdigit() and len(port) < 6 else -1
    if not 0 <= number <= 65535:
        raise ValueRangeError(f"--port {port}: give a whole number from 0 to 65535")
    return number


def serve(port: int, saved: str = "", browser: bool = False, host: str = HOST) -> int:
    """Serve the page until Ctrl-C, and say where it is; ``saved``: the page of a saved answer, which then is the address."""
    import uvicorn

    from ironlaw.web.app import make_app
    from ironlaw.web.entry import PatientProtocol, make_token

    listening, token = _listen(host, port), "" if _is_loopback(host) else make_token()
    number = listening.getsockname()[1]
    named = socket.gethostname() if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    address = f"http://{named}:{number}/{'saved' if saved else ''}{f'?token={token}' if token else ''}"
    beside = "whoever has this address can ask; Ctrl-C stops it" if token else "Ctrl-C stops it"
    sys.stdout.write(f"ironlaw is at {address}  ({beside})\n")
    sys.stdout.flush()
    if browser:
        import webbrowser

        webbrowser.open(address)
    settings = uvicorn.Config(
        make_app(saved, token), http=PatientProtocol, log_level="warning", access_log=False, server_header=False,
        h11_max_incomplete_event_size=65536, limit_concurrency=MOST_CONNECTIONS,
    )  # fmt: skip
    uvicorn.Server(settings).run(sockets=[listening])
    return 0


def _is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address.

    >>> _is_loopback("127.0.0.1"), _is_loopback("::1"), _is_loopback("localhost"), _is_loopback("0.0.0.0"), _is_loopback("gpu1.lan")
    (True, True, True, False, False)
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _listen(host: str, port: int) -> socket.socket:
    """A socket on an address of this machine; an error where there is none, or the port is taken."""
    try:
        family, kind, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, kind)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", "") or "no address of a machine"
        raise InputError(f"--host {host}: {why}; give an address of this one") from None
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind(where)
        made.listen()  # who comes before the server is ready waits
    except OSError as error:
        made.close()
        raise InputError(f"port {port} on {host}: {error.strerror}; give another with --port, or 0 for a free one") from None
    return made
