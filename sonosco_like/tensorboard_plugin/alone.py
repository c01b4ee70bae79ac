"""The Transcripts page without TensorBoard: the same plugin, on TensorBoard's reader of event files."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from werkzeug import Response
from werkzeug.sansio.utils import host_is_trusted
from werkzeug.serving import WSGIRequestHandler, make_server

from sonosco_like.errors import UsageError, as_sentence
from sonosco_like.process import STOP_SIGNALS
from sonosco_like.tensorboard_plugin.plugin import TranscriptsPlugin

_RELOAD = 5.0  # seconds, as often as TensorBoard looks for new data
_EVENTS = "tensorboard"  # where a run folder has its event files
_THIS_MACHINE = ["localhost", "127.0.0.1", "[::1]"]
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Transcripts</title>
<link rel="icon" href="data:,">
<script type="module" src="static/alone.js"></script>
</head>
<body></body>
</html>
"""
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "media-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def serve_transcripts(runs: Path, host: str, port: int, say: Callable[[str], None]) -> None:
    """Serve the page of a folder of runs, or of one run, until a signal comes."""
    if not runs.is_dir():
        raise UsageError(f"There is no folder {runs}. Give a run, or a folder of runs.")
    multiplexer = EventMultiplexer()
    provider = MultiplexerDataProvider(multiplexer, str(runs))
    application = _application(TranscriptsPlugin(SimpleNamespace(data_provider=provider)), host)
    try:
        server = make_server(host, port, application, threaded=True, request_handler=_QuietHandler)
    except (OSError, SystemExit) as error:  # werkzeug exits if the port is taken
        reason = getattr(error, "strerror", None) or "it is in use"
        raise UsageError(
            f"The page cannot be served at {host}, port {port}: {as_sentence(reason)} Try another one."
        ) from None
    threading.Thread(target=_keep_loading, args=(multiplexer, runs), daemon=True).start()

    def stop(number: int, frame: Any) -> None:  # `shutdown` waits for the loop that this signal interrupts
        threading.Thread(target=server.shutdown, daemon=True).start()

    before = {number: signal.signal(number, stop) for number in STOP_SIGNALS}
    try:
        shown = f"[{host}]" if ":" in host else host
        say(f"Transcripts of {runs} at http://{shown}:{server.server_port}  (Ctrl-C stops)")
        server.serve_forever()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _keep_loading(multiplexer: Any, runs: Path) -> None:
    pause = threading.Event()
    while True:
        if (runs / _EVENTS).is_dir():  # one run, whose name would be lost otherwise
            multiplexer.AddRunsFromDirectory(str(runs / _EVENTS), runs.resolve().name)
        else:
            multiplexer.AddRunsFromDirectory(str(runs))
        multiplexer.Reload()
        pause.wait(_RELOAD)


def _application(plugin: TranscriptsPlugin, host: str) -> Wsgi:
    """The addresses of the plugin, and the page at /.

    Without a token, only the names of this machine are accepted where it listens to this machine alone: a name of
    another site that leads here would let that site's page read the transcripts.
    """
    apps = plugin.get_plugin_apps()
    is_private = host_is_trusted(host, _THIS_MACHINE)

    def application(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if is_private and not host_is_trusted(environ.get("HTTP_HOST", ""), _THIS_MACHINE):
            return Response("This server answers only to localhost and 127.0.0.1.\n", 403)(environ, start)
        if path == "/":
            return Response(_PAGE, mimetype="text/html", headers=_HEADERS)(environ, start)
        app: Wsgi | None = apps.get("/static/*" if path.startswith("/static/") else path)
        return (app or Response("There is nothing at this address.\n", 404))(environ, start)

    return application


class _QuietHandler(WSGIRequestHandler):
    """Writes no line for each request."""

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Nothing: the page asks every few seconds."""
