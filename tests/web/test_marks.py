"""What people add to runs is saved in its own private file, and shown at once."""

from __future__ import annotations

import os
import sqlite3
import stat

import pytest

from stepscope.errors import StoreError
from stepscope.store.mark_store import Feedback, Mark
from stepscope.store.open import open_marks
from stepscope.store.sqlite import sqlite_marks
from stepscope.store.sqlite.sqlite_marks import MIGRATIONS
from tests.web.asking import API, RUN, WAITS, app_of, ask, error_of, get

MARKS = f"{API}/runs/{RUN}/marks"
NOTES = f"{API}/runs/{RUN}/notes"


def test_names_tags_colours_and_mutes_are_saved_and_omitted_fields_stay(app, folder) -> None:
    first = ask(
        app, MARKS, "PUT", json={"name": "Baseline", "tags": ["b", "a", "b"], "colour": "#0072B2"}
    ).json()
    assert (first["name"], first["tags"], first["colour"]) == ("Baseline", ["b", "a"], "#0072B2")
    second = ask(app, MARKS, "PUT", json={"muted": ["input.exposed_wait"], "colour": None}).json()
    assert (second["name"], second["tags"], second["colour"]) == ("Baseline", ["b", "a"], None)
    again = app_of(folder)
    assert get(again, "/runs")["runs"][0]["name"] == "Baseline"
    assert get(again, "/runs")["tags"] == ["a", "b"]
    assert ask(again, MARKS, "PUT", json={"name": None}).json()["name"] == "mnist"


def test_what_another_process_changes_is_seen_at_once(folder) -> None:
    server, command = open_marks(folder), open_marks(folder)
    assert server.feedback("demo") == ()
    changes = server.changes
    given = Feedback("demo", "conv.spike", "wrong", RUN, "The loss jumped.", "", 1.0)
    command.give_feedback(given)
    assert server.changes > changes
    assert server.feedback("demo") == (given,)
    assert server.muted(RUN, "demo") == {"conv.spike"}
    command.withdraw_feedback("demo", "conv.spike")
    assert server.muted(RUN, "demo") == frozenset()
    changes = server.changes
    assert server.changes == changes
    command.change(RUN, tags=["baseline"])
    assert server.changes > changes
    assert server.tags(RUN) == ("baseline",)
    server.close()
    command.close()


def test_a_change_during_a_read_is_not_forgotten(folder, monkeypatch) -> None:
    marks = open_marks(folder)
    marks.change(RUN, tags=["old"])
    read = sqlite_marks._mark

    def read_late(*row: object) -> Mark:
        monkeypatch.setattr(sqlite_marks, "_mark", read)
        marks.change(RUN, tags=["new"])
        return read(*row)

    monkeypatch.setattr(sqlite_marks, "_mark", read_late)
    marks.tags(RUN)
    assert marks.tags(RUN) == ("new",)
    marks.close()


def test_notes_are_added_listed_and_taken_away(app) -> None:
    made = ask(app, NOTES, "POST", json={"step": 7, "text": "<b>odd</b> here"}).json()
    assert (made["step"], made["time"], made["text"]) == (7, None, "<b>odd</b> here")
    ask(app, NOTES, "POST", json={"time": 1.76e9, "text": "then"})
    assert [note["text"] for note in get(app, f"/runs/{RUN}")["notes"]] == ["<b>odd</b> here", "then"]
    assert ask(app, f"{NOTES}/{made['id']}", "DELETE").status_code == 204
    assert ask(app, f"{NOTES}/{made['id']}", "DELETE").status_code == 404
    assert [note["text"] for note in get(app, f"/runs/{RUN}")["notes"]] == ["then"]


def test_a_note_of_another_run_is_not_taken_away(app, state, store) -> None:
    made = state.marks.add_note("other", "mine", step=None, time=None, made=0.0)
    assert ask(app, f"{NOTES}/{made.id}", "DELETE").status_code == 404
    assert len(state.marks.notes("other")) == 1


def test_the_number_of_notes_has_a_limit(app, monkeypatch) -> None:
    monkeypatch.setattr("stepscope.web.api.routes_marks.MAX_NOTES", 1)
    assert ask(app, NOTES, "POST", json={"text": "a"}).status_code == 200
    assert "Delete one first" in error_of(ask(app, NOTES, "POST", json={"text": "b"}))


def test_layouts_are_any_object_and_empty_by_default(app) -> None:
    assert get(app, "/layouts/run.metrics") == {}
    layout = {"pinned": ["loss"], "deep": {"a": [1, None, True]}}
    assert ask(app, f"{API}/layouts/run.metrics", "PUT", json=layout).json() == layout
    assert get(app, "/layouts/run.metrics") == layout
    assert ask(app, f"{API}/layouts/run.metrics", "PUT", json=[1]).status_code == 400


