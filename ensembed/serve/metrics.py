"""What Prometheus is told. A registry per application: two in one process do not add up."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from ensembed.serve.cache import Recent

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """Counts requests, batches and what is kept."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        one = self._registry
        self._requests = Counter(
            "ensembed_requests", "Requests by route and HTTP status.", ["route", "status"], registry=one
        )
        self._seconds = Histogram(
            "ensembed_request_seconds",
            "From the head of a request to its reply.",
            ["route"],
            buckets=_SECONDS,
            registry=one,
        )
        self._batch_texts = Histogram("ensembed_batch_texts", "Texts of a batch.", buckets=_SIZES, registry=one)
        self._batch_requests = Histogram(
            "ensembed_batch_requests", "Requests that share a batch.", buckets=_SIZES, registry=one
        )
        self._batch_seconds = Histogram(
            "ensembed_batch_seconds", "Time of the model for a batch.", buckets=_SECONDS, registry=one
        )
        self._failures = Counter("ensembed_model_failures", "Requests that the model failed.", registry=one)
        self._abandoned = Counter("ensembed_abandoned", "Requests whose client went away.", registry=one)
        self._queued = Gauge("ensembed_queued_texts", "Texts that wait for the model.", registry=one)
        self._cache_bytes = Gauge("ensembed_cache_bytes", "Bytes of vectors that are kept.", registry=one)
        self._cache_rows = Gauge("ensembed_cache_rows", "Vectors that are kept.", registry=one)
        self._cache = Gauge("ensembed_cache_lookups", "Texts that were looked up.", ["result"], registry=one)

    def request(self, route: str, status: int, seconds: float) -> None:
        """A reply was sent."""
        self._requests.labels(route, status).inc()
        self._seconds.labels(route).observe(seconds)

    def batch(self, requests: int, texts: int, seconds: float) -> None:
        """The model has done a batch."""
        self._batch_requests.observe(requests)
        self._batch_texts.observe(texts)
        self._batch_seconds.observe(seconds)

    def failed(self) -> None:
        """The model failed a request."""
        self._failures.inc()

    def abandoned(self) -> None:
        """A client went away before it had its reply."""
        self._abandoned.inc()

    def text(self, recent: Recent, queued: int) -> bytes:
        """Everything, as Prometheus reads it."""
        self._queued.set(queued)
        self._cache_bytes.set(recent.size)
        self._cache_rows.set(len(recent))
        self._cache.labels("hit").set(recent.hits)
        self._cache.labels("miss").set(recent.misses)
        return generate_latest(self._registry)
