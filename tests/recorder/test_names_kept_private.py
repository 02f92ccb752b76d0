"""Names of runs, projects, metrics and events hold no secrets, and stay distinct and stable."""

from __future__ import annotations

import json
import logging
import random
import stat
import sys
from pathlib import Path

import numpy as np
import pytest

import stepscope
from stepscope.cli.main import main
from tests.schema.corpus import drawn

TOKEN = "h" + "f_" + drawn(34, source=random.Random(7))
WORD = "hunter2xyz"


def everything(folder: Path) -> bytes:
    """Contents and names of all files."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return b"\n".join(str(path.relative_to(folder)).encode() + path.read_bytes() for path in paths)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "secret"),
    [
        (f"exp-{TOKEN}", TOKEN),
        (f"exp lr=0.1 password={WORD}", WORD),
        (f"api_key:{WORD}", WORD),
        (f"https://ada:{WORD}@example.org/run", WORD),
        (f"Config(token='{WORD}')", WORD),
    ],
)
def test_a_secret_in_the_name_of_a_run_is_in_no_file_and_no_file_name(
    folder: Path, name: str, secret: str
) -> None:
    with stepscope.TrainingMonitor(run=name, project=f"team {name}", directory=folder) as monitor:
        monitor.log({"loss": 1.0})
        assert secret not in monitor.run_id
        assert secret not in str(monitor.identity)
        run_id = monitor.run_id
    run = stepscope.open_store(folder).run(run_id)
    assert "[redacted:" in run.name
    assert secret.encode() not in everything(folder)


def test_a_name_without_a_secret_stays_and_leaves_no_key(folder: Path) -> None:
    with stepscope.TrainingMonitor(run="secretary_loss lr=0.1", directory=folder) as monitor:
        monitor.log({"loss": 1.0})
        assert monitor.identity.name == "secretary_loss lr=0.1"
    assert not (folder / "names.key").exists()


@pytest.mark.slow
def test_a_run_whose_name_held_a_secret_is_resumed_and_others_are_not_mixed_with_it(folder: Path) -> None:
    def record(name: str) -> str:
        with stepscope.TrainingMonitor(run=name, directory=folder, resume=True) as monitor:
            monitor.log({"loss": 1.0})
            return monitor.run_id

    first, other = record(f"exp password={WORD}"), record("exp password=swordfish")
    assert record(f"exp password={WORD}") == first
    assert first != other
    runs = {run.id: len(run.segments) for run in stepscope.open_store(folder).runs()}
    assert runs == {first: 2, other: 1}
    # Whoever starts from the name that is shown means the same run.
    assert record(stepscope.open_store(folder).run(first).name) == first


@pytest.mark.slow
def test_all_ranks_of_a_run_whose_name_held_a_secret_have_one_id(folder: Path, start) -> None:
    code = """
    import stepscope, sys
    with stepscope.TrainingMonitor(run=sys.argv[1]) as monitor:
        monitor.log({"loss": 1.0})
        print(monitor.run_id)
    """
    common = {"WORLD_SIZE": "3", "TORCHELASTIC_RUN_ID": "job7"}
    ranks = [start(code, f"exp-{TOKEN}", environment={**common, "RANK": str(rank)}) for rank in range(3)]
    printed = [rank.communicate(timeout=120)[0].strip() for rank in ranks]
    assert len(set(printed)) == 1
    assert printed[0]
    (run,) = stepscope.open_store(folder).runs()
    assert len(run.segments[0].processes) == 3


def test_the_mark_of_a_name_cannot_be_worked_out_from_a_guess(folder: Path, tmp_path: Path) -> None:
    ids = set()
    for store in ("a", "b"):
        monitor = stepscope.TrainingMonitor(run=f"password={WORD}", directory=tmp_path / store)
        ids.add(monitor.run_id)
        key = tmp_path / store / "names.key"
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        assert len(key.read_bytes()) == 32
    assert len(ids) == 2  # without the key of a store nobody can say what a guess would give


@pytest.mark.slow
def test_a_text_that_is_no_number_is_complained_of_without_its_secret(folder: Path, caplog) -> None:
    with stepscope.TrainingMonitor(run="a", directory=folder) as monitor:
        monitor.log({"password": WORD, "note": f"{'x' * 50} {TOKEN}"})
    said = " ".join(record.getMessage() for record in caplog.records)
    assert "'password' is '[redacted:name]'" in said
    assert TOKEN[:6] not in said


def test_a_changed_name_is_reported_once_in_one_line(folder: Path, caplog) -> None:
    with caplog.at_level(logging.WARNING, "stepscope"):
        monitor = stepscope.TrainingMonitor(run=f"password={WORD}", directory=folder)
    (line,) = [record.getMessage() for record in caplog.records]
    assert repr(monitor.identity.name) in line
    assert WORD not in line


@pytest.mark.slow
def test_a_launched_command_and_the_monitor_inside_it_share_a_run_without_its_secret(
    folder: Path, capfd
) -> None:
    code = "import stepscope\nwith stepscope.TrainingMonitor() as monitor: monitor.log({'loss': 1.0})\n"
    command = [sys.executable, "-c", code, f"--env=WANDB_API_KEY={WORD} {WORD}", f"+a.api_key={WORD}"]
    with pytest.raises(SystemExit) as ended:
        sys.exit(main(["run", "--store", str(folder), "--name", f"exp-{TOKEN}", "--", *command]))
    assert ended.value.code == 0
    (run,) = stepscope.open_store(folder).runs()
    assert {process.role for process in run.segments[0].processes} == {"launcher", "rank"}
    written = everything(folder)
    assert TOKEN.encode() not in written
    assert WORD.encode() not in written


def test_secrets_in_names_of_metrics_are_taken_out_and_the_metrics_stay_apart(folder: Path) -> None:
    with stepscope.TrainingMonitor(run="a", directory=folder) as monitor:
        for step in range(3):
            monitor.log(
                {f"password={WORD}": 1.0, "password=swordfish": 2.0, "token_accuracy": 0.5}, step=step
            )
            monitor.log({f"loss/{TOKEN}": 3.0, f"password={WORD}": 1.0}, step=step)
        monitor.log({f"hist/{TOKEN}": np.arange(3.0)})
        with monitor.phase(f"load token={WORD}"):
            pass
    run = stepscope.open_store(folder).run("a")
    keys = {key.key for key in run.keys()}
    assert {"password=[redacted:name]", "password=[redacted:name]#2", "token_accuracy"} <= keys
    assert "loss/[redacted:huggingface]" in keys
    assert run.series("password=[redacted:name]").values.tolist() == [1.0] * 6
    assert run.series("password=[redacted:name]#2").values.tolist() == [2.0] * 3
    assert WORD.encode() not in everything(folder)
    assert TOKEN.encode() not in everything(folder)


def test_a_key_is_redacted_when_it_is_declared_and_not_for_each_row(folder: Path, monkeypatch) -> None:
    from stepscope.recorder import key_names

    seen: list[str] = []

    def counted(text: str, _: int) -> str:
        seen.append(text)
        return text

    monkeypatch.setattr(key_names, "redact_start", counted)
    with stepscope.TrainingMonitor(run="a", directory=folder) as monitor:
        for _ in range(100):
            monitor.log({"loss": 1.0, "accuracy": 0.5})
            monitor.log({"loss": 1.0})
    assert sorted(seen) == ["accuracy", "loss"]


def test_kinds_and_fields_of_events_hold_no_secrets(folder: Path) -> None:
    with stepscope.TrainingMonitor(run="a", directory=folder) as monitor:
        monitor.event(
            f"login password={WORD}",
            **{f"a token={WORD} b": 1, "client": f"Client(api_key=Key('{WORD} {WORD}'))"},
        )
        monitor.log({f"note token={WORD}": f"Login(password=Secret('{WORD} {WORD}'))"})
    run = stepscope.open_store(folder).run("a")
    (event,) = run.events("login password=[redacted:name]")
    assert event.fields == {"a token=[redacted:name] b": 1, "client": "Client(api_key=[redacted:name])"}
    assert WORD.encode() not in everything(folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    "ending",
    [
        f"sys.exit('password={WORD}')",
        f"monitor.stop_monitoring('failed', 'login password={WORD}')",
        f'raise ValueError("Login(password=Secret({WORD!r}, {WORD!r}))")',
    ],
    ids=["exit", "stop", "exception"],
)
def test_the_reason_of_an_ending_holds_no_secret(folder: Path, run_script, ending: str) -> None:
    code = f"""
