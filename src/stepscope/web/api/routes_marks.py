"""Routes that change what people add: names, tags, notes, opinions, layouts; and one to start a demo run."""

from __future__ import annotations

import json
from dataclasses import dataclass

from fastapi import APIRouter, Response
from fastapi.exceptions import HTTPException

from stepscope.errors import NotFound
from stepscope.views.overview.run_findings import feedback_on
from stepscope.views.runs.marks import Feedback, Note
from stepscope.views.runs.run_rows import RunRow
from stepscope.web.api.openapi import answer
from stepscope.web.api.parameters import DONE, FindingId, NoteId, PageName, RunId, StateOf
from stepscope.web.api.request_bodies import Layout, NewFeedback, NewMarks, NewNote
from stepscope.web.api.responses import json_response

router = APIRouter(tags=["marks"])

MAX_LAYOUT_BYTES = 64 * 1024
MAX_NOTES = 1000


@dataclass(frozen=True)
class Started:
    """The run that was started."""

    run: str


@router.put("/runs/{run_id}/marks", response_model=answer(RunRow))
def change_marks(state: StateOf, run_id: RunId, body: NewMarks) -> Response:
    """Changes name, tags, colour, archived flag or muted findings of a run; omitted fields stay."""
    with state.readers.open() as opened:
        run = opened.run(run_id)
        changes = {name: getattr(body, name) for name in body.model_fields_set}
        if "tags" in changes:
            changes["tags"] = list(dict.fromkeys(changes["tags"]))
        state.marks.change(run.id, **changes)
        return json_response(state.row(run))


@router.put("/runs/{run_id}/feedback/{finding_id}", response_model=answer(Feedback))
def give_feedback(state: StateOf, run_id: RunId, finding_id: FindingId, body: NewFeedback) -> Response:
    """Saves that a finding is wrong or not wanted; it is muted in all runs of the project."""
    with state.readers.open() as opened:
        run = opened.run(run_id)
        feedback = feedback_on(run, finding_id, body.opinion, body.note, state.now_ns() / 1e9)
    state.marks.give_feedback(feedback)
    return json_response(feedback)


@router.delete(
    "/runs/{run_id}/feedback/{finding_id}", status_code=204, response_class=Response, responses=DONE
)
def withdraw_feedback(state: StateOf, run_id: RunId, finding_id: FindingId) -> Response:
    """Deletes an opinion on a finding, which is reported again."""
    with state.readers.open() as opened:
        run = opened.run(run_id)
    if not state.marks.withdraw_feedback(run.project, finding_id):
        raise NotFound(f"The project {run.project!r} has no feedback on {finding_id!r}.")
    return Response(status_code=204)


@router.post("/runs/{run_id}/notes", response_model=answer(Note))
def add_note(state: StateOf, run_id: RunId, body: NewNote) -> Response:
    """Adds a note at a step, at a time, or on the whole run."""
    with state.readers.open() as opened:
        run = opened.run(run_id)
    if len(state.marks.notes(run.id)) >= MAX_NOTES:
        raise HTTPException(400, f"The run has {MAX_NOTES} notes, the maximum. Delete one first.")
    made = state.now_ns() / 1e9
    return json_response(state.marks.add_note(run.id, body.text, step=body.step, time=body.time, made=made))


@router.delete("/runs/{run_id}/notes/{note_id}", status_code=204, response_class=Response, responses=DONE)
def remove_note(state: StateOf, run_id: RunId, note_id: NoteId) -> Response:
    """Deletes a note."""
    with state.readers.open() as opened:
        run = opened.run(run_id)
    if not state.marks.remove_note(run.id, note_id):
        raise NotFound(f"The run {run.name!r} has no note {note_id}.")
    return Response(status_code=204)


@router.get("/layouts/{page}", response_model=Layout)
def layout(state: StateOf, page: PageName) -> Response:
    """The saved layout of a page; an empty object where there is none."""
    return json_response(state.marks.layout(page))


@router.put("/layouts/{page}", response_model=Layout)
def change_layout(state: StateOf, page: PageName, body: Layout) -> Response:
    """Saves the layout of a page: any JSON object of at most 64 kB."""
    size = len(json.dumps(body).encode())
    if size > MAX_LAYOUT_BYTES:
        raise HTTPException(413, f"The layout has {size} bytes; the maximum is {MAX_LAYOUT_BYTES}.")
    state.marks.set_layout(page, body)
    return json_response(body)


@router.post("/demo", response_model=answer(Started))
def play_demo(state: StateOf) -> Response:
    """Starts a demo run, if the server may write to the store folder."""
    return json_response(Started(state.demo.play()))
