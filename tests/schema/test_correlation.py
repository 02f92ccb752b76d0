"""Processes that never talk to each other agree on how their lines belong together."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.recorder.identity.rank_detection import identify
from stepscope.schema.correlation import TraceParent, correlate, hand_over
from stepscope.schema.identity import Identity

ME = Identity(name="mnist", project="demo", segment="6918a2f9c0ffee", rank=3, world_size=8, host="node1")
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GIVEN = f"00-{TRACE}-{SPAN}-01"


def test_an_id_says_run_segment_and_rank() -> None:
    assert correlate(ME, 1, {}).id == f"{ME.run_id}/6918a2f9c0ffee/3"


def test_ranks_on_all_hosts_share_a_trace_and_each_process_has_its_span() -> None:
    others = [replace(ME, rank=rank, host=host) for rank in range(4) for host in ("node1", "node2")]
    correlations = [correlate(identity, pid, {}) for identity in others for pid in (1, 2)]
    assert len({correlation.trace_id for correlation in correlations}) == 1
    assert len({correlation.span_id for correlation in correlations}) == len(correlations)


def test_another_segment_is_another_trace() -> None:
    assert correlate(ME, 1, {}).trace_id != correlate(replace(ME, segment="x"), 1, {}).trace_id


def test_a_process_comes_to_the_same_result_each_time() -> None:
    assert correlate(ME, 1, {}) == correlate(ME, 1, {})


def test_ids_have_the_form_of_the_standard() -> None:
    mine = correlate(ME, 1, {})
    assert TraceParent.parse(f"00-{mine.trace_id}-{mine.span_id}-01") == TraceParent(
        mine.trace_id, mine.span_id, "01"
    )


def test_a_trace_from_outside_is_taken_and_the_span_is_our_own() -> None:
    mine = correlate(ME, 1, {"TRACEPARENT": GIVEN})
    assert mine.trace_id == TRACE
    assert mine.span_id != SPAN
    assert mine.parent == TraceParent(TRACE, SPAN, "01")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00",
        GIVEN.upper(),
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE[:-1]}-{SPAN}-01",
        f"0-{TRACE}-{SPAN}-01",
        f"00-{TRACE[:-1]}٣-{SPAN}-01",
        GIVEN + "\n" + GIVEN,
        "9" * 100_000,
    ],
)
def test_a_malformed_trace_is_as_good_as_none(text: str) -> None:
    assert TraceParent.parse(text) is None
    assert correlate(ME, 1, {"TRACEPARENT": text}) == correlate(ME, 1, {})


def test_a_later_version_of_the_standard_may_say_more() -> None:
    assert TraceParent.parse(f"01-{TRACE}-{SPAN}-00-more") == TraceParent(TRACE, SPAN, "00")


@given(st.text(st.characters(exclude_categories=[])))
def test_no_text_is_fatal(text: str) -> None:
    correlation = correlate(ME, 1, {"TRACEPARENT": text})
    assert re.fullmatch("[0-9a-f]{32}", correlation.trace_id)
    assert correlation.id == correlate(ME, 1, {}).id


@pytest.mark.parametrize("environment", [{}, {"TRACEPARENT": GIVEN}], ids=["of its own", "from outside"])
def test_a_process_started_elsewhere_joins_run_segment_and_trace(environment: dict[str, str]) -> None:
    mine = correlate(ME, 1, environment)
    handed = hand_over(ME, mine)
    started = identify(handed["STEPSCOPE_RUN"], handed["STEPSCOPE_PROJECT"], {**handed, "RANK": "5"})
    # A first start in that process; here others came before it.
    started = replace(started, segment=started.segment.partition("n")[0], host="node9")
    child = correlate(started, 1, handed)
    assert (child.run_id, child.segment, child.trace_id) == (mine.run_id, mine.segment, mine.trace_id)
    assert child.rank == 5
    assert child.span_id != mine.span_id
    assert child.parent == mine.parent


def test_any_name_of_a_run_can_be_correlated() -> None:
    correlation = correlate(replace(ME, name="\ud800", segment="\ud800", host="\udcff"), 1, {})
    assert re.fullmatch("[0-9a-f]{32}", correlation.trace_id)
    assert re.fullmatch("[0-9a-f]{16}", correlation.span_id)
