"""The page on a real server in this process, and in a tab of a real browser."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import uvicorn
from numpy.typing import NDArray
from playwright.sync_api import expect

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page
    from starlette.applications import Starlette

# A limit for what hangs, not for what is slow: other tests may run beside.
BOUND = 60.0
expect.set_options(timeout=BOUND * 1000)
# The browser itself writes this for every reply that is an error, and for a server that does not answer.
_REFUSED = "Failed to load resource"
# The contrast of the ink of every cell with what is behind it.
CONTRASTS = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const light = (colour) => {
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map(v => v / 255).map(
      v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const scale = [...document.querySelectorAll("#scale i")].map(step => {
    const style = getComputedStyle(step), [paper, ink] = [light(style.backgroundColor), light(style.color)];
    return { paper, contrast: (Math.max(paper, ink) + 0.05) / (Math.min(paper, ink) + 0.05) };
  });
  return { scale, dark: light(getComputedStyle(document.body).backgroundColor) < 0.1 };
}"""


class Hosted:
    """A server in a thread, with `with`; the port is its own, or one that was used before.

    Args:
        app: what is served.
        port: 0 takes one that is free.
    """

    def __init__(self, app: Starlette, port: int = 0) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", port))
        self.port: int = self._socket.getsockname()[1]
        config = uvicorn.Config(app, log_level="error", ws="none", timeout_graceful_shutdown=5)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def __enter__(self) -> Hosted:
        self._thread.start()
        deadline = time.monotonic() + BOUND
        while not self._server.started:
            assert time.monotonic() < deadline, "the server did not start"
            assert self._thread.is_alive(), "the server ended"
            time.sleep(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(BOUND)
        self._socket.close()


class Tab:
    """The page in a context of its own, with what it complained about and asked for."""

    def __init__(self, browser: Browser, address: str, **context: Any) -> None:  # noqa: ANN401 - playwright's options
        self.address = address
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **context})
        self.context.set_default_timeout(BOUND * 1000)
        self.page: Page = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def close(self, *, refusals: bool = False) -> None:
        """Close it; nothing may have failed (but replies that are refusals), and nobody else been asked."""
        self.context.close()
        complaints = [one for one in self.complaints if not (refusals and one.startswith(_REFUSED))]
        assert complaints == []
        assert [url for url in self.requests if not url.startswith(self.address)] == []

    def asked(self, path: str) -> int:
        """How many requests there were for a path."""
        return self.requests.count(self.address + path)


def open_page(tab: Tab) -> Page:
    tab.page.goto(tab.address)
    tab.page.locator(".members tbody tr").first.wait_for()
    tab.page.locator(".matrix td.active").first.wait_for()
    return tab.page


def stand_still(page: Page) -> None:
    """From now on the page's time goes on only when it is told to (`page.clock.run_for`)."""
    page.clock.install(time=0)
    page.clock.pause_at(1000)


def settled(page: Page) -> None:
    """Wait until the page has had what was sent to it before: the answer to one more question comes after it."""
    page.evaluate("fetch('health').then(reply => reply.json())")


def drawn(page: Page, count: int, last: str) -> None:
    """Wait for the matrices of so many sentences. The page's policy forbids scripts that are given as text."""
    row = f".matrix:first-child tbody tr:nth-child({count}):last-child"
    page.locator(f"{row} th[title={json.dumps(last)}]").wait_for()


def write(page: Page, text: str) -> None:
    """Type, and wait for the matrices of what was typed."""
    page.fill("#sentences", text)
    texts = [line.strip() for line in text.split("\n") if line.strip()]
    drawn(page, len(texts), texts[-1])


def cosines(rows: NDArray[Any]) -> NDArray[np.float64]:
    """How alike rows are, [n, n]."""
    Z = np.asarray(rows, np.float64)
    Z = Z / np.linalg.norm(Z, axis=1, keepdims=True)
    return np.asarray(Z @ Z.T)


def shown(page: Page, at: int) -> list[list[str]]:
    """The cells of the matrix at a place."""
    cells: list[list[str]] = page.evaluate(
        """at => [...document.querySelectorAll(".matrix")[at].querySelectorAll("tbody tr")].map(
            row => [...row.querySelectorAll("td")].map(cell => cell.textContent))""",
        at,
    )
    return cells


def close_to(cells: Sequence[Sequence[str]], matrix: NDArray[Any]) -> bool:
    """Whether cells hold a matrix, but for the last digit, which two ways of adding up may round differently."""
    numbers = np.array([[float(cell.replace("\N{MINUS SIGN}", "-")) for cell in row] for row in cells])
    return numbers.shape == matrix.shape and bool(np.abs(numbers - matrix).max() < 0.0051)
