"""Rules as settings write them, and their messages."""

import pytest
import yaml

from stepscope.alerts.conditions.expression import parse
from stepscope.alerts.conditions.tree import Reach
from stepscope.alerts.rule import Rule, render, rule_from_training, rules_from
from stepscope.errors import ConfigError


def complaint_about(*fields):
    with pytest.raises(ConfigError) as caught:
        rules_from(list(fields), "alerts.rules")
    return str(caught.value)


def test_a_rule_may_have_every_key():
    [rule] = rules_from(
        yaml.safe_load("""
        - name: slow
          when: p50(step_seconds, 2m) > 1.5 * baseline
          for: 60s
          severity: critical
          message: "{value:.2f} s"
          cooldown: 10m
          remind: 1h
          channels: [slack, mail]
          resolve: false
          clear: p50(step_seconds, 2m) < 1.2 * baseline
          advice: Look.
          enabled: false
        """)
    )
    assert rule == Rule(
        "slow",
        parse("median(step_seconds, 2m) > 1.5 * baseline(step_seconds)"),
        severity="critical",
        message="{value:.2f} s",
        for_s=60.0,
        cooldown_s=600.0,
        remind_s=3600.0,
        resolve=False,
        clear=parse("median(step_seconds, 2m) < 1.2 * baseline(step_seconds)"),
        channels=("slack", "mail"),
        advice="Look.",
        enabled=False,
    )


def test_a_rule_needs_only_a_name_and_a_condition():
    [rule] = rules_from([{"name": "high", "condition": "loss > 2", "remind": None}])
    assert rule == Rule("high", parse("loss > 2"))
    assert (rule.severity, rule.cooldown_s, rule.resolve, rule.channels) == ("warning", 300.0, True, None)


@pytest.mark.parametrize(
    ("written", "seconds", "points"),
    [(60, 60.0, 0), (0.5, 0.5, 0), ("2m", 120.0, 0), ("100 steps", 0.0, 100), ("3 points", 0.0, 3)],
)
def test_a_duration_is_a_number_of_seconds_or_text(written, seconds, points):
    [rule] = rules_from([{"name": "a", "when": "x > 1", "for": written}])
    assert (rule.for_s, rule.for_points) == (seconds, points)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"severity": "critcal"},
            'severity (high) is "critcal": it must be one of critical, warning, info; did',
        ),
        (
            {"for": "5 GiB"},
            'for (high) is "5 GiB": it must be a number of seconds, or a text such as 60s, 2m or',
        ),
        ({"for": -1}, "for (high) is -1: it must be"),
        ({"cooldown": "5 steps"}, 'cooldown (high) is "5 steps": it must be a number of seconds'),
        ({"remind": 0}, "remind (high) is 0: it must be at least 10 s; leave it out for no reminder."),
        ({"cooldown": True}, "cooldown (high) is true: it must be"),
        ({"resolve": "no"}, 'resolve (high) is "no": it must be true or false.'),
        ({"channels": [1]}, "channels (high) is [1]: it must be a list of channel names"),
        ({"clear": 5}, "clear (high) is 5: it must be a condition in quotes"),
        ({"message": 5}, "message (high) is 5: it must be text."),
        ({"mesage": ""}, "has no key 'mesage' (rule 'high'); did you mean 'message'?"),
        ({"x": ""}, "has no key 'x' (rule 'high'); there are name, when, for,"),
        ({"condition": "loss > 3"}, "has both 'when' and 'condition'; keep one."),
        ({"when": None}, "(high) has no condition"),
        ({"name": 5}, "name is 5; it must be text of 1 to 100 characters."),
    ],
)
def test_a_mistake_names_the_rule_the_key_the_value_and_what_is_allowed(fields, said):
    assert said in complaint_about({"name": "high", "when": "loss > 2", **fields})


def test_a_duplicate_key_is_named_as_it_was_written():
    said = complaint_about({"name": "high", "condition": "loss > 3", "when": "loss > 2"})
    assert "has both 'condition' and 'when'; keep one." in said


def test_an_error_points_at_the_mistake_in_a_condition():
    said = complaint_about({"name": "high", "when": "loss >> 2"})
    assert said.startswith('alerts.rules[0].when (high) is "loss >> 2": Expected a number')
    assert said.splitlines()[1:] == ["  loss >> 2", "        ^"]


def test_all_mistakes_are_reported_together():
    said = complaint_about({"name": "a"}, {"name": "b", "when": "x > 1"}, "c", {"name": "b", "when": "x > 2"})
    assert [line.split(" ")[0] for line in said.splitlines()] == [
        "alerts.rules[0]",
        "alerts.rules[2]",
        "alerts.rules[3].name",
    ]


def test_a_rule_of_a_training_needs_no_condition():
    assert (
        rule_from_training({"name": "mine", "severity": "info", "cooldown": 5.0, "for": 0.0}).condition
        is None
    )
    assert rule_from_training({"name": "mine", "when": "loss > 2"}).condition == parse("loss > 2")
    with pytest.raises(ConfigError, match="severity"):
        rule_from_training({"name": "mine", "severity": "bad"})


@pytest.mark.parametrize("fields", [{"name": ""}, {"severity": "bad"}, {"message": "{x[0]}"}])
def test_a_rule_is_checked_when_it_is_created(fields):
    with pytest.raises(ConfigError):
        Rule(**{"name": "a", "condition": parse("x > 1"), **fields})


def test_a_rule_lists_the_metrics_it_uses():
    rule = Rule("a", parse("mean(x, 2m) > 1"), clear=parse("mean(x, 50 points) < y"), message="{z} {x:.2f}")
    assert rule.keys == {"x", "y", "z"}
    assert rule.reach() == {"x": Reach(120.0, 50), "y": Reach(0.0, 1)}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("Loss: {loss:.2f}", "Loss: 1.23"),
        ("{gpu/temperature_celsius:.0f} °C on {device}", "86 °C on GPU-0"),
        ("{val.loss} {value} {threshold} {rank} {run}", "0.5 0.1235 ? 3 mnist"),
        ("{missing:.2f} {`odd name`:.1f}", "? 7.0"),
        ("{{{loss:.1f}}} 100 %", "{1.2} 100 %"),
        ("{loss:x} {run:.2f} {loss:9999999999f}", "1.234 mnist 1.234"),
        ("{ratio:.0%} {loss:>8.2f}|", "90%     1.23|"),
        ("", ""),
    ],
)
def test_a_message_is_filled_in(template, text):
    values = {
        "loss": 1.234,
        "gpu/temperature_celsius": 85.6,
        "val.loss": 0.5,
        "value": 0.12345678,
        "threshold": None,
        "rank": 3,
        "run": "mnist",
        "device": "GPU-0",
        "odd name": 7.0,
        "ratio": 0.9,
    }
    assert render(template, values) == text


@pytest.mark.parametrize(
    "template",
    [
        "{x.__class__}",
        "{x[0]}",
        "{x!r}",
        "{}",
        "{0}",
        "{loss",
        "loss}",
        "{x:{y}}",
        "{x.y()}",
        "{__x}",
        "{a b}",
    ],
)
def test_a_message_may_only_contain_names_and_formats(template):
    with pytest.raises(ConfigError, match="cannot be filled in"):
        Rule("a", None, message=template)
    assert isinstance(render(template, {"x": object()}), str)


def test_values_are_not_filled_in_twice():
    assert render("{run}", {"run": "{loss}", "loss": 1.0}) == "{loss}"
