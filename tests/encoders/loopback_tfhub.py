"""A local server that serves models as tfhub.dev does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Hub:
    """How the server behaves, and which requests it has received.

    Attributes:
        url: its address.
        archives: the model of each path, a .tar.gz.
        redirects: the address that a path redirects to.
        status: the status of every answer.
        content_length: the Content-Length to announce, if it is not that of the archive.
        silent: whether it never answers.
        seen: the requested paths with their queries, in order.
    """

    url: str = ""
    archives: dict[str, bytes] = field(default_factory=dict)
    redirects: dict[str, str] = field(default_factory=dict)
    status: int = 200
    content_length: int | None = None
    silent: bool = False
    seen: list[str] = field(default_factory=list)


@contextmanager
def serving() -> Iterator[Hub]:
    """Run the server while the block runs."""
    hub, over = Hub(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            hub.seen.append(self.path)
            if hub.silent:
                over.wait(60)
                return
            path, _, query = self.path.partition("?")
            if path.startswith("/moved/") or path in hub.redirects:  # as tfhub.dev sends everybody to kaggle.com
                self.send_response(302)
                self.send_header("Location", hub.redirects.get(path, self.path.removeprefix("/moved")))
                self.end_headers()
                return
            body = hub.archives.get(path)
            if "tf-hub-format=compressed" not in query.split("&"):
                body = b"<html>the page of the model</html>"
            self.send_response(404 if body is None else hub.status)
            body = body or b"no such model"
            self.send_header("Content-Length", str(hub.content_length or len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_args: object) -> None:
            """Do nothing: tests close connections early."""

    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hub
    finally:
        over.set()
        server.shutdown()
        server.server_close()
        thread.join()
