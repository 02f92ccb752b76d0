"""Lists alerts, tries channels, silences rules and checks rule files."""

from __future__ import annotations

import argparse
import textwrap
import time
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope.alerts.conditions.expression import unknown_metrics
from stepscope.alerts.defaults import rules_of
from stepscope.alerts.delivery.delivery import make_channel
from stepscope.alerts.page_rules import PageRules
from stepscope.alerts.rule import rules_from
from stepscope.alerts.rule_list import list_rules, written_times
from stepscope.alerts.silences import MAX_SILENCE_S, Silences
from stepscope.alerts.thresholds import threshold_rules
from stepscope.alerts.unrecorded import RULE_FIELD, sampled_keys
from stepscope.cli.checks.settings_check import alert_problems
from stepscope.cli.main import FAILED, FINE
from stepscope.cli.options.find import add_limit_argument, add_store_argument, suggestion
from stepscope.cli.output import text
from stepscope.cli.output.table import Column, table
from stepscope.config.find import settings_for
from stepscope.config.load import load
from stepscope.errors import NotFound
from stepscope.reading import default_folder, open_store
from stepscope.schema.alert import AlertDetail, Notice
from stepscope.schema.notation import DURATIONS, number_in
from stepscope.schema.run import LIVE
from stepscope.views.alerts.alert_list import rules_of_live_runs
from stepscope.views.formatting import duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from stepscope.alerts.rule_list import ListedRule
    from stepscope.alerts.silences import Silence
    from stepscope.config.sections import Alerts
    from stepscope.reading import Run

