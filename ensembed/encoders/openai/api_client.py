"""A client for `/v1/embeddings`: concurrent requests in batches, retries, and replies that are checked."""

from __future__ import annotations

import base64
import json
import os
import re
import secrets
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from contextlib import suppress
from dataclasses import dataclass
from datetime import timezone
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, NoReturn

import numpy as np

from ensembed.corpora.corpus import shorten
from ensembed.encoders.base import FloatArray, naming_failures
from ensembed.encoders.openai.api_servers import Server
from ensembed.errors import EncoderError
from ensembed.support.extras import import_extra
from ensembed.support.file_limits import (
    API_DIM,
    API_ERROR_BYTES,
    API_FACTS,
    API_NUMBER_BYTES,
    API_REPLY_BYTES,
    LimitError,
    parse_json,
)

# Statuses that a second try may change, and statuses that a single sentence may cause.
_TEMPORARY = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
_REFUSED = frozenset({400, 413, 422})
# Seconds. The n-th pause is random between 0 and min(_LONGEST_PAUSE, _FIRST_PAUSE * 2^n), so that clients which failed
# together do not come back together. A server that asks for a longer pause than _LONGEST_WAIT is given up.
_FIRST_PAUSE, _LONGEST_PAUSE, _LONGEST_WAIT, _CONNECT_TIMEOUT = 0.5, 30.0, 120.0, 10.0
_FIRST_RETRIES = 2  # for a server that has never answered: a wrong host name should show soon


@dataclass(frozen=True)
class RequestOptions:
    """How a server is asked. All but `dimensions` change the speed and not the numbers.

    Attributes:
        batch_items: sentences per request.
        batch_tokens: tokens per request, as `estimated_tokens` counts them.
        concurrency: requests at the same time.
        timeout: seconds that a request may take.
        retries: how often a failed request is sent again.
        dimensions: the length of vectors to ask for; None for the model's own.
        encoding: "base64" or "float", the format of numbers; None tries base64 and then leaves the field out.
    """

    batch_items: int = 128
    batch_tokens: int = 100_000
    concurrency: int = 4
    timeout: float = 60.0
    retries: int = 5
    dimensions: int | None = None
    encoding: str | None = None


class RefusedError(EncoderError):
    """The server does not accept this request; it may accept a smaller one, or one in another format."""


class ReplyError(Exception):
    """A reply is unusable; `code` is the error code in a reply whose status is success."""

    def __init__(self, what: str, code: object = None, seconds: float = 0.0) -> None:
        super().__init__(what)
        self.code, self.seconds = code, seconds


class _TemporaryError(ReplyError):
    """A failure that a second try may not have; `seconds` is the pause that the server asks for."""


