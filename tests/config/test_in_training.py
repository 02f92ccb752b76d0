"""What a training process pays for settings, and how it hands them on."""

import json
import subprocess
import sys

import pytest

from stepscope.config.find import defaults, needs_loading, settings_for
from stepscope.config.load import load
from stepscope.config.sections import Settings, from_dict, to_dict

SCRIPT = """
import sys
from stepscope.config.find import settings_for
from stepscope.config.sections import from_dict, to_dict
settings = settings_for(None, {"STEPSCOPE_DIR": "/data"})
assert from_dict(to_dict(settings)) == settings
print(settings.directory, *sorted({"pydantic", "pydantic_core", "yaml"} & set(sys.modules)))
"""


def test_defaults_come_without_loading_the_checker(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "/data\n"


def test_settings_survive_the_way_to_another_process_as_json():
    settings = load(
        {
            "store": {"retention": {"max_runs": 5}},
            "samplers": {"gpu": {"interval_s": 0.1, "per_process": True}},
            "alerts": {"rules": [{"name": "a", "for_s": 3}], "thresholds": {"loss": 1.5}},
            "exporters": {"x": {"deep": {"list": [1, None, "two"]}}},
        },
        environment={},
    ).settings
    received = from_dict(json.loads(json.dumps(to_dict(settings))))
    assert received == settings
    assert received.samplers["gpu"].options == {"per_process": True}


def test_plain_data_shares_nothing_with_the_settings():
    settings = load({"exporters": {"x": {"a": 1}}}, environment={}).settings
    to_dict(settings)["exporters"]["x"]["a"] = 2
    assert settings.exporters == {"x": {"a": 1}}


@pytest.mark.parametrize(
    ("source", "environment", "needed"),
    [
        (None, {}, False),
        (None, {"STEPSCOPE_RUN": "a", "STEPSCOPE_SEGMENT": "2", "HOME": "/"}, False),
        (None, {"STEPSCOPE_AGENT__MODE": "thread"}, True),
        (None, {"STEPSCOPE_AGNET": "thread"}, True),
        (None, {"STEPSCOPE_CONFIG": "a.yaml"}, True),
        ({}, {}, True),
        ("a.yaml", {}, True),
    ],
)
def test_loading_is_needed_when_there_is_something_to_check(tmp_path, source, environment, needed):
    assert needs_loading(source, environment, tmp_path) is needed


def test_a_file_lying_here_needs_loading(tmp_path):
    (tmp_path / "stepscope.yaml").write_text("project: vision\n")
    assert needs_loading(None, {}, tmp_path)
    assert settings_for(None, {}, tmp_path).project == "vision"


def test_the_short_way_and_the_long_way_agree(tmp_path):
    environment = {"STEPSCOPE_DIR": "d", "STEPSCOPE_PROJECT": "p", "STEPSCOPE_RUN": ""}
    loaded = load(environment=environment, directory=tmp_path).settings
    assert defaults(environment) == loaded == Settings(directory="d", project="p")
