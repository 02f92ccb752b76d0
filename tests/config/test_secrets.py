"""Secrets must reach neither a screen nor a log."""

import json
import traceback

import pytest

from stepscope.cli.main import main
from stepscope.config.load import load
from stepscope.config.secret import is_secret, redacted, resolve_secret
from stepscope.errors import ConfigError

CANARY = "hunter2canary"

HIDING_PLACES = f"""\
alerts:
  rules:
    - {{name: high, api_key: {CANARY}}}
  channels:
    mail: {{password: {CANARY}, smtpToken: {CANARY}, host: mail.example}}
    slack: {{url: "https://hooks.slack.com/services/T0/B0/{CANARY}"}}
    webhook: {{url: "https://user:{CANARY}@example.com/hook?key={CANARY}"}}
    pager: {{keys: [xoxb-{CANARY}-1234567890]}}
exporters:
  clickhouse: {{url: "clickhouse://admin:{CANARY}@db.example/metrics"}}
  wandb: {{api_key: {CANARY}, project: seen}}
  otel: {{headers: {{authorization: {CANARY}, secret: {{nested: {CANARY}}}}}}}
"""


@pytest.mark.parametrize("options", [[], ["--json"], ["--origin"], ["--json", "--origin"]])
def test_show_prints_stars_instead_of_secrets(tmp_path, capsys, options):
    (tmp_path / "s.yaml").write_text(HIDING_PLACES)
    assert main(["config", "show", *options, str(tmp_path / "s.yaml")]) == 0
    out = capsys.readouterr().out
    assert CANARY not in out
    assert "***" in out
    for harmless in ("mail.example", "seen", "db.example/metrics", "https://hooks.slack.com"):
        assert harmless in out


@pytest.mark.parametrize(
    "content",
    [
        f"alerts: {{channels: {{slack: {CANARY}}}}}",
        f"alerts: {{channels: [{CANARY}]}}",
        f"alerts: {{channels: {CANARY}}}",
        f"alerts: {{thresholds: {{token: {CANARY}}}}}",
        f"alerts: {{rules: {{password: {CANARY}}}}}",
        f"exporters: {{wandb: {CANARY}}}",
        f"exporters: [{{api_key: {CANARY}}}]",
        f"dashboard: {{token: {CANARY}}}",
        f"dashboard: {{port: 'http://me:{CANARY}@example.com'}}",
        f"logging: {{password: {CANARY}, level: 1}}",
        f"password: {CANARY}",
        f"password: *{CANARY}",
        f"password: &{CANARY} x",
        f"password: !{CANARY} x",
        f"password: !{CANARY}!x y",
        f"password: '{CANARY}",
        f"password: {CANARY}: x",
        f"alerts: {{channels: {{mail: {{password: {CANARY}}}}}}}\nagent: 5",
    ],
)
def test_no_error_message_or_traceback_holds_a_secret(tmp_path, content):
    (tmp_path / "s.yaml").write_text(content)
    with pytest.raises(ConfigError) as caught:
        load("s.yaml", environment={}, directory=tmp_path)
    printed = "".join(traceback.format_exception(caught.value))
    assert CANARY not in printed


def test_a_secret_in_a_variable_is_not_repeated(tmp_path):
    environment = {"STEPSCOPE_EXPORTERS__WANDB": CANARY, "STEPSCOPE_TOKEN": CANARY}
    with pytest.raises(ConfigError) as caught:
        load(environment=environment, directory=tmp_path)
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize("name", ["password", "smtp_password", "API_KEY", "apiKey", "slack-token"])
def test_names_of_secrets_are_recognised(name):
    assert is_secret(name)


@pytest.mark.parametrize("name", ["tokens_per_second", "token_file", "key", "monkey", "passing"])
def test_harmless_names_are_not_hidden(name):
    assert not is_secret(name)


def test_a_reference_is_kept_and_shown_as_it_is(tmp_path):
    (tmp_path / "s.yaml").write_text(
        "alerts: {channels: {mail: {password: {env: SMTP_PASSWORD}, token: {file: /run/t}}}}"
    )
    mail = load("s.yaml", environment={}, directory=tmp_path).settings.alerts.channels["mail"]
    assert mail == {"password": {"env": "SMTP_PASSWORD"}, "token": {"file": "/run/t"}}
    assert redacted(mail) == mail


def test_a_reference_is_resolved_when_used(tmp_path):
    file = tmp_path / "secret"
    file.write_text(f"{CANARY}\n")
    assert resolve_secret({"env": "NAME"}, {"NAME": CANARY}) == CANARY
    assert resolve_secret({"file": str(file)}) == CANARY
    assert resolve_secret(CANARY) == CANARY


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ({"env": "NOT_THERE"}, "variable NOT_THERE, which is not set"),
        ({"file": "/not/there"}, "file /not/there, which cannot be read: No such file"),
        ({"vault": CANARY}, "text, {env: NAME} or {file: PATH}"),
    ],
)
def test_a_reference_to_nothing_says_so(reference, message):
    with pytest.raises(ConfigError) as caught:
        resolve_secret(reference, {})
    assert message in str(caught.value)
    assert CANARY not in str(caught.value)


def test_the_origin_of_a_hidden_secret_is_still_shown(tmp_path, capsys):
    (tmp_path / "s.yaml").write_text(f"exporters:\n  x:\n    secret: {{deep: {CANARY}}}\n")
    main(["config", "show", "--origin", str(tmp_path / "s.yaml")])
    [line] = [line for line in capsys.readouterr().out.splitlines() if "***" in line]
    assert line.split() == ["exporters.x.secret:", json.dumps("***"), "#", f"{tmp_path}/s.yaml:3"]
