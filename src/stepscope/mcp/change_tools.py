"""Tools that change what people add to runs: notes, tags, silences, opinions on findings."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, TypeVar

from pydantic import Field, ValidationError

from stepscope.errors import NotFound, StepscopeError
from stepscope.mcp.answers import Answer, NextCall, listed, moment, quoted
from stepscope.mcp.parameters import (
    ChangedRun,
    FindingId,
    Note,
    RuleName,
    RunPattern,
    Step,
    argument_errors,
)
from stepscope.mcp.watched_store import similar
from stepscope.store.mark_store import Opinion  # noqa: TC001 - the schema of the tool reads it
from stepscope.views.alerts.alert_list import alerts_of
from stepscope.views.overview.run_findings import feedback_on
from stepscope.web.api.request_bodies import NewFeedback, NewMarks, NewNote, NewSilence, RequestBody
from stepscope.web.api.routes_marks import MAX_NOTES

if TYPE_CHECKING:
    from stepscope.mcp.watched_store import WatchedStore

    _Body = TypeVar("_Body", bound=RequestBody)

Tags = Annotated[list[Annotated[str, Field(max_length=64)]], Field(max_length=50)]
NS_PER_MINUTE = 60_000_000_000


class ChangeTools:
    """Makes the changes that the API of the page allows, within the same limits."""

    def __init__(self, store: WatchedStore) -> None:
        self._store = store

    def add_note(
        self, run: ChangedRun, text: Annotated[str, Field(min_length=1, max_length=10_000)], step: Step = None
    ) -> Answer:
        """Adds a note to a run, at a step or on the whole run; people see it on the page."""
        body = _checked(NewNote, text=text, step=step)
        if not text.strip():
            raise StepscopeError("The note is blank. Give a text.")
        with self._store.open() as called:
            chosen = called.run(run)
            handle = self._store.handle(chosen, called)
        state = self._store.state
        if len(state.marks.notes(chosen.id)) >= MAX_NOTES:
            raise StepscopeError(f"The run has {MAX_NOTES} notes, the maximum. Delete one on the page first.")
        note = state.marks.add_note(
            chosen.id, body.text, step=body.step, time=None, made=state.now_ns() / 1e9
        )
        done = {"run": handle, "note": note.id, "text": note.text, "step": note.step}
        return Answer(done, NextCall("explain_run", {"run": handle}, "Says how the run is doing."))

    def tag_run(self, run: ChangedRun, add: Tags = [], remove: Tags = []) -> Answer:  # noqa: B006 - never changed
        """Adds tags to a run or removes some; the list of runs can be filtered by them: `tag:best`."""
        both = [tag for tag in add if tag in remove]
        if both:
            raise StepscopeError(f"The tag {quoted(both[0])} is in both `add` and `remove`. Give it once.")
        if not all(tag.strip() for tag in add):
            raise StepscopeError("A tag is blank. Give a text.")
        with self._store.open() as called:
            chosen = called.run(run)
            handle = self._store.handle(chosen, called)
        marks = self._store.state.marks
        kept = [tag for tag in marks.tags(chosen.id) if tag not in remove]
        tags = _checked(NewMarks, tags=list(dict.fromkeys([*kept, *add]))).tags
        marks.change(chosen.id, tags=tags)
        call = NextCall("list_runs", {"filter": f"tag:{tags[-1]}"} if tags else {}, "Lists the runs.")
        return Answer({"run": handle, "tags": tags}, call)

    def silence_rule(
        self,
        rule: RuleName,
        minutes: Annotated[float, Field(gt=0, allow_inf_nan=False)],
        run: RunPattern = "*",
        reason: Annotated[str, Field(max_length=1000)] = "",
    ) -> Answer:
        """Mutes an alert rule for a while, in all runs or in some: nobody is notified."""
        body = _checked(NewSilence, rule=rule, run=run, minutes=minutes, reason=reason)
        state = self._store.state
        with self._store.open() as called:
            alerts = alerts_of(
                called.opened.runs,
                self._store.folder,
                settings=state.options.settings.alerts,
                marks=called.marks,
            )
        names = {row.name for row in alerts.rules} | {row.rule for row in (*alerts.open, *alerts.past)}
        if not any(fnmatchcase(name, body.rule) for name in names):
            raise NotFound(f"There is no rule {quoted(rule)}; {similar(rule, sorted(names))}")
        now_ns = state.now_ns()
        until_ns = now_ns + int(body.minutes * NS_PER_MINUTE)
        state.silences.silence(body.rule, body.run, now_ns=now_ns, until_ns=until_ns, reason=body.reason)
        done = {"rule": body.rule, "run": body.run, "until": moment(until_ns / 1e9)}
        undo = NextCall("end_silence", {"rule": body.rule, "run": body.run}, "Ends the silence early.")
        return Answer(done, undo)

    def end_silence(self, rule: RuleName, run: RunPattern = "*") -> Answer:
        """Ends the silences of a rule."""
        silences = self._store.state.silences
        known = silences.read().silences
        matching = [silence for silence in known if (silence.rule, silence.run) == (rule, run)]
        if not matching:
            names = [f"{quoted(silence.rule)} in {quoted(silence.run)}" for silence in known]
            others = listed(names) or "none"
            raise NotFound(f"There is no silence of {quoted(rule)} in {quoted(run)}; there are: {others}.")
        for silence in matching:
            silences.end_silence(silence.id)
        return Answer({"ended": len(matching), "rule": rule}, NextCall("list_alerts", {}, "Lists alerts."))

    def mute_finding(self, run: ChangedRun, finding: FindingId, opinion: Opinion, note: Note = "") -> Answer:
        """Marks a finding as wrong or not wanted; it is muted in all runs of the project."""
        body = _checked(NewFeedback, opinion=opinion, note=note)
        state = self._store.state
        with self._store.open() as called:
            chosen = called.run(run)
            handle = self._store.handle(chosen, called)
            feedback = feedback_on(chosen, finding, body.opinion, body.note, state.now_ns() / 1e9)
        state.marks.give_feedback(feedback)
        done = {"finding": finding, "muted_in_project": chosen.project, "opinion": opinion}
        undo = NextCall("unmute_finding", {"finding": finding, "run": handle}, "Reports it again.")
        return Answer(done, undo)

    def unmute_finding(self, run: ChangedRun, finding: FindingId) -> Answer:
        """Reports a muted finding of a run's project again."""
        marks = self._store.state.marks
        with self._store.open() as called:
            chosen = called.run(run)
            handle = self._store.handle(chosen, called)
        if not marks.withdraw_feedback(chosen.project, finding):
            known = similar(finding, [given.finding for given in marks.feedback(chosen.project)])
            project = quoted(chosen.project)
            raise NotFound(f"No finding {quoted(finding)} is muted in the project {project}; {known}")
        done = {"finding": finding, "reported_again_in_project": chosen.project}
        return Answer(done, NextCall("explain_run", {"run": handle}, "Shows the findings."))


def _checked(kind: type[_Body], **fields: object) -> _Body:
    """Returns the body that the API has for a change, which has its limits."""
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        raise StepscopeError(argument_errors(error)) from error
