"""The alerts page."""

from __future__ import annotations

from stepscope.alerts.page_rules import PageRules
from stepscope.alerts.silences import Silences
from stepscope.config.sections import Alerts
from stepscope.schema.alert import AlertDetail, Notice
from stepscope.schema.record import Event
from stepscope.views.alerts.alert_list import AlertList, alerts_of
from tests.views.made import BEGUN_S, RUN, Made, OwnMarks, as_json, at

NOW = at(200)


def page(made: Made, settings: Alerts | None = None, **marks: object) -> AlertList:
    return alerts_of(
        made.runs(), made.folder, settings=settings or Alerts(), marks=OwnMarks(**marks), now_ns=NOW
    )


def test_the_json_has_the_fields_that_the_page_reads(made: Made) -> None:
    made.process()
    made.alert("hot", value=1.0)
    page_json = as_json(page(made))
    assert " ".join(page_json) == "open past rules channels silences quiet_hours rules_trouble"
    assert " ".join(page_json["open"][0]) == (
        "id run_id run rule severity message fired resolved step rank device value threshold key quantity "
        "recent advice acknowledged told"
    )
    assert " ".join(page_json["rules"][0]) == (
        "name severity condition message enabled is_default advice origin replaces run project for_ clear "
        "cooldown remind channels resolve problem"
    )
    assert " ".join(page_json["channels"][0]) == "name kind target"


def test_open_and_past_alerts_are_listed_newest_first(made: Made) -> None:
    for number in (1, 2):
        made.process(f"run-{number}", started_ns=at(number))
        made.alert(
            "open", run=f"run-{number}", fired=10 * number, step=5, value=float(number), recent=[1.0, None]
        )
        made.alert("over", run=f"run-{number}", fired=20 * number, resolved=50)
    alert_list = page(made, names={"run-2": "mine"})
    assert [(alert.run, alert.rule, alert.value) for alert in alert_list.open] == [
        ("mine", "open", 2.0),
        ("run", "open", 1.0),
    ]
    assert [alert.fired for alert in alert_list.past] == [BEGUN_S + 40, BEGUN_S + 20]
    assert alert_list.open[0].recent == (1.0, None)


def test_deliveries_and_acknowledgement_are_shown(made: Made) -> None:
    made.process()
    fields = {"since_ns": at(9), "rank": 0, "device": ""}
    number = made.alert("hot", **fields)
    made.alert("hot", since_ns=at(5), rank=1, device="")
    detail = AlertDetail("hot", "warning", "It is hot.", at(9), rank=0)
    notice = Notice("n1", "firing", "run", RUN, "demo", "node1", at(10), (detail,))
    with made.store.transaction():
        for channel in ("mail", "slack"):
            made.store.alert_book.post(channel, notice)
        made.store.alert_book.delivered(1, at(12))
    Silences(made.folder).acknowledge(number)
    other, mine = sorted(page(made).open, key=lambda delivery: -delivery.id)
    assert [(delivery.channel, delivery.at, delivery.delivered) for delivery in mine.told] == [
        ("mail", BEGUN_S + 12, True),
        ("slack", None, False),
    ]
    assert (mine.acknowledged, other.acknowledged, other.told) == (True, False, ())


def test_rules_come_from_the_settings_and_the_defaults(made: Made) -> None:
    own = {"name": "mine", "when": "loss > 5", "severity": "critical", "advice": "Stop it."}
    again = {"name": "disk_full", "when": "disk/used_ratio > 50%"}
    rules = {rule.name: rule for rule in page(made, Alerts(rules=[own, again], disabled=["gpu_hot"])).rules}
    assert (rules["mine"].severity, rules["mine"].condition, rules["mine"].is_default) == (
        "critical",
        "loss > 5",
        False,
    )
    assert (rules["gpu_hot"].enabled, rules["gpu_hot"].is_default) == (False, True)
    assert not rules["disk_full"].is_default
    assert rules["input_bound"].enabled
    assert not any(rule.enabled for rule in page(made, Alerts(enabled=False)).rules)