DEFAULT_HISTORY = 50
MAX_RUNS = 20
"""Newest runs whose logged keys count as known."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares list, rules, history, test, silence, unsilence, ack and check."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    listing = actions.add_parser("list", help="Alerts that fire now, silences, and the active rules.")
    listing.add_argument("--rules", action="store_true", help="list the rules instead")
    _add_reading(listing, _list)

    rules = actions.add_parser("rules", help="All rules, where each comes from, and whether it is on.")
    _add_reading(rules, _list_rules)

    history = actions.add_parser("history", help="Past alerts, and notices that were not delivered.")
    history.add_argument("run", nargs="?", metavar="RUN", help="name or id of a run (default: all)")
    add_limit_argument(history, f"show the newest N (default: {DEFAULT_HISTORY})")
    _add_reading(history, _history)

    test = actions.add_parser("test", help="Send a test notice by a channel of the settings.")
    test.add_argument("channel", metavar="CHANNEL", help="name of the channel in the settings")
    test.set_defaults(act=_test)

    silence = actions.add_parser("silence", help="Mute a rule for a while.")
    silence.add_argument("rule", metavar="RULE", help="name of a rule, or a pattern such as 'gpu_*'")
    silence.add_argument("--run", default="*", metavar="RUN", help="name, id or pattern (default: all runs)")
    silence.add_argument(
        "--for",
        dest="seconds",
        type=_duration,
        default=3600.0,
        metavar="TIME",
        help="how long, such as 1h",
    )
    silence.add_argument("--reason", default="", help="why, for others to read")
    add_store_argument(silence)
    silence.set_defaults(act=_silence)

    end = actions.add_parser("unsilence", help="End a silence.")
    end.add_argument("id", metavar="ID", help="id of the silence, as `alert list` shows it")
    add_store_argument(end)
    end.set_defaults(act=_unsilence)

    acknowledge = actions.add_parser("ack", help="Acknowledge an alert: no more reminders.")
    acknowledge.add_argument("alert", type=int, metavar="NUMBER", help="number of the alert")
    add_store_argument(acknowledge)
    acknowledge.set_defaults(act=_acknowledge)

    check = actions.add_parser("check", help="Check the alert rules of a settings file.")
    check.add_argument("file", metavar="RULES.yaml", help="settings file with a section `alerts`")
    add_store_argument(check)
    check.set_defaults(act=_check)


def run(options: argparse.Namespace) -> int:
    """Runs the chosen action and returns its exit code."""
    return int(options.act(options))


def _add_reading(parser: argparse.ArgumentParser, act: Any) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_store_argument(parser)
    parser.set_defaults(act=act)


def _list(options: argparse.Namespace) -> int:
    if options.rules:
        return _list_rules(options)
    store = open_store(options.store)
    firing = [alert for alert in _alerts(store.runs()) if alert["resolved_ns"] is None]
    unrecorded = _unrecorded(store.runs())
    now_ns = time.time_ns()
    silences = [silence for silence in Silences(store.folder).read().silences if silence.until_ns > now_ns]
    if options.json:
        document = {"alerts": firing, "silences": list(map(vars, silences)), "unrecorded": unrecorded}
        text.emit([text.to_json(document)])
        return FINE
    if not firing:
        text.say("No alerts are firing.")
    for notice in unrecorded:
        text.say(text.safe(f"{notice['run']}: {notice['text']}"))
    text.emit([*_lines(firing), *map(_silence_line, silences)])
    return FINE


def _unrecorded(runs: Iterable[Run]) -> list[dict[str, Any]]:
    """The rules of live runs that use keys which are not recorded."""
    return [
        {"run": run.name, "run_id": run.id, "rule": event.fields[RULE_FIELD], "text": event.fields["text"]}
        for run in runs
        if run.status in LIVE
        for event in run.own_events("notice")
        if RULE_FIELD in event.fields
    ]


def _list_rules(options: argparse.Namespace) -> int:
    page_rules = PageRules(_folder(options)).read()
    settings = settings_for().alerts
    rules = list_rules(settings, page_rules, _rules_of_live_runs(options, settings))
    if page_rules.trouble:
        text.say(text.safe(page_rules.trouble))
    for name, why in page_rules.problems.items():
        text.say(text.safe(f"The rule {name!r} of the page is ignored: {why.partition(chr(10))[0]}"))
    if options.json:
        described = [
            {
                "name": listed.rule.name,
                "severity": listed.rule.severity,
                "when": str(listed.rule.condition),
                "advice": listed.rule.advice,
                "origin": listed.origin,
                "enabled": listed.rule.enabled,
                "run": listed.run,
                "project": listed.project,
                **written_times(listed.rule),
            }
            for listed in rules
        ]
        text.emit([text.to_json(described)])
        return FINE
    columns = [Column("RULE"), Column("FROM"), Column("SEVERITY"), Column("WHEN", elastic=True)]
    cells = [
        [
            text.safe(listed.rule.name),
            listed.origin,
            listed.rule.severity if listed.rule.enabled else "off",
            text.safe(_condition_text(listed)),
        ]
        for listed in rules
    ]
    text.emit(table(columns, cells, text.screen_width()))
    return FINE


def _condition_text(listed: ListedRule) -> str:
    condition = listed.rule.condition
    text_of_condition = "evaluated by the training itself" if condition is None else str(condition)
    scope = [
        f"in {listed.run}" if listed.run else "",
        f"in project {listed.project}" if listed.project else "",
    ]
    return " ".join([text_of_condition, *filter(None, scope)])


def _rules_of_live_runs(options: argparse.Namespace, settings: Alerts) -> list[ListedRule]:
    try:
        return rules_of_live_runs(open_store(options.store).runs(), settings)
    except NotFound:
        return []


def _history(options: argparse.Namespace) -> int:
    store = open_store(options.store)
    runs = store.runs() if options.run is None else [store.run(options.run)]
    alerts = _alerts(runs)
    shown = alerts[max(len(alerts) - (DEFAULT_HISTORY if options.limit is None else options.limit), 0) :]
    notices = [notice for run in runs for notice in run.notices()]
    if options.json:
        text.emit([text.to_json({"alerts": shown, "notices": notices})])
        return FINE
    if not alerts:
        text.say("No alert has fired.")
    # Notices of alerts that are not shown are not shown either.
    undelivered = [
        notice
        for notice in notices
        if shown and notice["at_ns"] >= shown[0]["fired_ns"] and notice["sent_ns"] is None
    ]
    text.emit([*_lines(shown), *map(_undelivered_line, undelivered)])
    return FINE


def _alerts(runs: Iterable[Run]) -> list[dict[str, Any]]:
    alerts = [{"run": run.name, "run_id": run.id, **alert} for run in runs for alert in run.alerts()]
    return sorted(alerts, key=lambda alert: alert["fired_ns"])


def _lines(alerts: list[dict[str, Any]]) -> list[str]:
    """A table row for each alert, with its message below."""
    if not alerts:
        return []
    columns = [
        Column("NO", right=True),
        Column("FIRED"),
        Column("FOR", right=True),
        Column("SEVERITY"),
        Column("RULE"),
        Column("RUN", elastic=True),
    ]
    width = text.screen_width()
    heading, *rows = table(columns, [_cells(alert) for alert in alerts], width)
    lines = [heading]
    for row, alert in zip(rows, alerts, strict=True):
        lines += [row, *(f"    {line}" for line in textwrap.wrap(text.safe(alert["message"]), width - 4))]
    return lines


def _cells(alert: dict[str, Any]) -> list[str]:
    ended_ns = alert["resolved_ns"]
    lasted = "firing" if ended_ns is None else duration((ended_ns - alert["fired_ns"]) / 1e9)
    return [
        str(alert["id"]),
        text.moment(alert["fired_ns"] / 1e9),
        lasted,
        alert["severity"],
        text.safe(alert["rule"]),
        text.safe(alert["run"]),
    ]


def _silence_line(silence: Silence) -> str:
    until = text.moment(silence.until_ns / 1e9)
    line = f"silence {silence.id}: {silence.rule} in {silence.run} until {until} {silence.reason}"
    return text.safe(line).rstrip()


def _undelivered_line(notice: dict[str, Any]) -> str:
    state = "given up" if notice["given_up_ns"] else f"not delivered yet, {notice['attempts']} attempts"
    rules = ", ".join(dict.fromkeys(alert["rule"] for alert in notice["alerts"]))
    subject = f"{text.moment(notice['at_ns'] / 1e9)} {rules} ({notice['kind']}) of {notice['run']}"
    return text.safe(f"{subject} by {notice['channel']}: {state}: {notice['trouble'] or 'not tried yet'}")


def _test(options: argparse.Namespace) -> int:
    alerts = settings_for().alerts
    names = list({**alerts.channels, "console": {}})
    if options.channel not in names:
        raise NotFound(
            f"The settings have no channel {options.channel!r} under alerts.channels; "
            f"{suggestion(options.channel, names)}"
        )
    channel = make_channel(options.channel, alerts.channels.get(options.channel, {}))
    now_ns = time.time_ns()
    detail = AlertDetail("test", "info", "This is a test of stepscope: nothing is wrong.", now_ns)
    notice = Notice(f"test-{now_ns}", "test", "test", "test", "", "", now_ns, (detail,))
    channel.send(notice)
    text.say(f"Sent to {channel.target}.")
    return FINE


def _silence(options: argparse.Namespace) -> int:
    now_ns = time.time_ns()
    until_ns = now_ns + int(options.seconds * 1e9)
    silences = Silences(_folder(options))
    silence = silences.silence(
        options.rule, options.run, now_ns=now_ns, until_ns=until_ns, reason=options.reason
    )
    where = "" if silence.run == "*" else f" in runs that match {silence.run}"
    until = text.moment(until_ns / 1e9)
    text.say(text.safe(f"Silence {silence.id}: {silence.rule}{where} is muted until {until}."))
    for doubt in _silence_doubts(options):
        hint = f"The silence is active anyway; end it with: stepscope alert unsilence {silence.id}"
        text.say(text.safe(f"{doubt} {hint}"))
    return FINE


def _silence_doubts(options: argparse.Namespace) -> Iterator[str]:
    """A warning for each name that matches no rule or no run: it may be mistyped."""
    settings = settings_for().alerts
    try:
        runs = open_store(options.store).runs()
    except NotFound:
        runs = []
    page_rules = PageRules(_folder(options)).read()
    current_rules = list_rules(settings, page_rules, _rules_of_live_runs(options, settings))
    rules = {listed.rule.name for listed in current_rules} | {alert["rule"] for alert in _alerts(runs)}
    if not any(fnmatchcase(name, options.rule) for name in rules):
        yield f"There is no rule {options.rule!r}; {suggestion(options.rule, sorted(rules))}"
    names = [name for run in reversed(runs) for name in (run.name, run.id)]
    if not any(fnmatchcase(name, options.run) for name in names) and options.run != "*":
        yield f"There is no run {options.run!r} yet; {suggestion(options.run, names[::2])}"


def _unsilence(options: argparse.Namespace) -> int:
    if not Silences(_folder(options)).end_silence(options.id):
        raise NotFound(f"There is no silence {options.id!r}. List them with: stepscope alert list")
    return FINE


def _acknowledge(options: argparse.Namespace) -> int:
    store = open_store(options.store)
    if all(alert["id"] != options.alert for alert in _alerts(store.runs())):
        raise NotFound(f"There is no alert {options.alert}. List them with: stepscope alert history")
    Silences(store.folder).acknowledge(options.alert)
    return FINE


def _check(options: argparse.Namespace) -> int:
    loaded = load(options.file, environment={})
    problems = alert_problems(loaded)
    for problem in problems:
        text.say(str(problem))
    if problems:
        return FAILED
    alerts = loaded.settings.alerts
    rules = rules_of(alerts)
    for rule in (*rules_from(alerts.rules), *threshold_rules(alerts.thresholds)):
        for doubt in (
            unknown_metrics(rule.condition, _known_keys(options)) if rule.condition is not None else ()
        ):
            text.say(f"{rule.name}: {doubt}")
    own = len(alerts.rules) + len(alerts.thresholds)
    own_rules = "1 rule" if own == 1 else f"{own} rules"
    text.emit([f"{options.file}: no problems, {own_rules} of its own and {len(rules) - own} default rules"])
    return FINE


def _known_keys(options: argparse.Namespace) -> set[str]:
    """Keys that samplers can read, and keys that the newest runs have logged."""
    known = sampled_keys()
    try:
        newest = open_store(options.store).runs()[-MAX_RUNS:]
    except NotFound:
        return known
    return known.union(info.key for run in newest for info in run.keys())


def _folder(options: argparse.Namespace) -> Path:
    return Path(options.store) if options.store else default_folder()


def _duration(argument: str) -> float:
    try:
        seconds = number_in(argument.strip(), DURATIONS)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= MAX_SILENCE_S:
        message = f"{argument!r} is not a duration of at most a year; give one such as 30m, 2h or 1d."
        raise argparse.ArgumentTypeError(message)
    return seconds
