"""The text and the fields of a notice."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from stepscope.alerts.delivery import message
from tests.channels.notices import AT_NS, DETAIL, INJECTIONS, MINUTE_NS, notice

UNSAFE = {*map(chr, range(32)), *map(chr, range(0x7F, 0xA0)), *"\u2028\u2029\u202d\u202e\u2066\u2067\ud800"}


def test_the_text_says_what_where_since_when_and_what_to_do():
    assert message.text(notice()) == (
        "The run mnist-baseline (project vision, on node-3) has an alert.\n"
        "\n"
        "CRITICAL: Loss is NaN.\n"
        "  rule: nonfinite_loss\n"
        "  value: train/loss = NaN, threshold 2\n"
        "  since: 2025-12-31T23:48:00Z, for 12 min\n"
        "  where: step 1200, rank 3, cuda:3\n"
        "  recent: ▁▂▅█×\n"
        "  what to do: Lower the learning rate.\n"
        "\n"
        "Open the run: http://127.0.0.1:8765/run/run-1\n"
    )


def test_unknown_facts_are_left_out():
    bare = notice(
        key="",
        value=None,
        step=None,
        rank=None,
        device="",
        recent=(),
        advice="",
        link="",
        project="",
        host="",
    )
    assert message.text(bare) == (
        "The run mnist-baseline has an alert.\n"
        "\n"
        "CRITICAL: Loss is NaN.\n"
        "  rule: nonfinite_loss\n"
        "  since: 2025-12-31T23:48:00Z, for 12 min\n"
    )


def test_durations_are_counted_until_the_given_time():
    assert "for 1 h 12 min" in message.text(notice(), now_ns=AT_NS + 60 * MINUTE_NS)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(-5, "0 s"), (0, "0 s"), (59, "59 s"), (185, "3 min 5 s"), (4_320, "1 h 12 min"), (86_460, "1 d")],
)
def test_a_duration_is_written_in_two_units(seconds, said):
    assert message.duration(seconds * 10**9) == said


@pytest.mark.parametrize(
    ("kind", "subject", "begins"),
    [
        (
            "firing",
            "[CRITICAL] mnist-baseline: Loss is NaN.",
            "The run mnist-baseline (project vision, on",
        ),
        ("reminder", "[still CRITICAL] mnist-baseline: Loss is NaN.", "The run mnist-baseline (project"),
        (
            "resolved",
            "[resolved CRITICAL] mnist-baseline: Loss is NaN.",
            "An alert of the run mnist-baseline",
        ),
        ("test", "[TEST] mnist-baseline: Loss is NaN.", "This is a test of the alerts"),
    ],
)
def test_each_kind_of_notice_has_its_own_wording(kind, subject, begins):
    sent = notice(kind=kind)
    assert message.subject(sent) == subject
    assert message.text(sent).startswith(begins)
    assert ("lasted 12 min" in message.text(sent)) == (kind == "resolved")
    assert ("still has" in message.text(sent)) == (kind == "reminder")


def test_a_test_notice_needs_no_alerts():
    assert message.subject(notice(kind="test", alerts=())) == "[TEST] mnist-baseline: the channel works"
    assert "nothing is wrong" in message.text(notice(kind="test", alerts=()))


def test_the_worst_alert_comes_first_and_the_rest_is_counted():
    minor = [
        replace(DETAIL, severity="info", rule=f"rule-{place}", message=f"It is {place}.")
        for place in range(12)
    ]
    many = notice(alerts=(*minor, DETAIL))
    text = message.text(many)
    assert text.index("CRITICAL: Loss is NaN.") < text.index("INFO: It is 0.")
    assert "has 13 alerts." in text
    assert "It is 8." in text
    assert "It is 9." not in text
    assert "\n\nand 3 more\n" in text
    assert message.subject(many) == "[CRITICAL] mnist-baseline: Loss is NaN. (and 12 more)"


@pytest.mark.parametrize(
    ("values", "drawn"),
    [
        ((), ""),
        ((3.0, 3.0, 3.0), "▁▁▁"),
        ((float("nan"), float("inf"), -float("inf")), "×××"),
        ((0.0, 7.0, float("nan")), "▁█×"),
        (tuple(map(float, range(8))), "▁▂▃▄▅▆▇█"),
        ((-1.7e308, 1.7e308), "▁█"),
        ((0.0, 5e-324), "▁▁"),
    ],
)
def test_recent_values_are_drawn(values, drawn):
    assert message.sparkline(values) == drawn


@pytest.mark.parametrize("text", INJECTIONS)
@pytest.mark.parametrize(
    "place", ["run", "project", "host", "rule", "message", "key", "device", "advice", "link"]
)
def test_a_name_cannot_control_the_terminal_that_shows_it(place, text):
    sent = notice(**{place: text})
    lines = message.text(sent).split("\n")
    assert len(lines) == len(message.text(notice()).split("\n"))
    assert not UNSAFE & set("".join(lines))
    assert not UNSAFE & set(message.subject(sent))
    assert max(map(len, lines)) < 700
    fields = json.loads(json.dumps(message.fields(sent)))
    assert not UNSAFE & set("".join([*map(str, fields["alerts"][0].values()), fields["run"], fields["link"]]))


def test_a_subject_is_at_most_200_characters():
    assert len(message.subject(notice(run="r" * 500, message="m" * 500, alerts=(DETAIL, DETAIL)))) <= 200
    assert len(message.subject(notice(run="r" * 500, message="m" * 500))) <= 200


def test_the_fields_for_programs_are_these():
    fields = message.fields(notice())
    assert json.loads(json.dumps(fields, allow_nan=False)) == fields
    alert = {
        "rule": "nonfinite_loss",
        "severity": "critical",
        "message": "Loss is NaN.",
        "since": "2025-12-31T23:48:00Z",
        "key": "train/loss",
        "quantity": "",
        "value": "NaN",
        "threshold": 2.0,
        "step": 1200,
        "rank": 3,
        "device": "cuda:3",
        "recent": [1.0, 2.0, 4.5, 8.0, "NaN"],
        "advice": "Lower the learning rate.",
    }
    assert fields == {
        "version": 1,
        "id": "notice-7",
        "kind": "firing",
        "severity": "critical",
        "run": "mnist-baseline",
        "run_id": "run-1",
        "project": "vision",
        "host": "node-3",
        "at": "2026-01-01T00:00:00Z",
        "link": "http://127.0.0.1:8765/run/run-1",
        "title": message.subject(notice()),
        "text": message.text(notice()),
        "alerts": [alert],
        "left_out": 0,
    }, "Receivers read these: add a field, never rename or remove one."


def test_the_fields_contain_at_most_a_hundred_alerts():
    fields = message.fields(notice(alerts=(DETAIL,) * 130))
    assert (len(fields["alerts"]), fields["left_out"]) == (100, 30)


@pytest.mark.parametrize(
    ("value", "expected"), [(float("inf"), "Infinity"), (-float("inf"), "-Infinity"), (None, None)]
)
def test_a_number_that_json_does_not_have_is_a_string(value, expected):
    assert message.fields(notice(value=value))["alerts"][0]["value"] == expected
