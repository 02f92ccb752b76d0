"""`stepscope config validate` finds what a monitor or an agent would refuse or ignore."""

import dataclasses
from pathlib import Path

import pytest

from stepscope.cli.main import main
from stepscope.config.sections import Settings


def validated(capsys, content: str) -> list[str]:
    Path("a.yaml").write_text(content)
    code = main(["config", "validate", "a.yaml"])
    captured = capsys.readouterr()
    assert code == (0 if captured.out else 1)
    return captured.err.splitlines()


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("run: r\nsamplers:\n  gpuu: {}\n", "a.yaml:3: there is no sampler 'gpuu'; did you mean 'gpu'?"),
        (
            "samplers:\n  default: {interval_s: 5}\n  gpuu:\n    enabled: true\n",
            "a.yaml:3: there is no sampler 'gpuu'; did you mean 'gpu'?",
        ),
        (
            "samplers:\n  default: {interval_s: 5}\n  cpu:\n    colour: blue\n",
            "a.yaml:4: samplers.cpu has no option 'colour'; it has: none.",
        ),
        (
            "samplers:\n  default: {shade: 1}\n  cpu: {}\n",
            "a.yaml:2: samplers.default has no option 'shade'; write it under one sampler's name.",
        ),
        (
            "exporters:\n  prometeus: {port: 9464}\n",
            "a.yaml:2: there is no exporter 'prometeus'; did you mean 'prometheus'?",
        ),
        (
            "exporters:\n  metrics_files: {}\n",
            "a.yaml:2: exporters.metrics_files needs the option 'directory'.",
        ),
        (
            "exporters:\n  metrics_files:\n    directory: 5\n",
            "a.yaml:3: exporters.metrics_files.directory is a number; it must be text.",
        ),
        (
            "exporters:\n  metrics_files:\n    directory: m\n    kep: 5\n",
            "a.yaml:4: exporters.metrics_files has no option 'kep'; it has: directory, max_bytes, keep.",
        ),
        (
            "exporters:\n  metrics_files:\n    directory: m\n    max_bytes: -1\n",
            "a.yaml:4: exporters.metrics_files.max_bytes is -1; the minimum is 1,000.",
        ),
        (
            "exporters:\n  metrics_files:\n    directory: m\n    keep: 0\n",
            "a.yaml:4: exporters.metrics_files.keep is 0; the minimum is 1.",
        ),
        (
            "exporters:\n  csv_file: {}\n",
            (
                "a.yaml:2: 'csv_file' writes runs that have ended: stepscope export. There are: "
                "metrics_files, mlflow, opentelemetry, prometheus, prometheus_textfile, tensorboard, wandb."
            ),
        ),
        (
            "detectors:\n  host.gc:\n    share: 7\n",
            "a.yaml:3: detectors.host.gc.share is 7; it must be a number from 0.001 to 1.",
        ),
        (
            "alerts:\n  rules:\n    - name: a\n      colour: blue\n      when: x > 1\n",
            (
                "a.yaml:4: alerts.rules[0] has no key 'colour' (rule 'a'); there are name, when, for, "
                "severity, message, cooldown, remind, channels, resolve, clear, advice, enabled."
            ),
        ),
        (
            "alerts:\n  rules:\n    - {name: a, when: x > 1}\n    - {name: a, when: x > 2}\n",
            "a.yaml:4: alerts.rules[1].name is 'a', the name of another rule; names must be unique.",
        ),
        (
            "alerts:\n  rules:\n    - name: a\n      when: x > 1\n      channels: [consol]\n",
            (
                "a.yaml:5: alerts.rules[0].channels has 'consol', which is not in alerts.channels; "
                "did you mean 'console'?"
            ),
        ),
        (
            "alerts:\n  disabled:\n    - crashed\n    - nonfinite_los\n",
            (
                "a.yaml:4: alerts.disabled has 'nonfinite_los', and there is no such rule; "
                "did you mean 'nonfinite_loss'?"
            ),
        ),
        (
            "alerts:\n  quiet_hours: late\n",
            (
                "a.yaml:2: alerts.quiet_hours is 'late'; it must be two times, such as 22:00-07:00 or "
                "22:00-07:00 UTC."
            ),
        ),
        (
            "alerts:\n  channels:\n    slck: {}\n",
            "a.yaml:3: there is no channel 'slck'; did you mean 'slack'?",
        ),
        (
            "alerts:\n  channels:\n    webhook:\n      url: ftp://h/secret\n",
            "a.yaml:4: alerts.channels.webhook.url must begin with https:// or http://.",
        ),
        (
            "alerts:\n  channels:\n    webhook:\n      enabled: maybe\n",
            "a.yaml:4: alerts.channels.webhook.enabled is 'maybe'; it must be true or false.",
        ),
        ("energy:\n  prices_file: nowhere.yaml\n", "a.yaml:1: nowhere.yaml: there is no such file."),
    ],
)
def test_what_would_be_ignored_is_named_with_its_line_and_the_fix(capsys, content, line):
    assert validated(capsys, content) == [line]


def test_everything_is_named_at_once_in_the_order_of_the_lines(capsys):
    content = """\
alerts:
  channels: {slck: {}}
  rules:
    - {name: a, when: "loss >"}
exporters: {grafana: {}}
samplers: {gpuu: {}}
"""
    errors = [line for line in validated(capsys, content) if line.startswith("a.yaml:")]
    assert [line.split(": ")[0] for line in errors] == ["a.yaml:2", "a.yaml:4", "a.yaml:5", "a.yaml:6"]


def test_a_mistake_of_one_kind_hides_none_of_another(capsys):
    Path("a.yaml").write_text(
        "dashbord: {}\n"
        "alerts:\n  rules:\n    - {name: x, when: 'meen(loss, 2m) > 1'}\n"
        "samplers: {gpuu: {interval_s: 3}}\n"
        "agent: {mode: fork, linger_s: 5}\n"
    )
    assert main(["config", "validate", "a.yaml"]) == 1
    said = capsys.readouterr().err
    for wrong in ("'dashbord'", "'meen'", "'gpuu'", 'agent.mode is "fork"'):
        assert wrong in said, said


def test_what_is_switched_off_is_not_checked(capsys):
    content = "alerts: {channels: {mail: {enabled: false}}}\nexporters: {grafana: {enabled: false}}\n"
    assert validated(capsys, content) == []


def test_a_wrong_secret_is_never_printed(capsys):
    content = "alerts: {channels: {webhook: {url: 'https://example.com/T0/kG7vQ2xW9z', tiemout_s: 1}}}\n"
    [line] = validated(capsys, content)
    assert "kG7vQ2xW9z" not in line
    assert "has no option 'tiemout_s'" in line


def test_settings_without_effect_are_named_and_the_file_is_fine(capsys):
    [line] = validated(capsys, "run: r\ncheckpoints:\n  keep: 3\n")
    assert line == "a.yaml:2: checkpoints has no effect in this version; save checkpoints in the training."


@pytest.mark.slow
@pytest.mark.parametrize("value", ["[]", "{}", "{x: {y: 1}}", "[[1]]", "-1", "'?'", "null"])
def test_a_wrong_value_anywhere_is_named_and_validation_ends(capsys, value):
    names = [field.name for field in dataclasses.fields(Settings)]
    for line in [f"{name}: {value}" for name in names] + [f"{name}: {{zzz: {value}}}" for name in names]:
        Path("a.yaml").write_text(f"{line}\nagent: {{mode: fork}}\n" if "agent" not in line else f"{line}\n")
        main(["config", "validate", "a.yaml"])
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        assert "agent" in line or "agent.mode" in said.err, line
