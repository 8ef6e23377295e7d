"""A client for `/v1/embeddings`: requests in batches, side by side, tried again; replies checked before they count."""

from __future__ import annotations

import json
import secrets
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import NoReturn

import numpy as np

from ensembed.corpora.corpus import shorten
from ensembed.encoders.base import FloatArray, naming_failures
from ensembed.encoders.openai.api_replies import ReplyError, error_of, parse, read_reply, retry_after
from ensembed.encoders.openai.api_servers import Server
from ensembed.errors import EncoderError
from ensembed.support.extras import import_extra

# What may pass when the same request is sent again, and what may be the fault of a single sentence.
_PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
_REFUSED = frozenset({400, 413, 422})
# Seconds. The n-th back-off is drawn from 0 to min(_LONGEST, _FIRST * 2^n): clients that failed together come back
# apart. A server that wants a longer break than _PATIENCE had better be asked another time.
_FIRST = 0.5
_LONGEST = 30.0
_PATIENCE = 120.0
_CONNECT = 10.0
# How often a server is tried again that has never answered: a wrong name should show soon.
_RETRIES_OF_A_STRANGER = 2
# The most bytes of a reply: as text a number takes some 20, and a dimension that is not known yet may be that large.
_NUMBER_BYTES = 64
_LARGEST_DIM = 1 << 16
_REPLY_BYTES = 1 << 20
_ERROR_BYTES = 1 << 16


@dataclass(frozen=True)
class Limits:
    """What changes the speed and not the numbers.

    Attributes:
        batch_items: sentences per request.
        batch_tokens: tokens per request, as `estimated_tokens` counts them.
        concurrency: requests at the same time.
        timeout: seconds that a request may take.
        retries: how often a request that failed is sent again.
    """

    batch_items: int = 128
    batch_tokens: int = 100_000
    concurrency: int = 4
    timeout: float = 60.0
    retries: int = 5


class RefusedError(EncoderError):
    """The server does not take this request; a smaller one, or one in another form, it may."""


class _PassingError(Exception):
    """What may be different next time.

    Args:
        what: what happened.
        seconds: the break that the server asks for.
    """

    def __init__(self, what: str, seconds: float = 0.0) -> None:
        super().__init__(what)
        self.seconds = seconds


