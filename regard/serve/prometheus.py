"""Metrics in the text format of Prometheus (version 0.0.4)."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import accumulate

from regard.serve.registry import ModelRegistry

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)  # bounds of buckets
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = tuple[tuple[str, str], ...]
Samples = Mapping[Labels, float]


class Histogram:
    """Counts of durations in buckets."""

    def __init__(self) -> None:
        self.counts = [0] * (len(SECONDS) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(SECONDS, seconds)] += 1
        self.total += seconds


class ServerMetrics:
    """Counts since the start of the server. Gauges of queues and models are read when they are rendered."""

    def __init__(self) -> None:
        self.active = 0  # requests that are being answered
        self._requests: dict[Labels, float] = defaultdict(float)
        self._latency: dict[Labels, Histogram] = defaultdict(Histogram)
        self._first_token: dict[Labels, Histogram] = defaultdict(Histogram)
        self._prompt_tokens: dict[Labels, float] = defaultdict(float)
        self._completion_tokens: dict[Labels, float] = defaultdict(float)

    def observe_request(self, method: str, route: str, status: int, seconds: float | None) -> None:
        """`route` is the template of a path, so that the number of series stays small."""
        method = method if method in ("GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH") else "other"
        self._requests[("method", method), ("route", route), ("status", str(status))] += 1
        if seconds is not None:
            self._latency[(("route", route),)].observe(seconds)

    def observe_answer(self, model: str, prompt_tokens: int, completion_tokens: int, first_token: float | None) -> None:
        label = (("model", model),)
        self._prompt_tokens[label] += prompt_tokens
        self._completion_tokens[label] += completion_tokens
        if first_token is not None:
            self._first_token[label].observe(first_token)

    def render(self, registry: ModelRegistry) -> str:
        lines = [
            *render_samples("regard_requests_total", "counter", "Requests by route and status.", self._requests),
            *render_histograms("regard_request_seconds", "Time from a request to its end.", self._latency),
            *render_histograms("regard_first_token_seconds", "Time to the first token.", self._first_token),
            *render_samples("regard_prompt_tokens_total", "counter", "Tokens of inputs.", self._prompt_tokens),
            *render_samples("regard_completion_tokens_total", "counter", "Tokens of answers.", self._completion_tokens),
            *render_samples("regard_active_requests", "gauge", "Requests that are being answered.", {(): self.active}),
            *self._render_models(registry),
        ]
        return "".join(f"{line}\n" for line in lines)

    def _render_models(self, registry: ModelRegistry) -> Iterator[str]:
        loaded: dict[Labels, float] = {(("model", info.name),): float(info.is_loaded) for info in registry.infos()}
        yield from render_samples("regard_model_loaded", "gauge", "1 if the model is in memory.", loaded)
        gauges = {
            "regard_queue_requests": ("Jobs that wait.", "waiting"),
            "regard_queue_tokens": ("Tokens of the jobs that wait.", "waiting_tokens"),
            "regard_running_requests": ("Jobs in the batch.", "running"),
            "regard_kv_slots": ("Slots of the KV cache that jobs use.", "kv_slots"),
            "regard_kv_cached_slots": ("Slots of the KV cache that hold prefixes for later jobs.", "cached_slots"),
        }
        stats = [(served.name, served.scheduler.stats()) for served in registry.served()]
        for name, (text, field) in gauges.items():
            samples: dict[Labels, float] = dict.fromkeys(loaded, 0.0)
            for model, snapshot in stats:  # a model that is being replaced is there twice
                samples[(("model", model),)] = samples.get((("model", model),), 0.0) + getattr(snapshot, field)
            yield from render_samples(name, "gauge", text, samples)


def render_samples(name: str, kind: str, text: str, samples: Samples) -> Iterator[str]:
    yield from (f"# HELP {name} {text}", f"# TYPE {name} {kind}")
    for labels, value in sorted(samples.items()):
        yield f"{name}{render_labels(labels)} {value:g}" if value < 1e6 else f"{name}{render_labels(labels)} {value!r}"


def render_histograms(name: str, text: str, histograms: Mapping[Labels, Histogram]) -> Iterator[str]:
    yield from (f"# HELP {name} {text}", f"# TYPE {name} histogram")
    for labels, histogram in sorted(histograms.items(), key=lambda item: item[0]):
        counts = [*accumulate(histogram.counts)]
        for bound, count in zip((*map(str, SECONDS), "+Inf"), counts, strict=True):
            yield f"{name}_bucket{render_labels((*labels, ('le', bound)))} {count}"
        yield f"{name}_sum{render_labels(labels)} {histogram.total!r}"
        yield f"{name}_count{render_labels(labels)} {counts[-1]}"


def render_labels(labels: Labels) -> str:
    pairs = ",".join(f'{name}="{escape_label(value)}"' for name, value in labels)
    return f"{{{pairs}}}" if pairs else ""


def escape_label(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
