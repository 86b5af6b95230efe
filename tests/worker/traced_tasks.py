"""An app whose spans stand in memory or, in a worker, as lines of OUT/spans."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tuque.worker import App, Backoff, Reject, RetryLater, current_job
from tuque.worker.telemetry import Telemetry


def as_line(span: ReadableSpan) -> str:
    return json.dumps(json.loads(span.to_json())) + "\n"


provider = TracerProvider()
kept = InMemorySpanExporter()
provider.add_span_processor(SimpleSpanProcessor(kept))
if "OUT" in os.environ:
    lines = (Path(os.environ["OUT"]) / "spans").open("a", buffering=1)
    provider.add_span_processor(
        SimpleSpanProcessor(ConsoleSpanExporter(out=lines, formatter=as_line))
    )
tracer = provider.get_tracer("test")
app = App(telemetry=Telemetry(provider))
SOON = Backoff(first_s=0.05, max_s=0.1)


@app.task(queue="q", keep_s=60, attempts=2, backoff=SOON)
def works(text: str) -> str:
    with tracer.start_as_current_span("inner"):
        if text == "fail":
            raise ValueError("no\x1b good \udc80")
        if text == "reject":
            raise Reject("never")
        if text == "later" and current_job().starts == 1:
            raise RetryLater("not now", delay_s=0.05)
        if text == "exit":
            os._exit(7)
    return text


@app.task(queue="q", keep_s=60)
async def works_async(text: str) -> str:
    with tracer.start_as_current_span("inner"):
        return text


@app.task(queue="q", attempts=1, time_limit_s=0.2, keep_s=60)
async def hangs() -> None:
    await asyncio.sleep(60)


@app.task(queue="tube")
def in_a_tube(text: str) -> None:
    time.sleep(0)
