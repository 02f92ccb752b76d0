"""The step in progress at a time is the same wherever it is shown."""

from __future__ import annotations

import asyncio
import json

import numpy as np

from stepscope.schema.record import Event
from stepscope.schema.series import Source
from stepscope.views.logs.console_lines import console_of
from tests.web.asking import BEGUN_NS, NS, RUN, append, get

RANK = Source(RUN, "s2", 0, "node1")
GPU = Source(RUN, "s2", None, "node1", "gpu0", "seconds")
FIRST_S = 5000
STEPS = 9000
"""More than are read for recent times alone."""

TIMES_S = (FIRST_S - 1.0, FIRST_S + 0.25, FIRST_S + 4000.5, FIRST_S + STEPS - 1.5, FIRST_S + STEPS + 60.0)
EXPECTED = [100_000, 100_001, 104_001, 108_999, 108_999]
"""Each the next step to be logged; after the last, the last."""


def ns(seconds: float) -> int:
    return BEGUN_NS + int(seconds * NS)


def live_steps(state, store) -> list[int]:
    async def follow():
        client = await state.feed.join(RUN, frozenset({"gpu/odd_watts"}), None)
        times_ns = np.array([ns(seconds) for seconds in TIMES_S])
        append(store, {"gpu/odd_watts": np.arange(len(TIMES_S)) + 1.0}, [0] * len(TIMES_S), times_ns, GPU)
        await state.feed.poll()
        return client.drain()

    texts = [json.loads(message.text) for message in asyncio.run(follow()) if message.event == "points"]
    return [step for text in texts for part in text["series"] for step in part["steps"]]


def test_charts_the_live_feed_the_console_and_python_agree_on_the_step_at_a_time(state, app, store) -> None:
    steps = np.arange(100_000, 100_000 + STEPS)
    times_ns = BEGUN_NS + (FIRST_S + np.arange(STEPS, dtype=np.int64)) * NS
    append(store, {"loss": np.ones(STEPS)}, steps, times_ns, RANK)
    with store.transaction():
        for seconds in TIMES_S:
            store.put_event(RUN, Event("console", ns(seconds), None, 0, "s2", {"text": f"at {seconds}\n"}))
    live = live_steps(state, store)
    chart = get(app, f"/runs/{RUN}/series", keys="gpu/odd_watts", axis="step", buckets=4000, format="json")
    starts, width = chart["series"][0]["data"]["start"], chart["series"][0]["width"]
    with state.readers.open() as opened:
        run = opened.run(RUN)
        console = [line.step for line in console_of(run).lines if line.text.startswith("at ")]
        python = run.series("gpu/odd_watts").steps.tolist()
    assert python == live == console == EXPECTED
    assert starts == sorted({step // width * width for step in EXPECTED})
