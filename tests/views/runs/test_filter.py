"""The filter language: what it matches, and how it reports errors."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.analysis.verdict import Verdict
from stepscope.schema.notation import NotationError
from stepscope.views.runs.filter import Filter, names, parse
from stepscope.views.runs.filter_terms import MAX_CHARACTERS, MAX_TERMS
from stepscope.views.runs.run_rows import RunRow

NOW_S = 1_760_100_000.0
GIB = 2.0**30

NOT_KNOWN = Verdict("few_steps", "Too early to tell.", "unknown", None, None)
ROW = RunRow(
    id="resnet-abc", name="ResNet baseline 7", project="vision", status="running", reason="",
    started=NOW_S - 3600, ended=None, duration_s=3600.0, last_seen=NOW_S - 1, step=1500, total_steps=5000,
    steps_per_second=4.0, eta_s=875.0, loss_last=0.4, loss_best=0.3, loss_nonfinite=None,
    loss_key="train/loss", attention="KeyError: 'mixup'",
    data_wait_ratio=0.41, gpu_mean_ratio=0.45, gpu_worst_ratio=0.2, gpu_worst="gpu 3",
    peak_memory_bytes=40 * GIB,
    verdict=Verdict("input.exposed_wait", "Input-bound: 41% of step time waits", "warning", 0.9, None, ()),
    open_alerts=2, tags=("baseline", "two words"), archived=False, colour=None,
    hosts=("node-1.cluster", "node-2.cluster"), ranks=8, segments=1,
    config={"batch_size": 64, "optimizer.lr": 1e-3, "optimizer.name": "AdamW", "amp": True, "seed": None},
    spark=(),
)  # fmt: skip


def matches(text: str, row: RunRow = ROW) -> bool:
    return parse(text).matches(row, int(NOW_S * 1e9))


@pytest.mark.parametrize(
    "text",
    [
        "", "   ", "attention:yes", "attention:mixup", "-attention:no",
        "resnet", "RESNET base", '"baseline 7"', "'ResNet base'", "-bert", '-"not there"',
        "status:running", "status:stalled,running", "status!=finished", "tag:baseline", 'tag:"two words"',
        "project:vision", "host:node-2", "id:resnet-abc", "verdict:input-bound", "verdict:warning",
        "verdict:exposed", "name:baseline", "loss_key:train",
        "config.batch_size>=64", "config.batch_size = 64", "config.lr<=0.001", "config.optimizer.name:adam",
        "config.name=adamw", "config.amp:true", "config.seed:null", "config.optimizer.name!=sgd",
        "gpu_util<50", "gpu_util<50%", "gpu_util<0.5", "gpu<=45", "gpu_worst>=20%", "data_wait>40",
        "loss<0.5", "loss > 0.3", "best_loss=0.3", "steps>1000", "steps>=1.5k", "total_steps:5000",
        "duration>=1h", "duration<1h30m", "duration=60m", "eta<15min", "memory>39GiB", "memory<43GB",
        "duration<1w2d", "duration>=3600000000us", 'memory>"39 GiB"', "memory>39G", "loss<+5e-1",
        "alerts>0", "ranks=8", "hosts:2", "segments<2", "steps_per_second>3.9", "speed<4.1",
        "started>-2h", "started<-30m", "started>2020-01-01", "started>=1.7e9", "last_seen>-5s",
        "/^ResNet/", "/resnet/i", r"/base\w+ \d$/", "-/^bert/", "-tag:old", "-loss>1", "-config.nothing:1",
        "resnet status:running gpu_util<50 -tag:old started>-2d",
    ],
)  # fmt: skip
def test_a_filter_matches(text: str) -> None:
    assert matches(text)


@pytest.mark.parametrize(
    "text",
    [
        "bert", "-resnet", '"baseline 8"', "status:finished", "status!=running", "tag:base", "project:vis",
        "host:node-3", "verdict:memory", "verdict:ok", "config.batch_size>64", "config.nothing=1",
        "config.nothing!=1", "config.optimizer.name<5", "gpu_util>50", "loss<0.4", "ended>-2d", "steps<1500",
        "duration>2h", "started<-2h", "/^resnet/", "-/ResNet/", "memory>40.1GiB", "resnet bert",
    ],
)  # fmt: skip
def test_a_filter_excludes(text: str) -> None:
    assert not matches(text)


def test_what_is_not_known_matches_no_comparison() -> None:
    row = replace(ROW, loss_last=None, gpu_mean_ratio=None, verdict=NOT_KNOWN)
    for text in ("loss<1", "loss>=0", "loss!=3", "gpu_util<100", "verdict:ok"):
        assert not matches(text, row)
    assert matches("verdict:none", row)
    assert matches("-loss<1", row)


def test_a_day_means_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from datetime import datetime

    row = replace(ROW, started=datetime(2026, 1, 31, 15, 0).astimezone().timestamp())
    for text in ("started:2026-01-31", "started>=2026-01-31", "started<=2026-01-31", "started>2026-01-30"):
        assert matches(text, row)
    for text in ("started>2026-01-31", "started<2026-01-31", "started!=2026-01-31"):
        assert not matches(text, row)


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("good statu:running", "did you mean status", (5, 18)),
        ("status:gone", "no status 'gone'", (0, 11)),
        ("loss<many", "compared with a number", (0, 9)),
        ("gpu_util<5x", "a share such as 50%", (0, 11)),
        ("duration>5x", "a length of time", (0, 11)),
        ("memory>5x", "a size such as", (0, 9)),
        ("started>yesterday", "a moment such as -2d", (0, 17)),
        ("started>2026-13-45", "a moment such as -2d", (0, 18)),
        ("status<running", "is text", (0, 14)),
        ("lr<1", "config.lr", (0, 4)),
        ("config.lr>high", "compared with a number", (0, 14)),
        ("a -", "minus", (2, 3)),
        ("--a", "minus", (0, 1)),
        ("a >", "value is missing", (0, 3)),
        ("tag:", "value is missing", (0, 4)),
        ('a "b', "closing quote", (2, 4)),
        ('"a"b', "space is missing", (0, 4)),
        ('a""', "quote inside a word", (0, 3)),
        ('""', "nothing between", (0, 2)),
        (":x", "name is missing", (0, 2)),
        ("/a", "closing slash", (0, 2)),
        ("//", "nothing between", (0, 2)),
        ("/a/x", "follow an expression", (0, 4)),
        ("ok /(a/", "closing bracket", (4, 7)),
        ("ok -/a**/", "cannot follow a repeat", (6, 9)),
        ("loss<1e999", "number", (0, 10)),
    ],
)
def test_an_error_has_a_message_and_a_position(text: str, message: str, place: tuple[int, int]) -> None:
    with pytest.raises(NotationError, match=message) as caught:
        parse(text)
    assert (caught.value.begin, caught.value.end) == place
    assert caught.value.message == str(caught.value)


def test_length_and_number_of_terms_are_bounded() -> None:
    with pytest.raises(NotationError, match="at most 1,000"):
        parse("x" * (MAX_CHARACTERS + 1))
    with pytest.raises(NotationError, match="more than 50 terms"):
        parse("x " * (MAX_TERMS + 1))
    assert matches(" ".join(["resnet"] * MAX_TERMS))


def test_all_names_can_be_used_in_a_filter() -> None:
    for name in names():
        value = {"status": "running", "config.": "1"}.get(name, "1")
        parse(f"{name}x:{value}" if name == "config." else f"{name}:{value}")


PIECES = st.sampled_from(
    [
        "status:", "running", "-", "/", '"', "'", "config.", "loss", "<", ">=", "!=", "=", ":", " ", "1e3",
        "50%", "2h", "-2d", "started", "gpu_util", "(a|b)*", "[a-", "\\", "\x00", "\ud800", "é", "{2,",
        "2026-01-31", "GiB",
    ]
)  # fmt: skip


def understood(text: str) -> Filter | NotationError:
    try:
        return parse(text)
    except NotationError as error:
        return error


@given(st.one_of(st.text(max_size=200), st.lists(PIECES, max_size=25).map("".join)))
def test_any_text_is_a_filter_or_an_error_with_a_position_in_it(text: str) -> None:
    outcome = understood(text)
    if isinstance(outcome, NotationError):
        assert 0 <= outcome.begin <= outcome.end <= len(text)
        assert str(outcome)
        return
    assert isinstance(outcome, Filter)
    for row in (
        ROW,
        replace(ROW, name="", config={}, hosts=(), verdict=NOT_KNOWN, loss_last=None, ended=NOW_S),
    ):
        assert outcome.matches(row, int(NOW_S * 1e9)) in (True, False)