import sys, stepscope
with stepscope.TrainingMonitor(run="a") as monitor:
    monitor.log({{"loss": 1.0}})
    {ending}
"""
    run_script(code)
    assert "[redacted:name]" in stepscope.open_store(folder).run("a").reason
    # The command itself, which holds the script, is recorded as well.
    assert WORD.encode() not in everything(folder)


PERSONAL = """
import json, logging, sys, stepscope
config = json.loads(sys.argv[1])
with stepscope.TrainingMonitor(config, run="by ada@example.org") as monitor:
    note = "mail ada@example.org, phone +49 170 1234567, host 10.1.2.3, account DE89370400440532013000"
    monitor.event("asked", text=note, phone="5551234567", nested=[{"peer": "fd00::5"}])
    monitor.log({"loss/ada@example.org": 1.0, "note": note})
    monitor.logs.logger("training").info(note, extra={"phone": "5551234567"})
    try:
        raise ValueError(note)
    except ValueError:
        monitor.logs.logger("training").exception("failed")
    raise ConnectionError(note)
"""
DATA = [b"ada@example.org", b"1234567", b"10.1.2.3", b"DE8937", b"fd00::5"]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["personal_data", "salt_file"])
def test_personal_data_is_taken_out_of_everything_a_run_records_where_that_is_asked_for(
    folder: Path, tmp_path: Path, run_script, way: str
) -> None:
    (tmp_path / "salt").write_text("pepper")
    privacy = {"personal_data": True} if way == "personal_data" else {"salt_file": str(tmp_path / "salt")}
    logs = {"directory": str(tmp_path / "logs"), "jsonl": True}
    script = tmp_path / "script.py"
    script.write_text(PERSONAL)
    run_script(
        "import runpy, sys; runpy.run_path(sys.argv.pop(1), run_name='__main__')",
        script,
        json.dumps({"privacy": privacy, "logging": logs}),
        *("--notify", "ada@example.org", "--master=10.1.2.3"),
    )
    (run,) = stepscope.open_store(folder).runs()
    assert run.name.startswith("by [redacted:email]-")
    assert run.reason.startswith(
        "ConnectionError: mail [redacted:email], phone [redacted:phone], host [redac"
    )
    (event,) = run.events("asked")
    assert event.fields["phone"] == "[redacted:phone]"
    assert event.fields["nested"] == [{"peer": "[redacted:ip]"}]
    assert run.series("loss/[redacted:email]").values.tolist() == [1.0]
    assert run.segments[0].processes[0].facts["command"][-2:] == [
        "[redacted:email]",
        "--master=[redacted:ip]",
    ]
    written = everything(folder) + everything(tmp_path / "logs")
    assert [data for data in DATA if data in written] == []


def test_personal_data_is_kept_unless_hiding_it_is_enabled(folder: Path) -> None:
    with stepscope.TrainingMonitor(run="a", directory=folder) as monitor:
        monitor.event("asked", text="mail ada@example.org at 10.1.2.3")
    (event,) = stepscope.open_store(folder).run("a").events("asked")
    assert event.fields == {"text": "mail ada@example.org at 10.1.2.3"}
