"""Tools on what happened: the last lines that a run printed, why it failed, and alerts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from stepscope.mcp.answers import (
    MAX_BYTES,
    MORE_DETAIL,
    Answer,
    NextCall,
    content_of,
    moment,
    one_line,
    quoted,
    rounded,
    size_of,
)
from stepscope.mcp.parameters import AlertsOfRun, Detail, Limit, RunName, Search  # noqa: TC001 - the schema of the tools reads it
from stepscope.mcp.watched_store import handle_of_id
from stepscope.views.alerts.alert_list import alerts_of
from stepscope.views.logs.console_lines import console_of
from stepscope.views.logs.run_failure import failure_of

if TYPE_CHECKING:
    from stepscope.mcp.watched_store import WatchedStore
    from stepscope.views.alerts.alert_rows import AlertRow
    from stepscope.views.logs.console_lines import Console, Failure
    from stepscope.views.logs.log_files import ConsoleLine

LINES = 40
"""How many lines an answer may have where no number is given."""
MAX_LINE = 300
MAX_REASON = 300
TRACEBACK_LINES = 12
PAST_ALERTS = 5
LIST_BYTES = 20
"""What an answer needs for a list, beside its items."""


class EventTools:
    """Answers with lines and alerts."""

    def __init__(self, store: WatchedStore) -> None:
        self._store = store

    def read_logs(self, run: RunName = "", search: Search = "", limit: Limit = None) -> Answer:
        """Shows why a run failed, and the newest lines that it printed or logged."""
        detail: Detail = "short" if limit is None else "full"
        with self._store.open() as called:
            chosen = called.run(run)
            handle = self._store.handle(chosen, called)
            failure = failure_of(chosen)
            console = console_of(chosen, search, limit or LINES)
        body = {
            "run": handle,
            "failure": None if failure is None else failure_entry(failure, TRACEBACK_LINES),
            "lines": [],
            "matching_lines": console.total if search and console.captured else None,
            "nothing_to_show": _no_match(console, search),
            "earlier_lines_not_shown": console.total or None,
            "not_captured": console.why_not,
            "how_to_capture": [f"{way.text} {way.code}" for way in console.how],
            "file": console.file,
        }
        call = NextCall("explain_run", {"run": handle}, "Says how the run is doing.")
        if failure is not None:
            call = NextCall("recommend_changes", {"run": handle}, "Lists what to change.")
        answer = Answer(body, call, detail, "limit=1000")
        rest = size_of(content_of(answer)) + LIST_BYTES
        lines = _newest_lines(console.lines, MAX_BYTES[detail] - rest)
        return replace(
            answer,
            body={**body, "lines": lines, "earlier_lines_not_shown": (console.total - len(lines)) or None},
        )

    def list_alerts(self, run: AlertsOfRun = "", detail: Detail = "short") -> Answer:
        """Lists firing and past alerts of one run or of all, and silences; in full also all rules."""
        with self._store.open() as called:
            state = self._store.state
            alerts = alerts_of(
                called.opened.runs,
                self._store.folder,
                settings=state.options.settings.alerts,
                marks=called.marks,
                now_ns=state.now_ns(),
            )
            wanted = called.run(run).id if run else None
        firing = [_alert(row) for row in alerts.open if wanted in (None, row.run_id)]
        past = [_alert(row) for row in alerts.past if wanted in (None, row.run_id)]
        body = {
            "firing": firing,
            "none_firing": not firing or None,
            "past": past[:PAST_ALERTS] if detail == "short" else past,
            "past_in_all": len(past),
            "silences": [
                {"rule": row.rule, "run": row.run, "until": moment(row.until), "reason": row.reason}
                for row in alerts.silences
            ],
            "rules": [
                {"rule": row.name, "when": row.condition, "severity": row.severity, "enabled": row.enabled}
                for row in alerts.rules
            ]
            if detail == "full"
            else [],
        }
        newest = next((alert["run"] for alert in (*firing, *past)), "")
        arguments = {"run": newest} if newest else {}
        why = "Says why." if newest else "Says how the newest run is doing."
        return Answer(body, NextCall("explain_run", arguments, why), detail, MORE_DETAIL)


def _no_match(console: Console, search: str) -> str | None:
    if not console.captured or console.total or console.why_not:
        return None
    return f"No line contains {quoted(search)}."


def failure_entry(failure: Failure, most_lines: int) -> dict[str, Any]:
    """Returns why a run failed, with the end of its traceback; without the lines that only underline code."""
    lines = [line for line in (failure.traceback or "").splitlines() if line.strip(" ^~")]
    return {
        "reason": one_line(failure.reason)[:MAX_REASON],
        "traceback_end": [one_line(line)[:MAX_LINE] for line in lines[-most_lines:]],
        "hint": failure.hint,
    }


def _newest_lines(lines: tuple[ConsoleLine, ...], most_bytes: int) -> list[str]:
    """Returns the newest lines that fit, oldest first, each with its number and step."""
    shown: list[str] = []
    left = most_bytes
    for line in reversed(lines):
        step = "" if line.step is None else f" (step {line.step})"
        text = f"{line.number}{step}: {one_line(line.text)[:MAX_LINE]}"
        left -= size_of(text) + 1
        if left < 0:
            break
        shown.append(text)
    return shown[::-1]


def _alert(row: AlertRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "rule": row.rule,
        "severity": row.severity,
        "run": handle_of_id(row.run_id),
        "message": row.message,
        "advice": row.advice,
        "fired": moment(row.fired),
        "resolved": moment(row.resolved),
        "step": row.step,
        "value": rounded(row.value),
        "threshold": rounded(row.threshold),
        "metric": row.key,
        "acknowledged": row.acknowledged or None,
    }