class EmbeddingAPI:
    """One model of one server; any number of threads may use it.

    Args:
        server: where it is.
        model: what the server calls it.
        name: what errors call it.
        limits: how much is asked at a time.
        dimensions: how long the vectors should be; for models that can be asked that.
        encoding: "base64" or "float": how numbers travel; None asks for base64 and does without where that is refused.
        pause: waits for the event, or for so many seconds; tests need not.
    """

    def __init__(
        self,
        server: Server,
        model: str,
        *,
        name: str,
        limits: Limits | None = None,
        dimensions: int | None = None,
        encoding: str | None = None,
        pause: Callable[[threading.Event, float], object] = threading.Event.wait,
    ) -> None:
        self._httpx = import_extra("httpx", "openai", f"encoder {name!r}")
        self._server = server
        self._model = model
        self._name = name
        self._limits = limits or Limits()
        self._dimensions = dimensions
        self._encoding = encoding
        self._pause = pause
        self._base64 = encoding != "float"
        self._dim: int | None = None
        self._answered = False
        # Sentences that the server takes at a time: less than we would send, once it has refused so many.
        self._most = self._limits.batch_items
        self._slots = threading.BoundedSemaphore(self._limits.concurrency)
        with naming_failures(name):  # the proxy or the certificates that the environment names may be unusable
            self._client = self._httpx.Client(
                headers=server.headers,
                timeout=self._httpx.Timeout(self._limits.timeout, connect=min(self._limits.timeout, _CONNECT)),
                limits=self._httpx.Limits(max_connections=self._limits.concurrency),
                follow_redirects=False,  # the key is for this host alone
                mounts={"http://": None, "https://": None} if server.nearby else None,  # no proxy
            )
        weakref.finalize(self, self._client.close)

    def first(self, texts: Sequence[str]) -> FloatArray:
        """The vectors [n, d] of the first texts, which tell the dimension and whether base64 is understood."""
        try:
            vectors = self.embed(texts)
        except RefusedError:
            if self._encoding is not None:
                raise
            self._base64 = False  # the field itself may be what is refused: from now on it is left out
            vectors = self.embed(texts)
        if self._dimensions not in (None, vectors.shape[1]):
            self._fail(
                f"gives {vectors.shape[1]} dimensions instead of {self._dimensions}; leave out the option dimensions, "
                "or cut the vectors with truncate_dim"
            )
        self._dim = vectors.shape[1]
        return vectors

    def embed(self, texts: Sequence[str]) -> FloatArray:
        """The vectors [n, d] of some texts.

        Raises:
            EncoderError: the server cannot be reached, refuses a text, or replies with something unusable.
        """
        stop = threading.Event()
        jobs = [partial(self._rows, batch, stop) for batch in self._batches(texts)]
        if len(jobs) == 1:
            return jobs[0]()
        return np.concatenate(_side_by_side(jobs, self._limits.concurrency, stop))

    def _batches(self, texts: Sequence[str]) -> Iterator[Sequence[str]]:
        """The texts in their order, as many at a time as the limits allow; a text that is too long is alone."""
        start, tokens = 0, 0
        for i, text in enumerate(texts):
            more = estimated_tokens(text)
            if i > start and (i - start >= self._most or tokens + more > self._limits.batch_tokens):
                yield texts[start:i]
                start, tokens = i, 0
            tokens += more
        yield texts[start:]

    def _rows(self, texts: Sequence[str], stop: threading.Event) -> FloatArray:
        """The vectors of one batch; in halves where the server does not take the whole, to find out who is to blame.

        One bad sentence among n costs 2 log2(n) requests more at the most. When both halves pass, the batch was too
        large: no batch larger than a half is tried again.
        """
        whole = len(texts) <= self._most
        half = (len(texts) + 1) // 2
        if whole:
            try:
                return self._ask(texts, stop)
            except RefusedError as refused:
                if len(texts) == 1:
                    raise RefusedError(
                        f"{refused}; it was about the sentence {shorten(texts[0])} of {len(texts[0])} characters: if "
                        "that is too long for the model, cut sentences with the option max_chars"
                    ) from None
        vectors = np.concatenate([self._rows(texts[:half], stop), self._rows(texts[half:], stop)])
        if whole:
            self._most = min(self._most, half)
        return vectors

    def _ask(self, texts: Sequence[str], stop: threading.Event) -> FloatArray:
        """One request, as often as it takes and is allowed."""
        request: dict[str, object] = {"model": self._model, "input": list(texts)}
        if self._base64:
            request["encoding_format"] = "base64"
        if self._dimensions is not None:
            request["dimensions"] = self._dimensions
        body = json.dumps(request, ensure_ascii=False).encode()
        attempt = 0
        while True:
            try:
                with self._slots:
                    if stop.is_set():
                        self._fail("was not asked, as another request had failed")
                    return self._send(body, texts)
            except _PassingError as failure:
                retries = self._limits.retries if self._answered else min(self._limits.retries, _RETRIES_OF_A_STRANGER)
                if attempt >= retries:
                    self._fail(f"failed {attempt + 1} time{'s' if attempt else ''}, at last so: {failure}")
                back_off = secrets.SystemRandom().uniform(0, min(_LONGEST, _FIRST * 2.0 ** min(attempt, 10)))
                self._pause(stop, max(failure.seconds, back_off))
            attempt += 1

    def _send(self, body: bytes, texts: Sequence[str]) -> FloatArray:
        most = _REPLY_BYTES + len(texts) * (self._dim or _LARGEST_DIM) * _NUMBER_BYTES
        seconds = self._limits.timeout
        late = time.monotonic() + seconds
        data = bytearray()
        try:
            with self._client.stream("POST", self._server.url, content=body) as response:
                self._answered = True
                for block in response.iter_bytes():
                    data += block
                    if not response.is_success and len(data) > _ERROR_BYTES:
                        break
                    if len(data) > most:
                        self._fail(f"sends more than {most} bytes for {len(texts)} sentences")
                    if time.monotonic() > late:  # the client's own limit is for each piece of the reply
                        raise _PassingError(f"no whole reply within {seconds:g} seconds")
        except self._httpx.TimeoutException as error:
            raise _PassingError(f"no reply within {seconds:g} seconds ({type(error).__name__})") from None
        except self._httpx.HTTPError as error:
            raise _PassingError(f"{type(error).__name__}: {self._server.show(str(error), 200)}") from None
        if not response.is_success:
            self._refuse(response.status_code, response.headers, bytes(data))
        try:
            return read_reply(bytes(data), texts, self._dim, self._server.show)
        except ReplyError as error:
            if error.code in _PASSING:
                raise _PassingError(f"it {error}") from None
            self._fail(str(error))

    def _refuse(self, status: int, headers: Mapping[str, str], data: bytes) -> NoReturn:
        """Raise what a status other than success means."""
        facts = error_of(parse(data) or data.decode("utf-8", "replace"))
        said = f"{status}: {self._server.show(facts['message'], 300)}"
        if 300 <= status < 400:
            place = self._server.show(headers.get("location", ""), 200)
            self._fail(f"redirects to {place}, which is not followed; if you trust it, write that URL in the name")
        if status in (401, 403):
            if self._server.key:
                self._fail(f"does not accept the key in the variable {self._server.variable} ({said})")
            self._fail(f"wants a key ({said}); set the variable {self._server.variable} to it")
        if status == 404:
            self._fail(f"has no such path, or no model {shorten(self._model)} ({said})")
        if status in _REFUSED:
            raise RefusedError(f"encoder {self._name!r}: {self._server.place} refuses a request ({said})")
        if status not in _PASSING:
            self._fail(f"fails ({said})")
        if "insufficient_quota" in (facts.get("code"), facts.get("type")):
            self._fail(f"says that your quota is used up ({said})")
        seconds = retry_after(headers.get("retry-after"))
        if seconds > _PATIENCE:
            self._fail(f"asks for a break of {seconds:.0f} seconds, and we wait {_PATIENCE:.0f} at the most ({said})")
        raise _PassingError(said, seconds)

    def _fail(self, what: str) -> NoReturn:
        raise EncoderError(f"encoder {self._name!r}: {self._server.place} {what}")


