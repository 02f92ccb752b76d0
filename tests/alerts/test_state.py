"""The states of a rule; repeated notices, quiet hours and silences."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from stepscope.alerts.delivery.quiet_hours import QuietHours
from stepscope.alerts.repeat_policy import RepeatPolicy
from stepscope.alerts.silences import Silences
from stepscope.alerts.state import State
from stepscope.errors import ConfigError

S = 10**9


@dataclass
class Asked:
    """What a state asks a rule for."""

    for_s: float = 0.0
    for_points: int = 0


def test_a_rule_without_a_duration_fires_at_the_first_evaluation() -> None:
    assert State().advance(Asked(), is_true=True, is_clear=None, now_ns=0) == "fires"


def test_a_rule_with_a_duration_is_pending_until_it_has_lasted() -> None:
    state = State()
    turns = [
        state.advance(Asked(for_s=60), is_true=True, is_clear=None, now_ns=at * S) for at in (0, 30, 59, 60)
    ]
    assert turns == [None, None, None, "fires"]


def test_a_condition_that_is_interrupted_starts_again() -> None:
    state = State()
    truths = [(0, True), (40, False), (50, True), (100, True), (110, True)]
    turns = [
        state.advance(Asked(for_s=60), is_true=truth, is_clear=None, now_ns=at * S) for at, truth in truths
    ]
    assert turns == [None, None, None, None, "fires"]


def test_a_duration_in_points_waits_for_that_many_points() -> None:
    state = State()
    turns = [
        state.advance(Asked(for_points=50), is_true=True, is_clear=None, now_ns=0, points=points)
        for points in (100, 140, 150)
    ]
    assert turns == [None, None, "fires"]


def test_an_unknown_result_neither_fires_nor_resolves() -> None:
    state = State()
    assert state.advance(Asked(), is_true=None, is_clear=None, now_ns=0) is None
    state.fired(1)
    assert state.advance(Asked(), is_true=None, is_clear=None, now_ns=S) is None
    assert state.is_firing


def test_a_firing_rule_resolves_when_it_is_clear_and_can_fire_again() -> None:
    state = State()
    state.advance(Asked(), is_true=True, is_clear=None, now_ns=0)
    state.fired(7)
    assert state.advance(Asked(), is_true=False, is_clear=False, now_ns=S) is None
    assert state.advance(Asked(), is_true=False, is_clear=True, now_ns=2 * S) == "resolves"
    state.resolved()
    assert state.advance(Asked(), is_true=True, is_clear=None, now_ns=3 * S) == "fires"


def notify(policy: RepeatPolicy, at: float, *, fires: bool, cooldown_s: float = 300) -> bool:
    now_ns = int(at * S)
    is_due = policy.is_due(fires=fires, cooldown_s=cooldown_s, now_ns=now_ns)
    if is_due:
        policy.record_notice(fires=fires, cooldown_s=cooldown_s, now_ns=now_ns)
    return is_due


def test_firing_and_its_resolution_are_reported_immediately() -> None:
    policy = RepeatPolicy()
    assert notify(policy, 0, fires=True)
    assert not notify(policy, 1, fires=True)
    assert notify(policy, 2, fires=False)


def test_a_flapping_rule_is_reported_once_a_cooldown() -> None:
    policy = RepeatPolicy()
    notices = [at for at in range(3000) if notify(policy, at, fires=at % 2 == 0)]
    assert notices[:2] == [0, 1]
    assert len(notices) <= 2 + 2 * 3000 / 300


def test_the_current_state_is_reported_when_the_cooldown_is_over() -> None:
    policy = RepeatPolicy()
    notify(policy, 0, fires=True)
    notify(policy, 1, fires=False)
    assert not notify(policy, 2, fires=True)
    assert notify(policy, 301, fires=True)


def test_reminders_come_while_it_fires_and_only_if_configured() -> None:
    policy = RepeatPolicy()
    notify(policy, 0, fires=True)
    assert not policy.should_remind(None, 10**6 * S)
    assert not policy.should_remind(600, 599 * S)
    assert policy.should_remind(600, 600 * S)
    notify(policy, 601, fires=False)
    assert not policy.should_remind(600, 5000 * S)


@pytest.mark.parametrize(
    ("text", "hour", "holds"),
    [
        ("22:00-07:00 UTC", 23, True),
        ("22:00-07:00 UTC", 6, True),
        ("22:00-07:00 UTC", 7, False),
        ("22:00-07:00 UTC", 12, False),
        ("09:00-17:30 UTC", 17, True),
        ("09:00-17:00 UTC", 17, False),
    ],
)
def test_quiet_hours_may_include_midnight(text: str, hour: int, holds: bool) -> None:
    assert QuietHours.parse(text).contain(hour * 3600 * S) is holds


@pytest.mark.parametrize("text", ["", "22-7", "25:00-07:00", "22:00", "22:60-07:00", "22:00-07:00 CET"])
def test_invalid_quiet_hours_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match="22:00-07:00"):
        QuietHours.parse(text)


def test_a_silence_applies_to_its_rules_and_runs_until_it_ends(tmp_path: Path) -> None:
    Silences(tmp_path).silence("gpu_*", "mnist", now_ns=0, until_ns=60 * S, reason="known")
    said = Silences(tmp_path).read()
    assert said.silence_for("gpu_hot", ("mnist", "mnist-1"), 59 * S).reason == "known"
    assert said.silence_for("gpu_hot", ("other", "other-1"), 59 * S) is None
    assert said.silence_for("crashed", ("mnist", "mnist-1"), 59 * S) is None
    assert said.silence_for("gpu_hot", ("mnist", "mnist-1"), 60 * S) is None


def test_changes_by_other_processes_are_read(tmp_path: Path) -> None:
    reader = Silences(tmp_path)
    assert reader.read().silences == ()
    made = Silences(tmp_path).silence("*", "*", now_ns=0, until_ns=S)
    Silences(tmp_path).acknowledge(5)
    assert reader.read().silences == (made,)
    assert reader.read().acknowledged == {5}
    assert Silences(tmp_path).end_silence(made.id)
    assert reader.read().silences == ()
    assert not Silences(tmp_path).end_silence("nobody")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"silences": [1]}', '{"silences": 5}', "\x00"])
def test_an_invalid_file_silences_nothing_and_can_be_overwritten(tmp_path: Path, content: str) -> None:
    (tmp_path / "silences.json").write_text(content)
    assert Silences(tmp_path).read().silences == ()
    Silences(tmp_path).silence("*", "*", now_ns=0, until_ns=S)
    assert len(Silences(tmp_path).read().silences) == 1