class EmbeddingAPI:
    """One model of one server, for any number of threads. Errors call the encoder `name`; tests replace `pause`."""

    def __init__(
        self,
        server: Server,
        model: str,
        *,
        name: str,
        options: RequestOptions | None = None,
        pause: Callable[[threading.Event, float], object] = threading.Event.wait,
    ) -> None:
        self._httpx = import_extra("httpx", "openai", f"encoder {name!r}")
        self.model = model
        self.options = options = options or RequestOptions()
        self._server, self._name, self._pause = server, name, pause
        self._base64, self._answered = options.encoding != "float", False
        self._dim: int | None = None
        # Sentences that the server accepts per request: fewer than `batch_items` once it has refused so many.
        self._most = options.batch_items
        self._client: Any = None
        self._begin()
        self._connected()
        _APIS.add(self)

    def _begin(self) -> None:
        """Start without connections: those that another process has, too, would mix its replies with ours."""
        self._connecting, self._slots = threading.Lock(), threading.BoundedSemaphore(self.options.concurrency)
        if self._client is not None:
            self._inherited, self._client = self._client, None  # not closed: its locks may be held for ever
            self._closing.detach()

    def _connected(self) -> Any:  # noqa: ANN401 - an httpx.Client
        """Return the client of this process."""
        options, server = self.options, self._server
        with self._connecting:
            if self._client is None:
                with naming_failures(self._name):  # the environment may name an unusable proxy or certificate
                    client = self._httpx.Client(
                        headers=server.headers,
                        timeout=self._httpx.Timeout(options.timeout, connect=min(options.timeout, _CONNECT_TIMEOUT)),
                        limits=self._httpx.Limits(max_connections=options.concurrency),
                        follow_redirects=False,  # the key is for this host alone
                        mounts={"http://": None, "https://": None} if server.nearby else None,  # no proxy
                    )
                self._closing = weakref.finalize(self, client.close)
                self._client = client
            return self._client

    def first(self, texts: Sequence[str]) -> FloatArray:
        """Return the vectors [n, d] of the first texts, and learn the dimension and whether base64 is accepted."""
        try:
            vectors = self.embed(texts)
        except RefusedError:
            if self.options.encoding is not None:
                raise
            self._base64 = False  # the server may refuse the field itself: leave it out from now on
            vectors = self.embed(texts)
        if self.options.dimensions not in (None, vectors.shape[1]):
            way_out = "leave out the option dimensions, or cut the vectors with truncate_dim"
            self._fail(f"gives {vectors.shape[1]} dimensions instead of {self.options.dimensions}; {way_out}")
        self._dim = vectors.shape[1]
        return vectors

    def embed(self, texts: Sequence[str]) -> FloatArray:
        """Return the vectors [n, d] of some texts."""
        stop = threading.Event()
        jobs = [partial(self._rows, batch, stop) for batch in self._batches(texts)]
        results = _run_in_threads(jobs, self.options.concurrency, stop) if len(jobs) > 1 else [jobs[0]()]
        return np.concatenate(results)

    def _batches(self, texts: Sequence[str]) -> Iterator[Sequence[str]]:
        """Yield the texts in order, as many at a time as the options allow; a text that is too long is alone."""
        start, tokens = 0, 0
        for i, text in enumerate(texts):
            more = estimated_tokens(text)
            if i > start and (i - start >= self._most or tokens + more > self.options.batch_tokens):
                yield texts[start:i]
                start, tokens = i, 0
            tokens += more
        yield texts[start:]

    def _rows(self, texts: Sequence[str], stop: threading.Event) -> FloatArray:
        """Return the vectors of one batch. A refused batch is sent in halves, to find the sentence or size at fault."""
        whole, half = len(texts) <= self._most, (len(texts) + 1) // 2
        if whole:
            try:
                return self._ask(texts, stop)
            except RefusedError as refused:
                if len(texts) == 1:
                    sentence = f"the sentence {shorten(texts[0])} of {len(texts[0])} characters"
                    way_out = "if that is too long for the model, cut sentences with the option max_chars"
                    raise RefusedError(f"{refused}; it was about {sentence}: {way_out}") from None
        vectors = np.concatenate([self._rows(texts[:half], stop), self._rows(texts[half:], stop)])
        if whole:
            self._most = min(self._most, half)
        return vectors

    def _ask(self, texts: Sequence[str], stop: threading.Event) -> FloatArray:
        """Send one request until it succeeds or the retries are used up."""
        request: dict[str, object] = {"model": self.model, "input": list(texts)}
        request |= {"encoding_format": "base64"} if self._base64 else {}
        request |= {} if self.options.dimensions is None else {"dimensions": self.options.dimensions}
        body = json.dumps(request, ensure_ascii=False).encode()
        attempt = 0
        while True:
            try:
                with self._slots:
                    if stop.is_set():
                        self._fail("was not asked, as another request had failed")
                    return self._send(body, texts)
            except _TemporaryError as failure:
                retries = self.options.retries if self._answered else min(self.options.retries, _FIRST_RETRIES)
                if attempt >= retries:
                    self._fail(f"failed {attempt + 1} time{'s' if attempt else ''}; the last time: {failure}")
                longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(attempt, 10))
                self._pause(stop, max(failure.seconds, secrets.SystemRandom().uniform(0, longest)))
            attempt += 1

    def _send(self, body: bytes, texts: Sequence[str]) -> FloatArray:
        most = API_REPLY_BYTES + len(texts) * (self._dim or API_DIM) * API_NUMBER_BYTES
        data, seconds = bytearray(), self.options.timeout
        deadline = time.monotonic() + seconds
        try:
            with self._connected().stream("POST", self._server.url, content=body) as response:
                self._answered = True
                # Packed in another way, a block may unpack to gigabytes before it can be counted.
                if (packed := response.headers.get("Content-Encoding", "identity")) not in ("identity", "gzip"):
                    self._fail(f"packs its reply as {shorten(packed)}, which it was not asked for")
                for block in response.iter_bytes():
                    data += block
                    if not response.is_success and len(data) > API_ERROR_BYTES:
                        break
                    if len(data) > most:
                        self._fail(f"sends more than {most} bytes for {len(texts)} sentences")
                    if time.monotonic() > deadline:
                        raise _TemporaryError(f"no whole reply within {seconds:g} seconds")
        except self._httpx.TimeoutException as error:
            raise _TemporaryError(f"no reply within {seconds:g} seconds ({type(error).__name__})") from None
        except self._httpx.HTTPError as error:
            raise _TemporaryError(f"{type(error).__name__}: {self._server.show(str(error), 200)}") from None
        if not response.is_success:
            self._raise_for(response.status_code, response.headers, bytes(data))
        try:
            return read_reply(bytes(data), texts, self._dim, self._server.show)
        except ReplyError as error:
            if error.code in _TEMPORARY:
                raise _TemporaryError(f"it {error}") from None
            self._fail(str(error))

    def _raise_for(self, status: int, headers: Mapping[str, str], data: bytes) -> NoReturn:
        """Raise the error that a status other than success stands for."""
        reply: object = data.decode("utf-8", "replace")
        with suppress(ValueError):  # it is no JSON
            reply = parse_json(data) or reply
        facts = error_of(reply)
        reason = f"{status}: {self._server.show(facts['message'], 300)}"
        if 300 <= status < 400:
            place = self._server.show(headers.get("location", ""), 200)
            self._fail(f"redirects to {place}, which is not followed; if you trust it, write that URL in the name")
        if status in (401, 403) and self._server.key:
            self._fail(f"does not accept the key in the variable {self._server.variable} ({reason})")
        if status in (401, 403):
            self._fail(f"wants a key ({reason}); set the variable {self._server.variable} to it")
        if status == 404:
            self._fail(f"has no such path, or no model {shorten(self.model)} ({reason})")
        if status in _REFUSED:
            raise RefusedError(f"encoder {self._name!r}: {self._server.place} refuses a request ({reason})")
        if status not in _TEMPORARY:
            self._fail(f"fails ({reason})")
        if "insufficient_quota" in (facts.get("code"), facts.get("type")):
            self._fail(f"says that your quota is used up ({reason})")
        seconds = retry_after(headers.get("retry-after"))
        if seconds > _LONGEST_WAIT:
            self._fail(f"asks for a pause of {seconds:.0f} seconds; the most is {_LONGEST_WAIT:.0f} ({reason})")
        raise _TemporaryError(reason, seconds=seconds)

    def _fail(self, what: str) -> NoReturn:
        raise EncoderError(f"encoder {self._name!r}: {self._server.place} {what}")