def estimated_tokens(text: str) -> int:
    """About how many tokens a text has, rather too many than too few: there is no tokenizer to ask.

    Byte-pair encodings make a token of some four bytes of English and of two or three of Chinese; only noise has more
    than one in two bytes. Too high an estimate costs smaller requests, too low a one a refused request.

    Example:
        >>> estimated_tokens("a dog"), estimated_tokens("東京")
        (3, 4)
    """
    return len(text.encode()) // 2 + 1


def _side_by_side(jobs: Sequence[Callable[[], FloatArray]], threads: int, stop: threading.Event) -> list[FloatArray]:
    """The jobs' results. When one fails, or on Ctrl-C, this ends at once and the others at their next step.

    The threads are daemons, which an executor's are not: Python waits for those before it exits, so that a server that
    hangs could keep a program from ending.
    """
    todo: SimpleQueue[tuple[Callable[[], FloatArray], Future[FloatArray]]] = SimpleQueue()
    futures: list[Future[FloatArray]] = [Future() for _ in jobs]
    for pair in zip(jobs, futures, strict=True):
        todo.put(pair)

    def work() -> None:
        while not stop.is_set():
            try:
                job, future = todo.get_nowait()
            except Empty:
                return
            try:
                future.set_result(job())
            except BaseException as error:  # noqa: BLE001 - it is raised in the caller's thread
                future.set_exception(error)

    try:
        for _ in range(min(threads, len(jobs))):
            threading.Thread(target=work, daemon=True).start()
        done, _ = wait(futures, return_when=FIRST_EXCEPTION)
    finally:
        stop.set()
    for future in done:  # those that were done by then: what others raise since only says that they were stopped
        future.result()
    return [future.result() for future in futures]
