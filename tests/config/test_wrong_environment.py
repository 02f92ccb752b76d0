"""Environment variables that are unknown or wrong, and the one that switches everything off."""

import pytest

from stepscope.config import load as loading
from stepscope.config.find import defaults, is_disabled, needs_loading, settings_for
from stepscope.config.load import load
from stepscope.config.sections import Settings
from stepscope.errors import ConfigError

IGNORES = "stepscope ignores the environment variable "


@pytest.fixture(autouse=True)
def _nothing_logged_yet(monkeypatch):
    monkeypatch.setattr(loading, "_logged", set())


def lines_of(caplog):
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        (
            "STEPSCOPE_AGNET__MODE",
            "thread",
            'STEPSCOPE_AGNET__MODE="thread": there is no such setting; did you mean STEPSCOPE_AGENT__MODE?',
        ),
        ("STEPSCOPE_QUUX", "1", 'STEPSCOPE_QUUX="1": there is no such setting.'),
        (
            "STEPSCOPE_DISABLE",
            "1",
            'STEPSCOPE_DISABLE="1": there is no such setting; did you mean STEPSCOPE_DISABLED?',
        ),
        (
            "STEPSCOPE_DASHBOARD__PORT",
            "many",
            (
                'STEPSCOPE_DASHBOARD__PORT="many": dashboard.port is "many"; '
                "it must be a whole number from 0 to 65535."
            ),
        ),
        (
            "STEPSCOPE_AGENT__MODE",
            "fork",
            ('STEPSCOPE_AGENT__MODE="fork": agent.mode is "fork"; it must be one of process, thread, none.'),
        ),
        (
            "STEPSCOPE_SAMPLERS__GPU__INTERVALL_S",
            "3",
            (
                'STEPSCOPE_SAMPLERS__GPU__INTERVALL_S="3": there is no setting '
                "'samplers.gpu.intervall_s'; did you mean 'samplers.gpu.interval_s'?"
            ),
        ),
        (
            "STEPSCOPE_LOGGING",
            "loud",
            (
                'STEPSCOPE_LOGGING="loud": logging is "loud"; '
                "it must be a section with the settings level, directory, jsonl."
            ),
        ),
        (
            "STEPSCOPE_CONFIG",
            "nowhere.yaml",
            'STEPSCOPE_CONFIG="nowhere.yaml": nowhere.yaml is not a file that can be read.',
        ),
        (
            "STEPSCOPE_DISABLED",
            "maybe",
            (
                'STEPSCOPE_DISABLED="maybe": it must be 1, true, yes or on to switch stepscope off, '
                "else 0, false, no, off or empty."
            ),
        ),
    ],
)
def test_a_wrong_variable_is_named_once_and_ignored(tmp_path, caplog, name, text, line):
    environment = {name: text, "STEPSCOPE_PROJECT": "kept"}
    for _ in range(3):
        assert settings_for(None, environment, tmp_path) == Settings(project="kept")
    assert lines_of(caplog) == [IGNORES + line]


def test_several_wrong_variables_are_ignored_together_and_the_right_ones_hold(tmp_path, caplog):
    environment = {
        "STEPSCOPE_A": "1",
        "STEPSCOPE_AGENT__MODE": "fork",
        "STEPSCOPE_AGENT__LINGER_S": "7",
        "STEPSCOPE_ALERTS__DISABLED": "[5]",
    }
    settings = settings_for(None, environment, tmp_path)
    assert (settings.agent.mode, settings.agent.linger_s, settings.alerts.disabled) == ("process", 7.0, [])
    assert len(caplog.records) == 3


def test_the_file_holds_where_the_variable_over_it_is_wrong(tmp_path, caplog):
    (tmp_path / "stepscope.yaml").write_text("dashboard: {port: 1001}\n")
    settings = settings_for(None, {"STEPSCOPE_DASHBOARD__PORT": "-1"}, tmp_path)
    assert settings.dashboard.port == 1001
    assert len(caplog.records) == 1


def test_a_mistake_that_a_wrong_variable_hid_is_found_as_well(tmp_path):
    (tmp_path / "stepscope.yaml").write_text("dashboard: {port: 99999}\n")
    with pytest.raises(ConfigError, match=r"stepscope\.yaml:1: dashboard\.port is 99999"):
        settings_for(None, {"STEPSCOPE_DASHBOARD__PORT": "-1"}, tmp_path)


@pytest.mark.parametrize("strict", [True, False])
def test_a_mistake_in_a_dictionary_stops_and_the_environment_is_named_with_it(tmp_path, strict):
    with pytest.raises(ConfigError) as caught:
        settings_for({"agent": 5}, {"STEPSCOPE_X": "1"}, tmp_path, strict=strict)
    origins = [line.split(": ")[0] for line in str(caught.value).splitlines()]
    assert sorted(origins) == ["dictionary", "environment STEPSCOPE_X"]


