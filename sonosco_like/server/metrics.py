"""What the server counts, in the text format of Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

from sonosco_like.process import resident_memory

_BATCHES = (1, 2, 4, 8, 16, 32, 64)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """The counters of one server."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # twice the lines, and no dashboard shows them
        self._registry = CollectorRegistry()
        own = self._registry
        self.requests = Counter("sonosco_requests", "Answered requests.", ["path", "status"], registry=own)
        self.seconds = Histogram("sonosco_request_seconds", "Time from request to answer.", ["path"], registry=own)
        self.audio = Counter(
            "sonosco_audio_seconds", "Seconds of audio that were transcribed.", ["model"], registry=own
        )
        self.batch = Histogram("sonosco_batch_size", "Recordings in a batch.", buckets=_BATCHES, registry=own)
        self.restarts = Counter("sonosco_restarts", "Processes that were replaced.", ["kind"], registry=own)
        self.active = Gauge("sonosco_active_requests", "Requests that are worked on.", registry=own)
        self.waiting = Gauge("sonosco_waiting", "Waveforms that wait for a model.", registry=own)
        self.recognisers = Gauge("sonosco_recognisers", "Processes whose models are ready.", registry=own)
        memory = Gauge("sonosco_resident_bytes", "Memory of the process that answers requests.", registry=own)
        memory.set_function(lambda: resident_memory()[0] or 0)

    def text(self) -> bytes:
        """All numbers as they are now."""
        return generate_latest(self._registry)
