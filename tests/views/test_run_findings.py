"""The findings of a run as pages and the live feed show them."""

from __future__ import annotations

from stepscope.schema.finding import Chart, Evidence, Finding, Remedy
from stepscope.views.overview.run_findings import listed_findings
from tests.views.made import as_json


def stored(**fields):
    finding = Finding(
        "input.wait", "Waits", "31% waits for data.", "", "warning", 0.9, 1.0, 2.0,
        evidence=(Evidence("wait", "31%"),), chart=Chart(("loss",), 3, 9),
        remedies=(Remedy("Use 4 workers."),),
    )  # fmt: skip
    return {**finding.as_dict(), "problem": "input.wait", "opened_ns": 5, "closed_ns": None, **fields}


def test_a_finding_is_shown_with_evidence_chart_and_advice_and_nothing_of_the_store() -> None:
    [finding] = listed_findings([stored()], ())
    shown = as_json(finding)
    assert shown["evidence"] == [{"label": "wait", "value": "31%", "note": ""}]
    assert shown["chart"] == {"keys": ["loss"], "from_": 3, "to": 9}
    assert shown["remedies"] == [{"text": "Use 4 workers.", "code": None, "framework": None}]
    assert shown.keys().isdisjoint({"problem", "opened_ns", "closed_ns"})


def test_a_finding_is_muted_by_its_kind_or_by_its_key() -> None:
    document = stored(key="input.wait:loader")
    muted = [
        listed_findings([document], names)[0].muted for names in ((), ("input.wait",), ("input.wait:loader",))
    ]
    assert muted == [False, True, True]


def test_fields_that_an_older_version_did_not_store_are_empty() -> None:
    [finding] = listed_findings([{"id": "a.b", "key": "a.b", "headline": "Old."}], ())
    assert (finding.headline, finding.evidence, finding.chart, finding.open) == ("Old.", (), None, True)


def test_documents_of_other_programs_are_left_out() -> None:
    documents = [{"id": "no key"}, stored(evidence=[{"text": "of another shape"}]), stored(chart=5)]
    assert listed_findings(documents, ()) == ()
