"""The command `mmcc explore`: serves a page on this machine, until Ctrl-C.

In: a port.  Out: the address on stdout, and the page at it.
"""

from __future__ import annotations

from mmcc._cli.command import FLAG, OUTPUT, WHOLE, Command, Option
from mmcc._cli.parsing import UsageError
from mmcc.errors import whole

PORT, MAX_PORT = "8050", 65535


def run(port: int, no_browser: bool) -> None:
    chosen = whole("port", port, 0, MAX_PORT)
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


COMMAND = Command(
    "explore",
    run,
    Option("--port", WHOLE, OUTPUT, "Port on 127.0.0.1; 0 picks a free one.", default=PORT),
    Option("--no-browser", FLAG, OUTPUT, "Print the address without opening it."),
    help="Open a page in the browser: change parameters and watch certified numbers follow.",
    example="mmcc explore --port 0",
)
