"""Prometheus metrics under vLLM's names, so that one client reads both servers. Fed once per finished request."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from runtime.http.answers import Progress

_SECONDS = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_PER_TOKEN_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
_TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144)
_NS = 1e-9


class ServerMetrics:
    """One registry per server. The gauges read the queue when they are scraped."""

    def __init__(self, model: str, num_drafts: int, running: Callable[[], int], waiting: Callable[[], int]) -> None:
        self._registry = CollectorRegistry()
        self._model = model
        self._gauge("vllm:num_requests_running", "Requests in the engine.", running)
        self._gauge("vllm:num_requests_waiting", "Requests in the queue.", waiting)
        self._prompt = self._counter("vllm:prompt_tokens", "Prefilled prompt tokens.")
        self._generated = self._counter("vllm:generation_tokens", "Generated tokens.")
        self._drafts = self._counter("vllm:spec_decode_num_drafts", "Speculative rounds.")
        self._draft_tokens = self._counter("vllm:spec_decode_num_draft_tokens", "Proposed tokens.")
        self._accepted = self._counter("vllm:spec_decode_num_accepted_tokens", "Accepted proposals.")
        self._positions = self._accepted_per_position(num_drafts)
        self._success = Counter(
            "vllm:request_success", "Finished requests.", ["model_name", "finished_reason"], registry=self._registry
        )
        self._times = {name: self._seconds(name) for name in ("queue", "prefill", "decode", "inference")}
        self._ttft = self._histogram("vllm:time_to_first_token_seconds", "Arrival to first token.", _SECONDS)
        self._e2e = self._histogram("vllm:e2e_request_latency_seconds", "Arrival to last token.", _SECONDS)
        self._inter_token = self._histogram("vllm:inter_token_latency_seconds", "Round to round.", _PER_TOKEN_SECONDS)
        per_token = "vllm:request_time_per_output_token_seconds"
        self._per_token = self._histogram(per_token, "Decode time per token after the first.", _PER_TOKEN_SECONDS)
        self._prompt_size = self._histogram("vllm:request_prompt_tokens", "Prompt tokens per request.", _TOKENS)
        self._answer_size = self._histogram("vllm:request_generation_tokens", "Tokens per answer.", _TOKENS)

    def observe(self, progress: Progress) -> None:
        """A request has ended, whatever its reason; one that never started is not counted."""
        if not progress.steps:
            return
        self._prompt.inc(progress.num_prompt_tokens)
        self._generated.inc(progress.num_tokens)
        self._success.labels(self._model, progress.finish_reason or "abort").inc()
        self._observe_speculation(progress)
        self._observe_times(progress)
        self._prompt_size.observe(progress.num_prompt_tokens)
        self._answer_size.observe(progress.num_tokens)

    def render(self) -> bytes:
        return generate_latest(self._registry)

    def _observe_speculation(self, progress: Progress) -> None:
        speculative = [step for step in progress.rounds if step.kind == "spec"]
        self._drafts.inc(len(speculative))
        self._draft_tokens.inc(sum(step.drafted for step in speculative))
        self._accepted.inc(sum(step.accepted for step in speculative))
        for position, counter in enumerate(self._positions):
            counter.inc(sum(step.accepted > position for step in speculative))

    def _observe_times(self, progress: Progress) -> None:
        queue, prefill, decode = progress.queue_ns, progress.prefill_ns, progress.decode_ns
        for name, value in (
            ("queue", queue),
            ("prefill", prefill),
            ("decode", decode),
            ("inference", prefill + decode),
        ):
            self._times[name].observe(value * _NS)
        self._ttft.observe((queue + prefill) * _NS)
        self._e2e.observe((queue + prefill + decode) * _NS)
        stamps = [step.ended_ns for step in progress.steps]
        for earlier, later in itertools.pairwise(stamps):
            self._inter_token.observe((later - earlier) * _NS)
        behind_first = progress.num_tokens - len(progress.steps[0].token_ids)
        if behind_first:
            self._per_token.observe(decode * _NS / behind_first)

    def _gauge(self, name: str, help_text: str, read: Callable[[], int]) -> None:
        gauge = Gauge(name, help_text, ["model_name"], registry=self._registry)
        gauge.labels(self._model).set_function(read)

    def _counter(self, name: str, help_text: str) -> Counter:
        return Counter(name, help_text, ["model_name"], registry=self._registry).labels(self._model)

    def _histogram(self, name: str, help_text: str, buckets: tuple[float, ...]) -> Histogram:
        histogram = Histogram(name, help_text, ["model_name"], buckets=buckets, registry=self._registry)
        return histogram.labels(self._model)

    def _seconds(self, phase: str) -> Histogram:
        return self._histogram(f"vllm:request_{phase}_time_seconds", f"Time of the {phase} phase.", _SECONDS)

    def _accepted_per_position(self, num_drafts: int) -> list[Counter]:
        counter = Counter(
            "vllm:spec_decode_num_accepted_tokens_per_pos",
            "Accepted proposals by position in the block.",
            ["model_name", "position"],
            registry=self._registry,
        )
        return [counter.labels(self._model, str(position)) for position in range(num_drafts)]
