"""Lists alerts, tries channels, silences rules and checks rule files."""

from __future__ import annotations

import argparse
import re
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
from stepscope.alerts.silences import Silences
from stepscope.alerts.thresholds import threshold_rules
from stepscope.alerts.unrecorded import RULE_FIELD, sampled_keys
from stepscope.cli.checks.settings_check import alert_problems
from stepscope.cli.find import add_limit_argument, add_store_argument, near
from stepscope.cli.main import FAILED, FINE
from stepscope.cli.output import text
from stepscope.cli.output.table import Column, table
from stepscope.config.find import settings_for
from stepscope.config.load import load
from stepscope.errors import NotFound
from stepscope.reading import default_folder, open_store
from stepscope.schema.alert import AlertDetail, Notice
from stepscope.schema.run import LIVE
from stepscope.views.alerts.alert_list import rules_of_live_runs
from stepscope.views.formatting import duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from stepscope.alerts.rule_list import ListedRule
    from stepscope.alerts.silences import Silence
    from stepscope.config.sections import Alerts
    from stepscope.reading import Run

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
USUAL_HISTORY = 50
NEWEST = 20
"""So many runs are asked what they have logged."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares list, rules, history, test, silence, unsilence, ack and check."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    listing = actions.add_parser("list", help="Alerts that fire now, silences, and the rules that hold here.")
    listing.add_argument("--rules", action="store_true", help="list the rules instead")
    _add_reading(listing, _list)

    rules = actions.add_parser("rules", help="All rules, where each comes from, and whether it is judged.")
    _add_reading(rules, _list_rules)

    history = actions.add_parser("history", help="Alerts of the past, and who was told of them.")
    history.add_argument("run", nargs="?", metavar="RUN", help="name or id of a run (default: all)")
    add_limit_argument(history, f"show the newest N (default: {USUAL_HISTORY})")
    _add_reading(history, _history)

    test = actions.add_parser("test", help="Send a test notice by a channel of the settings, now.")
    test.add_argument("channel", metavar="CHANNEL", help="name of the channel in the settings")
    test.set_defaults(act=_test)

    silence = actions.add_parser("silence", help="Have nobody told of a rule for a while.")
    silence.add_argument("rule", metavar="RULE", help="name of a rule, or a pattern such as 'gpu_*'")
    silence.add_argument("--run", default="*", metavar="RUN", help="name, id or pattern (default: all runs)")
    silence.add_argument("--for", dest="seconds", type=_duration, default=3600.0, metavar="TIME", help="1h")
    silence.add_argument("--reason", default="", help="why, for others to read")
    add_store_argument(silence)
    silence.set_defaults(act=_silence)

    end = actions.add_parser("unsilence", help="End a silence.")
    end.add_argument("id", metavar="ID", help="id of the silence, as `alert list` shows it")
    add_store_argument(end)
    end.set_defaults(act=_unsilence)

    acknowledge = actions.add_parser("ack", help="Say that you look after an alert: no more reminders.")
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
    firing = [one for one in _alerts(store.runs()) if one["resolved_ns"] is None]
    unrecorded = _unrecorded(store.runs())
    now_ns = time.time_ns()
    silences = [one for one in Silences(store.folder).read().silences if one.until_ns > now_ns]
    if options.json:
        told = {"alerts": firing, "silences": [vars(one) for one in silences], "unrecorded": unrecorded}
        text.emit([text.to_json(told)])
        return FINE
    if not firing:
        text.say("No alert fires.")
    for one in unrecorded:
        text.say(text.safe(f"{one['run']}: {one['text']}"))
    text.emit([*_lines(firing), *(_silence_line(one) for one in silences)])
    return FINE


def _unrecorded(runs: Iterable[Run]) -> list[dict[str, Any]]:
    """The rules of live runs that look at what is not recorded."""
    return [
        {"run": run.name, "run_id": run.id, "rule": event.fields[RULE_FIELD], "text": event.fields["text"]}
        for run in runs
        if run.status in LIVE
        for event in run.own_events("notice")
        if RULE_FIELD in event.fields
    ]


def _list_rules(options: argparse.Namespace) -> int:
    made = PageRules(_folder(options)).read()
    settings = settings_for().alerts
    rules = list_rules(settings, made, _of_live_runs(options, settings))
    if made.trouble:
        text.say(text.safe(made.trouble))
    for name, why in made.problems.items():
        text.say(text.safe(f"The rule {name!r} of the page is left out: {why.partition(chr(10))[0]}"))
    if options.json:
        described = [
            {
                "name": one.rule.name,
                "severity": one.rule.severity,
                "when": str(one.rule.condition),
                "advice": one.rule.advice,
                "origin": one.origin,
                "enabled": one.rule.enabled,
                "run": one.run,
                "project": one.project,
                **written_times(one.rule),
            }
            for one in rules
        ]
        text.emit([text.to_json(described)])
        return FINE
    columns = [Column("RULE"), Column("FROM"), Column("SEVERITY"), Column("WHEN", elastic=True)]
    cells = [
        [
            text.safe(one.rule.name),
            one.origin,
            one.rule.severity if one.rule.enabled else "off",
            text.safe(_judged_by(one)),
        ]
        for one in rules
    ]
    text.emit(table(columns, cells, text.screen_width()))
    return FINE


def _judged_by(one: ListedRule) -> str:
    condition = "judged by the training itself" if one.rule.condition is None else str(one.rule.condition)
    scope = [f"in {one.run}" if one.run else "", f"in project {one.project}" if one.project else ""]
    return " ".join([condition, *filter(None, scope)])


def _of_live_runs(options: argparse.Namespace, settings: Alerts) -> list[ListedRule]:
    try:
        return rules_of_live_runs(open_store(options.store).runs(), settings)
    except NotFound:
        return []


def _history(options: argparse.Namespace) -> int:
    store = open_store(options.store)
    runs = store.runs() if options.run is None else [store.run(options.run)]
    every = _alerts(runs)
    found = every[max(len(every) - (USUAL_HISTORY if options.limit is None else options.limit), 0) :]
    notices = [one for run in runs for one in run.notices()]
    if options.json:
        text.emit([text.to_json({"alerts": found, "notices": notices})])
        return FINE
    if not every:
        text.say("No alert has fired.")
    # Of alerts that are not shown, nothing else is either.
    of_shown = [one for one in notices if found and one["at_ns"] >= found[0]["fired_ns"]]
    text.emit([*_lines(found), *(_trouble_line(one) for one in of_shown if one["sent_ns"] is None)])
    return FINE


def _alerts(runs: Iterable[Run]) -> list[dict[str, Any]]:
    found = [{"run": run.name, "run_id": run.id, **alert} for run in runs for alert in run.alerts()]
    return sorted(found, key=lambda one: one["fired_ns"])


def _lines(alerts: list[dict[str, Any]]) -> list[str]:
    """A line of figures for each, and under it what was told."""
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
    heading, *rows = table(columns, [_cells(one) for one in alerts], width)
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


def _silence_line(one: Silence) -> str:
    until = text.moment(one.until_ns / 1e9)
    return text.safe(f"silence {one.id}: {one.rule} in {one.run} until {until} {one.reason}").rstrip()


def _trouble_line(notice: dict[str, Any]) -> str:
    state = "given up" if notice["given_up_ns"] else f"not delivered yet, {notice['attempts']} attempts"
    rules = ", ".join(dict.fromkeys(alert["rule"] for alert in notice["alerts"]))
    said = f"{text.moment(notice['at_ns'] / 1e9)} {rules} ({notice['kind']}) of {notice['run']}"
    return text.safe(f"{said} by {notice['channel']}: {state}: {notice['trouble'] or 'not tried yet'}")


def _test(options: argparse.Namespace) -> int:
    alerts = settings_for().alerts
    names = list({**alerts.channels, "console": {}})
    if options.channel not in names:
        raise NotFound(
            f"The settings have no channel {options.channel!r} under alerts.channels; "
            f"{near(options.channel, names)}"
        )
    channel = make_channel(options.channel, alerts.channels.get(options.channel, {}))
    now_ns = time.time_ns()
    told = AlertDetail("test", "info", "This is a test of stepscope: nothing is wrong.", now_ns)
    notice = Notice(f"test-{now_ns}", "test", "test", "test", "", "", now_ns, (told,))
    channel.send(notice)
    text.say(f"Sent to {channel.target}.")
    return FINE


def _silence(options: argparse.Namespace) -> int:
    now_ns = time.time_ns()
    until_ns = now_ns + int(options.seconds * 1e9)
    silences = Silences(_folder(options))
    made = silences.silence(
        options.rule, options.run, now_ns=now_ns, until_ns=until_ns, reason=options.reason
    )
    where = "" if made.run == "*" else f" in runs that match {made.run}"
    until = text.moment(until_ns / 1e9)
    text.say(text.safe(f"Silence {made.id}: nobody is told of {made.rule}{where} until {until}."))
    for doubt in _silence_doubts(options):
        text.say(
            text.safe(
                f"{doubt} The silence holds all the same; end it with: stepscope alert unsilence {made.id}"
            )
        )
    return FINE


def _silence_doubts(options: argparse.Namespace) -> Iterator[str]:
    """A sentence where no rule, or no run, is of the name that was given: it may be mistyped."""
    settings = settings_for().alerts
    try:
        runs = open_store(options.store).runs()
    except NotFound:
        runs = []
    listed = list_rules(settings, PageRules(_folder(options)).read(), _of_live_runs(options, settings))
    rules = {one.rule.name for one in listed} | {one["rule"] for one in _alerts(runs)}
    if not any(fnmatchcase(name, options.rule) for name in rules):
        yield f"There is no rule {options.rule!r}; {near(options.rule, sorted(rules))}"
    names = [name for run in reversed(runs) for name in (run.name, run.id)]
    if not any(fnmatchcase(name, options.run) for name in names) and options.run != "*":
        yield f"There is no run {options.run!r} yet; {near(options.run, names[::2])}"


def _unsilence(options: argparse.Namespace) -> int:
    if not Silences(_folder(options)).end_silence(options.id):
        raise NotFound(f"There is no silence {options.id!r}. List them with: stepscope alert list")
    return FINE


def _acknowledge(options: argparse.Namespace) -> int:
    store = open_store(options.store)
    if all(one["id"] != options.alert for one in _alerts(store.runs())):
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
    text.emit([f"{options.file}: fine, {own_rules} of its own and {len(rules) - own} usual ones"])
    return FINE


def _known_keys(options: argparse.Namespace) -> set[str]:
    """What samplers can read, and what the newest runs of the store have logged."""
    known = sampled_keys()
    try:
        newest = open_store(options.store).runs()[-NEWEST:]
    except NotFound:
        return known
    return known.union(info.key for run in newest for info in run.keys())


def _folder(options: argparse.Namespace) -> Path:
    return Path(options.store) if options.store else default_folder()


def _duration(given: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd])", given.strip())
    if found is None:
        raise argparse.ArgumentTypeError(f"{given!r} is no time; give one such as 30m, 2h or 1d.")
    return float(found[1]) * UNITS[found[2]]
