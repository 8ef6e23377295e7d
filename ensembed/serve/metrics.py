"""What Prometheus reads. Every application has a registry of its own: two in one process do not add up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

if TYPE_CHECKING:
    from ensembed.serve.batching import RecentRows

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """Counts requests, batches and cached rows."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()

        def histogram(name: str, about: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(f"ensembed_{name}", about, labels, buckets=buckets, registry=registry)

        def gauge(name: str, about: str, *labels: str) -> Gauge:
            return Gauge(f"ensembed_{name}", about, labels, registry=registry)

        self._requests = Counter(
            "ensembed_requests", "Requests by route and HTTP status.", ["route", "status"], registry=registry
        )
        self._seconds = histogram("request_seconds", "From the head of a request to its reply.", _SECONDS, "route")
        self._batch_texts = histogram("batch_texts", "Texts of a batch.", _SIZES)
        self._batch_requests = histogram("batch_requests", "Requests that share a batch.", _SIZES)
        self._batch_seconds = histogram("batch_seconds", "Time of the model for a batch.", _SECONDS)
        self.failures = Counter("ensembed_model_failures", "Requests that the model failed.", registry=registry)
        self.abandoned = Counter("ensembed_abandoned", "Requests whose client went away.", registry=registry)
        self._queued = gauge("queued_texts", "Texts that wait for the model.")
        self._cache_bytes = gauge("cache_bytes", "Bytes of vectors in the cache.")
        self._cache_rows = gauge("cache_rows", "Vectors in the cache.")
        self._cache = gauge("cache_lookups", "Texts that were looked up.", "result")

    def count_request(self, route: str, status: int, seconds: float) -> None:
        """Count a reply."""
        self._requests.labels(route, status).inc()
        self._seconds.labels(route).observe(seconds)

    def count_batch(self, requests: int, texts: int, seconds: float) -> None:
        """Count a batch."""
        self._batch_requests.observe(requests)
        self._batch_texts.observe(texts)
        self._batch_seconds.observe(seconds)

    def text(self, recent: RecentRows, queued: int) -> bytes:
        """Return everything, in Prometheus' format."""
        self._queued.set(queued)
        self._cache_bytes.set(recent.size)
        self._cache_rows.set(len(recent))
        self._cache.labels("hit").set(recent.hits)
        self._cache.labels("miss").set(recent.misses)
        return generate_latest(self._registry)
