"""The command `mmcc explore`: a page on this machine, until Ctrl-C.

In: a port.  Out: the address on stdout, and the page behind it.
"""

from __future__ import annotations

from typing import Annotated

import typer

from mmcc._cli.words import UsageError, whole_number
from mmcc.errors import whole

PORT = "8050"
MAX_PORT = 65535

Port = Annotated[str, typer.Option(help="Port on 127.0.0.1; 0 is any that is free.", metavar="N")]
NoBrowser = Annotated[bool, typer.Option("--no-browser", help="Print the address, open nothing.")]


def show_explorer(port: str, no_browser: bool) -> None:
    """Serve the page until the user stops it."""
    chosen = whole("port", whole_number("port", port), 0, MAX_PORT)
    import webbrowser

    try:
        from mmcc.explore._server import make_listening
    except ImportError as missing:
        needed = (missing.name or "dash").partition(".")[0]
        raise UsageError(f"the explorer needs {needed}: pip install 'mmcc[explore]'.") from None

    server, desk = make_listening(chosen)
    address = f"http://{server.host}:{server.port}/"
    try:
        print(f"mmcc explore: {address} (Ctrl-C stops it)", flush=True)
        if not no_browser:
            webbrowser.open(address)
        server.serve_forever()
    except KeyboardInterrupt:  # the usual way to end it
        pass
    finally:
        desk.close()
        server.server_close()
