"""Which source wins, and what each may say."""

import os

import pytest

from stepscope.config.load import load
from stepscope.config.sections import Sampler, Settings
from stepscope.errors import ConfigError

PORT = "STEPSCOPE_DASHBOARD__PORT"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "stepscope.yaml").write_text("dashboard: {port: 1001, host: 0.0.0.0}\n")
    return tmp_path


def test_without_any_source_the_defaults_hold(tmp_path):
    loaded = load(environment={}, directory=tmp_path)
    assert loaded.settings == Settings()
    assert set(loaded.origins.values()) == {"default"}


def test_each_source_overrides_the_ones_before_it_and_leaves_the_rest(folder):
    environment = {PORT: "1002"}
    file = load(environment={}, directory=folder)
    variable = load(environment=environment, directory=folder)
    mapping = load({"dashboard": {"port": 1003}}, environment=environment, directory=folder)
    argument = load(
        {"dashboard": {"port": 1003}},
        environment=environment,
        directory=folder,
        arguments={"dashboard": {"port": 1004}},
    )
    steps = [file, variable, mapping, argument]
    assert [step.settings.dashboard.port for step in steps] == [1001, 1002, 1003, 1004]
    assert {step.settings.dashboard.host for step in steps} == {"0.0.0.0"}
    assert [step.origins["dashboard.port"] for step in steps] == [
        "stepscope.yaml:1",
        f"environment {PORT}",
        "dictionary",
        "argument",
    ]


def test_an_argument_that_is_none_counts_as_not_given(folder):
    loaded = load(environment={"STEPSCOPE_RUN": "a"}, arguments={"run": None}, directory=folder)
    assert loaded.settings.run == "a"


def test_a_given_file_is_read_instead_of_the_one_lying_here(folder):
    (folder / "other.yaml").write_text("project: vision\n")
    settings = load("other.yaml", environment={}, directory=folder).settings
    assert (settings.project, settings.dashboard.port) == ("vision", Settings().dashboard.port)


def test_the_variable_names_a_file_too(folder):
    (folder / "other.yaml").write_text("project: vision\n")
    loaded = load(environment={"STEPSCOPE_CONFIG": "other.yaml"}, directory=folder)
    assert loaded.origins["project"] == "other.yaml:1"


def test_the_short_variables_set_folder_run_and_project(tmp_path):
    environment = {"STEPSCOPE_DIR": "/data", "STEPSCOPE_RUN": "7", "STEPSCOPE_PROJECT": "x"}
    settings = load(environment=environment, directory=tmp_path).settings
    assert (settings.directory, settings.run, settings.project) == ("/data", "7", "x")


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("AGENT__INTERVAL_S", "5e-1", 0.5),
        ("RECORDER__STRICT", "true", True),
        ("RECORDER__MAX_KEYS", "1_000", 1000),
        ("STORE__RETENTION__MAX_RUNS", "9", 9),
        ("PROJECT", "123", "123"),
        ("ALERTS__DISABLED", "[gpu_hot, disk_full]", ["gpu_hot", "disk_full"]),
        ("EXPORTERS__PROMETHEUS__PORT", "9464", 9464),
        ("EXPORTERS", "{wandb: {mode: offline}}", {"wandb": {"mode": "offline"}}),
        ("ALERTS__CHANNELS__MAIL__PASSWORD", "0123", "0123"),
        ("ALERTS__THRESHOLDS__LOSS", "2", 2.0),
    ],
)
def test_a_variable_is_read_as_the_type_of_its_setting(tmp_path, name, text, value):
    settings = load(environment={f"STEPSCOPE_{name}": text}, directory=tmp_path).settings
    setting = settings
    for part in name.lower().split("__"):
        setting = setting[part] if isinstance(setting, dict) else getattr(setting, part)
    assert setting == value
    assert type(setting) is type(value)


def test_reserved_foreign_and_empty_variables_are_not_settings(tmp_path):
    environment = {"STEPSCOPE_SEGMENT": "3", "DASHBOARD__PORT": "1", PORT: "", "STEPSCOPE_RUN": ""}
    assert load(environment=environment, directory=tmp_path).settings == Settings()


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("STEPSCOPE_DASHBORD__PORT", "STEPSCOPE_DASHBOARD__PORT"),
        ("STEPSCOPE_DASHBOARD_PORT", "STEPSCOPE_DASHBOARD__PORT"),
        ("STEPSCOPE_DIRECTORY", "STEPSCOPE_DIR"),
        ("STEPSCOPE_SAMPLERS__DEFAULT__INTERVAL_S__X", "STEPSCOPE_SAMPLERS__DEFAULT__INTERVAL_S"),
    ],
)
def test_an_unknown_variable_is_named_with_the_nearest_right_one(tmp_path, name, meant):
    with pytest.raises(ConfigError) as caught:
        load(environment={name: "1"}, directory=tmp_path)
    expected = f"environment {name}: there is no such setting; did you mean {meant}?"
    assert str(caught.value) == expected


def test_a_bad_variable_is_reported_under_its_name(tmp_path):
    with pytest.raises(ConfigError) as caught:
        load(environment={PORT: "many"}, directory=tmp_path)
    assert str(caught.value) == (
        f'environment {PORT}: dashboard.port is "many"; it must be a whole number from 0 to 65535.'
    )


def test_free_sections_of_file_and_environment_are_merged_key_by_key(tmp_path):
    (tmp_path / "a.yaml").write_text("alerts: {channels: {webhook: {url: http://a, tries: 2}}}\n")
    environment = {"STEPSCOPE_ALERTS__CHANNELS__WEBHOOK__TRIES": "5"}
    loaded = load("a.yaml", environment=environment, directory=tmp_path)
    assert loaded.settings.alerts.channels == {"webhook": {"url": "http://a", "tries": 5}}


def test_a_sampler_takes_from_default_what_it_does_not_set_itself():
    given = {"default": {"interval_s": 30}, "gpu": {"interval_s": 2}, "disk": {"enabled": False}}
    settings = load({"samplers": given}, environment={}).settings
    intervals = [settings.sampler(name).interval_s for name in ("gpu", "disk", "network")]
    assert intervals == [2.0, 30.0, 30.0]
    assert not settings.sampler("disk").enabled
    assert Settings().sampler("gpu") == Sampler()


def test_further_keys_of_a_sampler_are_its_own_options():
    given = {"process": {"workers": True, "options": {"top": 3}}}
    settings = load({"samplers": given}, environment={}).settings
    assert settings.sampler("process").options == {"workers": True, "top": 3}


def test_paths_are_taken_as_text(tmp_path):
    settings = load({"directory": tmp_path / "store"}, environment={}).settings
    assert settings.directory == os.fspath(tmp_path / "store")
