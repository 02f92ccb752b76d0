"""Tools change only what the page can change, and only where that is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("mcp")

from stepscope.alerts.silences import Silences
from stepscope.store.open import open_marks
from tests.golden.fixed_store import TRAINED, fill
from tests.mcp.asking import answer_of, error_of

CHANGES = [
    ("add_note", {"run": "trained", "text": "a note"}),
    ("tag_run", {"run": "trained", "add": ["best"]}),
    ("silence_rule", {"rule": "gpu_hot", "minutes": 5}),
    ("end_silence", {"rule": "gpu_*"}),
    ("mute_finding", {"run": "trained", "finding": "host.gc", "opinion": "wrong"}),
    ("unmute_finding", {"run": "trained", "finding": "host.gc"}),
]
OF_A_RUN = ("add_note", "tag_run", "mute_finding", "unmute_finding")


@pytest.fixture
def marks(folder: Path):
    fill(folder)
    opened = open_marks(folder)
    yield opened
    opened.close()


def state_of(folder: Path, marks) -> object:
    return marks.of(TRAINED), marks.notes(TRAINED), marks.feedback("golden"), Silences(folder).read()


def changed(folder: Path, tool: str, **arguments):
    return answer_of(folder, tool, allows_writes=True, **arguments)


@pytest.mark.parametrize(("tool", "arguments"), CHANGES)
def test_a_change_that_is_not_allowed_is_refused_and_changes_nothing(
    tool: str, arguments: dict, folder: Path, marks
) -> None:
    before = state_of(folder, marks)
    message = error_of(folder, tool, **arguments)
    assert "--allow-writes" in message
    assert state_of(folder, marks) == before


def test_a_note_is_added_at_a_step(folder: Path, marks) -> None:
    changed(folder, "add_note", run="trained", text="from here on faster", step=100)
    (note,) = marks.notes(TRAINED)
    assert (note.text, note.step) == ("from here on faster", 100)


def test_tags_are_added_and_removed(folder: Path, marks) -> None:
    changed(folder, "tag_run", run="trained", add=["a", "b"])
    changed(folder, "tag_run", run="trained", add=["b", "c"], remove=["a"])
    assert marks.tags(TRAINED) == ("b", "c")


def test_a_silence_begins_and_ends(folder: Path, marks) -> None:
    undo = changed(folder, "silence_rule", rule="gpu_hot", minutes=5, run="trained")["next"]
    assert any(silence.rule == "gpu_hot" for silence in Silences(folder).read().silences)
    changed(folder, undo["tool"], **undo["arguments"])
    assert all(silence.rule != "gpu_hot" for silence in Silences(folder).read().silences)


def test_a_muted_finding_is_not_explained_until_it_is_reported_again(folder: Path, marks) -> None:
    waits = {"run": "trained", "finding": "input.exposed_wait"}
    undo = changed(folder, "mute_finding", **waits, opinion="wrong", note="on purpose")
    assert answer_of(folder, "explain_run").get("finding", {}).get("id") != "input.exposed_wait"
    changed(folder, undo["next"]["tool"], **undo["next"]["arguments"])
    assert answer_of(folder, "explain_run")["finding"]["id"] == "input.exposed_wait"


def test_a_muted_finding_is_listed_with_the_opinion_and_explained_by_its_id(folder: Path, marks) -> None:
    waits = {"run": "trained", "finding": "input.exposed_wait"}
    changed(folder, "mute_finding", **waits, opinion="not_wanted", note="on purpose")
    muted = {"opinion": "not_wanted", "note": "on purpose"}
    for tool in ("explain_run", "recommend_changes"):
        assert answer_of(folder, tool)["muted_findings"] == [{"id": "input.exposed_wait", **muted}]
    finding = answer_of(folder, "explain_run", **waits)["finding"]
    assert (finding["id"], finding["muted"], finding["opinion"]) == (waits["finding"], True, "not_wanted")
    assert finding["evidence"]
    changes = answer_of(folder, "recommend_changes")["changes"]
    assert all(change["finding"] != "input.exposed_wait" for change in changes)


@pytest.mark.parametrize(
    ("tool", "arguments"), [change for change in CHANGES if change[0] in OF_A_RUN], ids=OF_A_RUN
)
def test_a_change_of_a_run_needs_the_name_of_the_run(tool: str, arguments: dict, folder: Path, marks) -> None:
    before = state_of(folder, marks)
    without_run = {name: value for name, value in arguments.items() if name != "run"}
    assert error_of(folder, tool, allows_writes=True, **without_run) == "The argument 'run' is missing."
    assert "1 or more characters" in error_of(folder, tool, allows_writes=True, **without_run, run="")
    assert state_of(folder, marks) == before


def test_changes_within_the_limits_of_the_page_are_the_only_ones(folder: Path, marks) -> None:
    before = state_of(folder, marks)
    for tool, arguments, words in (
        ("silence_rule", {"rule": "gpu_hott", "minutes": 5}, "did you mean 'gpu_hot'"),
        ("silence_rule", {"rule": "gpu_hot", "minutes": 1e9}, "minutes"),
        ("tag_run", {"run": "trained", "add": ["t" * 65]}, "64"),
        ("tag_run", {"run": "trained", "add": [str(number) for number in range(51)]}, "50"),
        ("tag_run", {"run": "trained", "add": ["a", "b"], "remove": ["b"]}, "'b' is in both"),
        ("tag_run", {"run": "trained", "add": [" "]}, "blank"),
        ("mute_finding", {"run": "trained", "finding": "no.such", "opinion": "wrong"}, "it has: "),
        (
            "mute_finding",
            {"run": "trained", "finding": "host.gc", "opinion": "maybe"},
            "'wrong' or 'not_wanted'",
        ),
        ("unmute_finding", {"run": "trained", "finding": "host.gc"}, "there are none"),
        ("end_silence", {"rule": "no"}, "gpu_*"),
        ("add_note", {"run": "trained", "text": ""}, "1 or more characters"),
        ("add_note", {"run": "trained", "text": " \n\t "}, "blank"),
        ("add_note", {"text": "x", "run": "no such run"}, "There is no run"),
    ):
        assert words in error_of(folder, tool, allows_writes=True, **arguments)
    assert state_of(folder, marks) == before
