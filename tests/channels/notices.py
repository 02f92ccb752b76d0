"""Notices for tests to send."""

from __future__ import annotations

from dataclasses import replace

from stepscope.schema.alert import AlertDetail, Notice

MINUTE_NS = 60 * 10**9
AT_NS = 1_767_225_600 * 10**9  # 2026-01-01T00:00:00Z

DETAIL = AlertDetail(
    rule="nonfinite_loss",
    severity="critical",
    message="Loss is NaN.",
    since_ns=AT_NS - 12 * MINUTE_NS,
    key="train/loss",
    value=float("nan"),
    threshold=2.0,
    step=1200,
    rank=3,
    device="cuda:3",
    recent=(1.0, 2.0, 4.5, 8.0, float("nan")),
    advice="Lower the learning rate.",
)
NOTICE = Notice(
    id="notice-7",
    kind="firing",
    run="mnist-baseline",
    run_id="run-1",
    project="vision",
    host="node-3",
    at_ns=AT_NS,
    alerts=(DETAIL,),
    link="http://127.0.0.1:8765/run/run-1",
)


def notice(**changes: object) -> Notice:
    """The usual notice with changes to it, or to its alert where that has such a field."""
    own = {name: value for name, value in changes.items() if name in vars(NOTICE)}
    alert = {name: value for name, value in changes.items() if name not in own}
    return replace(NOTICE, **{"alerts": (replace(DETAIL, **alert),), **own})


INJECTIONS = [
    "a\r\nBcc: everybody@example.com",
    "a\nSubject: another",
    "a\rX-Header: 1",
    "a\x00b",
    "a\x0b\x0cBcc: x@example.com",
    "a\x1c\x1d\x1eBcc: x@example.com",
    "a\x85Bcc: x@example.com",
    "a\u2028Bcc: x@example.com",
    "a\u2029\u2029Bcc: x@example.com",
    "a\r\n\r\n<script>alert(1)</script>",
    "\x1b[31mred\x1b]0;title\x07",
    "\u202egnp.exe\u2066",
    "lone half \ud800 of a character",
    "=?utf-8?q?=0D=0ABcc:_x=40example.com?=",
    "é" * 150 + "\r\nBcc: x@example.com",
    "a" * 5_000,
    "schön 模型 🚀 \u2067",
]