def test_rules_have_their_origin_and_all_that_an_editor_needs(made: Made) -> None:
    made.process(status="running")
    said = {"name": "own", "condition": "accuracy < 0.5"}
    with made.store.transaction():
        made.store.put_event(RUN, Event("alert_rule", at(1), 0, 0, "s1", said))
    rules = PageRules(made.folder)
    rules.put(
        {"name": "slow", "when": "p50(step_seconds, 2m) > 1", "for": "90s", "channels": [], "run": "r*"}
    )
    rules.put({"name": "disk_full", "when": "disk/used_ratio > 50%", "enabled": False})
    rules.switch("gpu_hot", on=False)
    rules.switch("stalled", on=True)
    settings = Alerts(rules=[{"name": "mine", "when": "loss > 5", "remind": "1h"}], disabled=["stalled"])
    rules_by_name = {rule.name: rule for rule in page(made, settings).rules}
    origins = {name: rule.origin for name, rule in rules_by_name.items()}
    assert [origins[name] for name in ("slow", "own", "mine", "crashed")] == [
        "page",
        "training",
        "configuration",
        "usual",
    ]
    slow = rules_by_name["slow"]
    assert (slow.condition, slow.for_, slow.cooldown, slow.channels, slow.run) == (
        "p50(step_seconds, 2m) > 1",
        "90s",
        "5m",
        (),
        "r*",
    )
    assert (rules_by_name["disk_full"].origin, rules_by_name["disk_full"].replaces) == ("page", "usual")
    assert [rules_by_name[name].enabled for name in ("disk_full", "gpu_hot", "stalled", "slow")] == [
        False,
        False,
        True,
        True,
    ]
    assert (
        rules_by_name["mine"].remind,
        rules_by_name["loss_divergence"].for_,
        rules_by_name["own"].run,
    ) == ("1h", "5 points", RUN)
    assert sum(rule.name == "disk_full" for rule in page(made, settings).rules) == 1


def test_an_invalid_rule_of_the_page_is_listed_with_the_reason(made: Made) -> None:
    made.process()
    (made.folder / "rules.json").write_text('{"rules": [{"name": "bad", "when": "loss >"}]}')
    [bad] = [rule for rule in page(made).rules if rule.problem]
    assert (bad.name, bad.origin, bad.enabled) == ("bad", "page", False)
    (made.folder / "rules.json").write_text("{")
    assert "cannot be read" in page(made).rules_trouble


def test_channels_are_shown_without_their_secrets_and_a_broken_one_says_why(made: Made) -> None:
    channels = {
        "webhook": {"url": "https://example.org/hook/s3cret"},
        "pager": {"kind": "webhook"},
        "mail": {"enabled": False},
    }
    channel_rows = {channel.name: channel for channel in page(made, Alerts(channels=channels)).channels}
    assert "s3cret" not in str(channel_rows)
    assert channel_rows["webhook"].target.startswith("https://example.org")
    assert (channel_rows["pager"].kind, channel_rows["pager"].target[:14]) == ("webhook", "cannot be used")
    assert channel_rows["mail"].target == "switched off"
    assert "console" in channel_rows


def test_current_silences_and_quiet_hours_are_shown(made: Made) -> None:
    silences = Silences(made.folder)
    silences.silence("gpu_*", "*", now_ns=at(0), until_ns=at(100), reason="over")
    silences.silence("hot", RUN, now_ns=at(0), until_ns=at(300), reason="known")
    alert_list = page(made, Alerts(quiet_hours="22:00-07:00"))
    assert [
        (silence.rule, silence.run, silence.until, silence.reason) for silence in alert_list.silences
    ] == [("hot", RUN, BEGUN_S + 300, "known")]
    assert alert_list.quiet_hours == "22:00-07:00"


def test_a_store_without_alerts_is_an_empty_list(made: Made) -> None:
    made.process()
    alert_list = page(made)
    assert (alert_list.open, alert_list.past, alert_list.silences) == ((), (), ())


def test_targets_of_live_runs_are_listed_as_rules_of_these_runs(made: Made) -> None:
    made.process(end=None, facts={"targets": {"steps_per_second": 5.0}})
    made.process("over-1", facts={"targets": {"cost": 5.0}})
    [rule] = [rule for rule in page(made).rules if rule.name.startswith("target_")]
    assert (rule.name, rule.run, rule.origin) == ("target_steps_per_second", RUN, "configuration")
    assert rule.condition == "median(target/steps_per_second, 12 points) < 5"
