"""A web server on this machine that resumes downloads, and breaks connections when it is told to."""

from __future__ import annotations

import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Web:
    """Files by path, and what shall go wrong with the next requests."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.versions: dict[str, str] = {}
        self.break_after: list[int] = []  # bytes after which each of the next connections ends
        self.statuses: list[int] = []  # answers to the next requests
        self.resumes = True
        self.requests: list[tuple[str, str | None]] = []  # path and Range of all GET requests
        self.address = ""

    def url(self, path: str) -> str:
        return f"{self.address}/{path}"


@contextmanager
def serve():
    """A running server."""
    web = Web()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(web))
    web.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield web
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(web: Web) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            content = web.files.get(self.path.lstrip("/"))
            self.send_response(404 if content is None else 200)
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()

        def do_GET(self) -> None:
            path = self.path.lstrip("/")
            web.requests.append((path, self.headers.get("Range")))
            if web.statuses and (status := web.statuses.pop(0)) != 200:
                return self.send_error(status)
            if path not in web.files:
                return self.send_error(404)
            return self._send(web.files[path], web.versions.get(path))

        def _send(self, content: bytes, version: str | None) -> None:
            start = self._start(version)
            if start == len(content) > 0:
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(content)}")
                return self.end_headers()
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(content) - start))
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            if version:
                self.send_header("ETag", version)
            self.end_headers()
            limit = web.break_after.pop(0) if web.break_after else len(content)
            return self._write(content[start:][:limit])

        def _write(self, content: bytes) -> None:
            self.wfile.write(content)
            self.close_connection = True

        def _start(self, version: str | None) -> int:
            match = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
            fresh = self.headers.get("If-Range") in (None, version)
            return int(match[1]) if match and web.resumes and fresh else 0

        def log_message(self, *arguments) -> None:
            pass

    return Handler