_APIS: weakref.WeakSet[EmbeddingAPI] = weakref.WeakSet()


def _begin_all() -> None:
    for api in list(_APIS):
        api._begin()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_begin_all)


def estimated_tokens(text: str) -> int:
    """Return about how many tokens a text has, rather too many than too few: only noise has one in two bytes."""
    return len(text.encode()) // 2 + 1


def _run_in_threads(jobs: Sequence[Callable[[], FloatArray]], threads: int, stop: threading.Event) -> list[FloatArray]:
    """Return the jobs' results; raise the first error or Ctrl-C at once. Daemon threads cannot block the exit."""
    futures: list[Future[FloatArray]] = [Future() for _ in jobs]
    queue = deque(zip(jobs, futures, strict=True))

    def work() -> None:
        with suppress(IndexError):  # the queue is empty
            while not stop.is_set():
                job, future = queue.popleft()
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
    for future in done:  # later failures only say that the jobs were stopped
        future.result()
    return [future.result() for future in futures]


def read_reply(
    data: bytes, texts: Sequence[str], dim: int | None, show: Callable[[object], str] = shorten
) -> FloatArray:
    """Return the vectors [n, d] of the texts, in their order.

    Rows may come in any order if they are numbered. `dim` may be None; `show` prints a value for errors.

    Example:
        >>> read_reply(b'{"data": [{"index": 1, "embedding": [3]}, {"index": 0, "embedding": [2]}]}', ["a", "b"], 1)
        array([[2.],
               [3.]], dtype=float32)
    """
    # Beside its numbers a vector has a few facts, and so has the whole reply.
    most_values = len(texts) * ((dim or API_DIM) + API_FACTS) + API_FACTS
    try:
        reply = parse_json(data, most_bytes=len(data) or 1, most_values=most_values)  # the bytes were counted
    except ValueError as error:
        kind = f"JSON that is too large ({error})" if isinstance(error, LimitError) else "something that is not JSON"
        raise ReplyError(f"replies with {kind}: {show(data.decode('utf-8', 'replace'))}", 502) from None
    rows = reply.get("data") if isinstance(reply, dict) else None
    if not isinstance(rows, list):
        facts = error_of(reply)
        raise ReplyError(f"replies with something else than vectors: {show(facts['message'])}", facts.get("code"))
    if not all(isinstance(row, dict) for row in rows):
        raise ReplyError(f"replies with a list of something else than objects: {show(rows)}")
    if len(rows) != len(texts):
        raise ReplyError(f"gives {len(rows)} vectors for {len(texts)} sentences")
    vectors = []
    for row, text in zip(_ordered(rows, show), texts, strict=True):
        try:
            vector = read_vector(row.get("embedding"), show)
        except ValueError as error:
            raise ReplyError(f"gives {error} for the sentence {shorten(text)}") from None
        dim = dim or len(vector)
        if len(vector) != dim:
            raise ReplyError(f"gives {len(vector)} dimensions instead of {dim} for the sentence {shorten(text)}")
        vectors.append(vector)
    return np.stack(vectors)


