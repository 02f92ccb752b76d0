"""The page on detectors describes every detector with its current options; its example works."""

import re
from pathlib import Path

import pytest
import yaml

from stepscope.analysis.detector_registry import known_detectors, make_detectors
from stepscope.schema.finding import SEVERITIES
from tests.detectors import page
from tests.detectors.simulated import diagnose, going_well

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_has_what_the_detectors_declare():
    advice = "write it anew: python -m tests.detectors.page > docs/detectors.md"
    assert (DOCS / "detectors.md").read_text() == page.drawn(), advice


def test_the_settings_on_the_page_can_be_used():
    [example] = re.findall(r"```yaml\n(.*?)```", (DOCS / "detectors.md").read_text(), re.DOTALL)
    on, off = make_detectors(yaml.safe_load(example)["detectors"])
    assert [kind.id for kind in off] == ["host.gc"]
    assert next(detector.share for detector in on if detector.id == "input.exposed_wait") == 0.1


@pytest.mark.parametrize("name", sorted(known_detectors()))
def test_every_detector_has_a_heading(name):
    assert f"\n## {name}\n" in (DOCS / "detectors.md").read_text()


def test_every_field_of_a_finding_is_on_the_page(tmp_path):
    run = going_well(0, 800)
    run["loss"][600] *= 50
    [finding] = diagnose(tmp_path, run).findings
    said = (DOCS / "diagnosis.md").read_text()
    for name in (*finding.as_dict(), *SEVERITIES):
        assert f"`{name}`" in said
