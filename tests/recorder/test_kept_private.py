"""What must not be recorded is in no file of a run: no secrets, and on request no names."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import stepscope
from stepscope.schema.redact import remove_rule
from tests.schema.corpus import secrets

LEAKY = """
import json, logging, sys, stepscope
corpus = json.loads(sys.stdin.read())
monitor = stepscope.TrainingMonitor(
    {"logging": {"directory": sys.argv[1], "jsonl": True}}, run="leaky"
)
monitor.start_monitoring()
mine = logging.getLogger("mine")
monitor.logs.attach(mine)
for text, secret in corpus:
    monitor.event("connected", address=text, options={"password": secret})
    monitor.log({"loss": 1.0, "note": text})
    mine.warning("said %s", text, extra={"api_key": secret})
raise ConnectionError(corpus[0][0])
"""


def everything(*folders: Path) -> bytes:
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return b"".join(path.read_bytes() for path in files)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["none", "process"], ids=["in the journal", "in the store"])
def test_no_secret_is_in_any_file_of_a_run(mode: str, start, folder: Path, tmp_path: Path) -> None:
    corpus = list(secrets().values())
    _, secret = corpus[0]
    process = start(
        LEAKY,
        tmp_path / "logs",
        "--password",
        secret,
        f"--api-key={secret}",
        environment={"SERVICE_TOKEN": secret, "STEPSCOPE_AGENT__MODE": mode},
        stdin=-1,
    )
    process.communicate(json.dumps(corpus), timeout=60)
    assert process.returncode == 1
    if mode == "process":
        run = stepscope.open_store(folder).run("leaky")
        assert run.reason.startswith("ConnectionError: ")
        assert len(run.events("connected")) == len(corpus)
    written = everything(folder, tmp_path / "logs")
    assert written.count(b"[redacted:") > 2 * len(corpus)
    leaked = [secret for _, secret in corpus if json.dumps(secret)[1:-1].encode() in written]
    assert leaked == []


@pytest.mark.slow
def test_names_of_host_and_user_are_hashed_and_homes_shortened_on_request(
    run_script, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "salt").write_text("pepper\n")
    config = {
        "privacy": {"salt_file": str(tmp_path / "salt"), "shorten_home": True},
        "logging": {"directory": str(tmp_path / "logs")},
    }
    result = run_script(
        """
        import json, sys, stepscope
        with stepscope.TrainingMonitor(json.loads(sys.argv[1]), run="private") as monitor:
            monitor.log({"loss": 1.0})
            monitor.logs.logger("training").info("on %s by %s in %s", *sys.argv[2:])
        """,
        json.dumps(config),
        os.uname().nodename,
        "ada",
        "/srv/ada/data",
        environment={"HOME": "/srv/ada", "USER": "ada", "MASTER_ADDR": os.uname().nodename},
    )
    assert result.returncode == 0, result.stderr
    run = stepscope.open_store(folder).run("private")
    process = run.segments[0].processes[0]
    assert process.host.startswith("anon-")
    assert process.facts["environment"]["MASTER_ADDR"] == process.host
    assert process.facts["command"][-3:] == [process.host, process.facts["command"][-2], "~/data"]
    assert process.facts["command"][-2].startswith("anon-")
    (log,) = (tmp_path / "logs" / "training").iterdir()
    assert f"on {process.host} by " in log.read_text()
    assert "~/data" in log.read_text()


def test_a_salt_that_cannot_be_read_stops_the_monitor_before_it_records(tmp_path: Path) -> None:
    for path, words in ((tmp_path / "nowhere", "cannot be read"), (tmp_path / "empty", "is empty")):
        (tmp_path / "empty").write_text(" ")
        with pytest.raises(stepscope.StepscopeError, match=f"privacy.salt_file is .*{words}"):
            stepscope.TrainingMonitor({"privacy": {"salt_file": str(path)}})


def test_a_rule_of_the_settings_is_applied_and_a_broken_one_is_refused(folder: Path) -> None:
    config = {"privacy": {"rules": {"badge": r"\bB-[0-9]{4}\b"}}}
    with stepscope.TrainingMonitor(config, run="a", directory=folder) as monitor:
        monitor.event("seen", who="B-1234")
    remove_rule("badge")
    (event,) = stepscope.open_store(folder).run("a").events("seen")
    assert event.fields == {"who": "[redacted:badge]"}
    with pytest.raises(stepscope.StepscopeError, match="privacy.rules.odd: .*cannot be read"):
        stepscope.TrainingMonitor({"privacy": {"rules": {"odd": "("}}})