def test_a_file_whose_name_looks_like_a_variable_is_still_a_file(tmp_path):
    (tmp_path / "environment STEPSCOPE_X").write_text("quux: 1\n")
    with pytest.raises(ConfigError, match="there is no setting 'quux'"):
        settings_for("environment STEPSCOPE_X", {"STEPSCOPE_X": "1"}, tmp_path)


def test_a_file_that_the_variable_names_stops_when_its_content_is_wrong(tmp_path):
    (tmp_path / "a.yaml").write_text("runn: x\n")
    with pytest.raises(ConfigError, match=r"^a\.yaml:1: there is no setting 'runn'"):
        settings_for(None, {"STEPSCOPE_CONFIG": "a.yaml"}, tmp_path)


def test_with_strict_a_wrong_variable_is_an_error(tmp_path, caplog):
    wrong = {"STEPSCOPE_QUUX": "1"}
    with pytest.raises(ConfigError, match="environment STEPSCOPE_QUUX: there is no such setting"):
        settings_for(None, wrong, tmp_path, strict=True)
    for source, environment in (
        ({"recorder": {"strict": True}}, wrong),
        (None, {**wrong, "STEPSCOPE_RECORDER__STRICT": "true"}),
    ):
        with pytest.raises(ConfigError, match="STEPSCOPE_QUUX"):
            settings_for(source, environment, tmp_path)
        settings_for(source, environment, tmp_path, strict=False)
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    ("name", "text", "secret"),
    [
        ("STEPSCOPE_API_TOKEN", "abc123def", "abc123def"),
        ("STEPSCOPE_ALERTS__CHANELS__SLACK__URL", "https://hooks.example/T0/B0/zzz", "zzz"),
        ("STEPSCOPE_EXPORTERS__WANDB", "correcthorse", "correcthorse"),
        ("STEPSCOPE_EXPORTER__WANDB__KEY", "correcthorse", "correcthorse"),
        ("STEPSCOPE_QUUX", "user:hf_abcdefghijklmnopqrstuvwxyz123456", "hf_abc"),
    ],
)
def test_a_secret_in_a_wrong_variable_is_not_repeated(tmp_path, caplog, name, text, secret):
    settings_for(None, {name: text}, tmp_path)
    assert f"{name}=" in caplog.text
    assert secret not in caplog.text


def test_a_long_value_or_one_of_several_lines_makes_one_short_line(tmp_path, caplog):
    settings_for(None, {"STEPSCOPE_QUUX": "first\nsecond" + "x" * 5000}, tmp_path)
    (line,) = lines_of(caplog)
    assert "\n" not in line
    assert len(line) < 250


@pytest.mark.parametrize("text", ["1", "true", "TRUE", "Yes", " on "])
def test_the_switch_wins_over_every_other_source(tmp_path, text):
    environment = {"STEPSCOPE_DISABLED": text}
    assert is_disabled(environment)
    assert not needs_loading(None, environment, tmp_path)
    assert not defaults(environment).recorder.enabled
    enabled = {"recorder": {"enabled": True}}
    loaded = load(enabled, environment=environment, arguments=enabled, directory=tmp_path)
    assert not loaded.settings.recorder.enabled
    assert loaded.origins["recorder.enabled"] == "environment STEPSCOPE_DISABLED"


@pytest.mark.parametrize("text", ["", "0", "false", "No", "OFF"])
def test_a_switch_that_is_off_changes_nothing(tmp_path, caplog, text):
    environment = {"STEPSCOPE_DISABLED": text}
    assert not is_disabled(environment)
    assert settings_for(None, environment, tmp_path) == Settings()
    assert not caplog.records


HINT = "params={...}"


@pytest.mark.parametrize(
    "given", [{"lr": 0.1}, {"batch_size": 32, "lr": 0.1}, {"optimizer": {"lr": 0.1}}, {"run": "a", "seed": 1}]
)
def test_an_error_for_hyperparameters_among_settings_says_where_they_belong(given):
    with pytest.raises(ConfigError) as caught:
        load(given, environment={})
    message = str(caught.value)
    assert "there is no setting" in message
    assert message.count(HINT) == message.count("monitor.log_params({...})") == 1


@pytest.mark.parametrize(
    "given", [{"dashbord": {"port": 1}}, {"port": 1}, {"agent": {"lr": 0.1}}, {"agent": 5}]
)
def test_a_misspelt_setting_is_not_taken_for_a_hyperparameter(given):
    with pytest.raises(ConfigError) as caught:
        load(given, environment={})
    assert HINT not in str(caught.value)


def test_an_unknown_key_of_a_file_is_not_taken_for_a_hyperparameter(tmp_path):
    (tmp_path / "a.yaml").write_text("lr: 0.1\n")
    with pytest.raises(ConfigError) as caught:
        load("a.yaml", environment={}, directory=tmp_path)
    assert HINT not in str(caught.value)


def test_an_error_for_a_namespace_instead_of_settings_says_where_it_belongs():
    import argparse

    with pytest.raises(ConfigError, match=r"not Namespace\..*params=\{\.\.\.\}"):
        load(argparse.Namespace(lr=0.1), environment={})