def _ordered(rows: list[dict[str, Any]], show: Callable[[object], str]) -> list[dict[str, Any]]:
    indices = [row.get("index") for row in rows]
    if all(index is None for index in indices):
        return rows
    by_index = {index: row for index, row in zip(indices, rows, strict=True) if type(index) is int}
    if sorted(by_index) != list(range(len(rows))):
        raise ReplyError(f"numbers its {len(rows)} vectors {show(indices)}, not from 0 to {len(rows) - 1}")
    return [by_index[i] for i in range(len(rows))]


def read_vector(raw: object, show: Callable[[object], str] = shorten) -> FloatArray:
    """Return the vector [d] that a reply holds as numbers, or as base64 of little-endian float32, or a ValueError."""
    if isinstance(raw, str):
        try:
            data = base64.b64decode(raw, validate=True)
        except ValueError:
            raise ValueError(f"{show(raw)}, which is not base64,") from None
        if len(data) % 4:
            raise ValueError(f"{len(data)} bytes, which are no whole float32 numbers,")
        vector = np.frombuffer(data, "<f4").astype(np.float32)
    else:
        if not isinstance(raw, list) or not {type(number) for number in raw} <= {float, int}:
            raise ValueError(f"{show(raw)} instead of numbers")
        try:
            with np.errstate(over="ignore"):  # it becomes Inf, which is reported below
                vector = np.array(raw, np.float64).astype(np.float32)
        except OverflowError:  # an integer of 400 digits
            raise ValueError("NaN or Inf") from None
    if not len(vector) or not np.isfinite(vector).all():
        raise ValueError("NaN or Inf" if len(vector) else "a vector without numbers")
    return vector


def error_of(reply: object) -> dict[str, Any]:
    """Return the facts of an error, wherever the server puts them; `message` is always among them."""
    inner = reply.get("error", reply) if isinstance(reply, dict) else reply
    facts = inner if isinstance(inner, dict) else {"message": inner}
    message = facts.get("message") or facts.get("detail") or reply
    return facts | {"message": message if isinstance(message, str) else json.dumps(message)}


def retry_after(value: str | None) -> float:
    """Return the seconds of the header `Retry-After`, which holds seconds or a date; 0 where it holds neither."""
    value = (value or "").strip()
    if re.fullmatch(r"[0-9]+(\.[0-9]*)?", value):
        return float(value)
    try:
        date = parsedate_to_datetime(value)
    except (TypeError, ValueError):
        return 0.0
    return max(0.0, date.replace(tzinfo=date.tzinfo or timezone.utc).timestamp() - time.time())