def test_the_file_is_private_with_any_umask_and_created_by_the_first_change(tmp_path) -> None:
    marks = open_marks(tmp_path)
    assert marks.tags("a") == ()
    assert os.listdir(tmp_path) == []
    before = os.umask(0)
    try:
        marks.change("a", tags=["x"])
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    finally:
        os.umask(before)
    assert set(modes.values()) == {0o600}
    marks.close()


def test_a_file_of_a_newer_version_is_not_changed(tmp_path) -> None:
    open_marks(tmp_path).change("a", tags=["x"])
    with sqlite3.connect(tmp_path / "page.sqlite") as file:
        file.execute("PRAGMA user_version = 3")
    with pytest.raises(StoreError, match="has version 3, this stepscope knows up to 2"):
        open_marks(tmp_path).tags("a")


def test_a_run_without_marks_has_default_values(tmp_path) -> None:
    marks = open_marks(tmp_path)
    marks.change("a", archived=True)
    assert marks.of("b") == Mark()
    assert marks.of("a") == Mark(archived=True)
    assert (marks.name("a"), marks.colour("a"), marks.muted("a", "demo"), marks.notes("a")) == (
        None,
        None,
        frozenset(),
        (),
    )
    marks.close()


FEEDBACK = f"{API}/runs/{RUN}/feedback/input.exposed_wait"


@pytest.fixture
def app_with_finding(folder, store):
    with store.transaction():
        store.put_finding(RUN, WAITS, 10**9)
    return app_of(folder)


def test_a_muted_finding_is_no_longer_the_verdict(app_with_finding) -> None:
    before = get(app_with_finding, f"/runs/{RUN}/findings")
    assert ("41% waits" in before["verdict"]["headline"], before["findings"][0]["muted"]) == (True, False)
    ask(app_with_finding, MARKS, "PUT", json={"muted": ["input.exposed_wait"]})
    after = get(app_with_finding, f"/runs/{RUN}/findings")
    assert "41% waits" not in after["verdict"]["headline"]
    assert after["findings"][0]["muted"] is True
    assert after["checks"]


def test_a_finding_marked_as_wrong_is_muted_until_that_is_withdrawn(app_with_finding) -> None:
    body = {"opinion": "wrong", "note": "The loader is a test."}
    given = ask(app_with_finding, FEEDBACK, "PUT", json=body).json()
    assert (given["finding"], given["opinion"], given["headline"], given["note"]) == (
        "input.exposed_wait", "wrong", "41% waits", "The loader is a test.",
    )  # fmt: skip
    page = get(app_with_finding, f"/runs/{RUN}/findings")
    assert page["feedback"] == [given]
    assert page["findings"][0]["muted"] is True
    assert "41% waits" not in page["verdict"]["headline"]
    assert ask(app_with_finding, FEEDBACK, "DELETE").status_code == 204
    assert get(app_with_finding, f"/runs/{RUN}/findings")["findings"][0]["muted"] is False


def test_feedback_on_a_finding_that_the_run_does_not_have_is_refused(app_with_finding) -> None:
    wrong = ask(app_with_finding, f"{API}/runs/{RUN}/feedback/no.such", "PUT", json={"opinion": "wrong"})
    assert wrong.status_code == 404
    assert "has no finding 'no.such'; it has: input.exposed_wait" in error_of(wrong)
    assert ask(app_with_finding, FEEDBACK, "PUT", json={"opinion": "nonsense"}).status_code == 400
    assert ask(app_with_finding, FEEDBACK, "DELETE").status_code == 404


def test_feedback_mutes_the_finding_in_all_runs_of_its_project_and_in_no_other(tmp_path) -> None:
    marks = open_marks(tmp_path)
    marks.give_feedback(Feedback("demo", "conv.spike", "not_wanted", "a", "A spike.", "", 1.0))
    assert marks.muted("a", "demo") == marks.muted("b", "demo") == {"conv.spike"}
    assert marks.muted("a", "other") == frozenset()
    marks.give_feedback(Feedback("demo", "conv.spike", "wrong", "b", "A spike.", "noise", 2.0))
    assert [(given.opinion, given.note) for given in marks.feedback("demo")] == [("wrong", "noise")]
    marks.close()


def test_a_file_of_the_first_version_is_upgraded_and_keeps_its_marks(tmp_path) -> None:
    with sqlite3.connect(tmp_path / "page.sqlite") as file:
        file.executescript(f"{MIGRATIONS[0]} PRAGMA user_version = 1;")
        file.execute("INSERT INTO mark (run_id, name) VALUES ('a', 'Baseline')")
    marks = open_marks(tmp_path)
    assert (marks.name("a"), marks.feedback("demo")) == ("Baseline", ())
    marks.close()
