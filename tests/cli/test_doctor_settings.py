"""`stepscope doctor --write-settings`: a settings file that fits the machine."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from stepscope.cli.checks.machine_settings import fitting_settings
from stepscope.cli.main import main
from stepscope.config.load import load
from stepscope.samplers.base import Sampler
from stepscope.schema.sample import DeviceFacts, Metric, Notice, Reading, Sample, Watched


class Scripted(Sampler):
    """Gives the readings of the test."""

    metrics = (Metric("x", "Something."),)

    def __init__(self, *readings: Reading) -> None:
        self._readings = readings

    def sample(self, watched: Sequence[Watched]) -> Iterable[Reading]:
        return self._readings


def gpu(number: int) -> list[Reading]:
    facts = DeviceFacts(f"gpu-{number}", {"vendor": "nvidia", "name": "NVIDIA H200", "index": number})
    return [facts, Sample({"gpu/power_watts": 100.0}, f"gpu-{number}")]


def written(folder: Path, kind: str = "ext4", **readings: list[Reading]) -> str:
    mounts = folder / "mounts"
    mounts.write_text(f"1 0 0:1 / / rw - {kind} /dev/a rw\n")

    def make(name: str) -> Sampler:
        return Scripted(*readings.get(name, [Sample({f"{name}/x": 1.0})]))

    return fitting_settings(folder / "store", mounts, make, lambda _: None)


def loaded(text: str, folder: Path):
    (folder / "a.yaml").write_text(text)
    return load("a.yaml", environment={}, directory=folder).settings


def test_what_cannot_be_read_here_is_switched_off_with_the_reason(tmp_path: Path) -> None:
    text = written(tmp_path, gpu=[Notice("driver", "No NVIDIA driver is installed here.")])
    assert "# No NVIDIA driver is installed here. Remove this entry when that changes." in text
    settings = loaded(text, tmp_path)
    assert settings.samplers.keys() == {"gpu"}
    assert not settings.sampler("gpu").enabled


def test_the_gpus_that_were_found_are_named(tmp_path: Path) -> None:
    text = written(tmp_path, gpu=[*gpu(0), *gpu(1)])
    assert "# Found here: 2 × NVIDIA H200." in text
    assert loaded(text, tmp_path).sampler("gpu").enabled


@pytest.mark.parametrize(
    ("kind", "mapping", "why"),
    [
        ("nfs4", "never", "The store folder is on nfs4, over the network"),
        ("btrfs", "never", "on btrfs, on a file system that copies on write"),
        ("ext4", "auto", "The store folder is on ext4"),
    ],
)
def test_journals_are_written_as_the_file_system_allows(
    tmp_path: Path, kind: str, mapping: str, why: str
) -> None:
    text = written(tmp_path, kind)
    assert why in " ".join(text.replace("#", "").split())
    assert loaded(text, tmp_path).recorder.mapping == mapping


def test_the_store_may_take_a_tenth_of_the_space_that_is_free(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 50 << 30}))
    text = written(tmp_path)
    assert "50 GiB free" in text
    assert loaded(text, tmp_path).store.retention.max_bytes == 5 << 30


def test_a_machine_on_which_no_process_can_be_started_gets_an_agent_in_a_thread(
    tmp_path: Path, monkeypatch
) -> None:
    assert loaded(written(tmp_path), tmp_path).agent.mode == "process"
    monkeypatch.setattr("sys.executable", str(tmp_path / "nowhere"))
    assert loaded(written(tmp_path), tmp_path).agent.mode == "thread"


@pytest.mark.slow
def test_doctor_writes_a_file_that_is_fine_and_never_over_another(tmp_path: Path, capsys) -> None:
    assert main(["doctor", "--write-settings"]) == 0
    assert "Wrote stepscope.yaml." in capsys.readouterr().err
    assert main(["config", "validate", "stepscope.yaml"]) == 0
    assert capsys.readouterr() == ("stepscope.yaml: no problems\n", "")
    Path("stepscope.yaml").write_text("run: mine\n")
    assert main(["doctor", "--write-settings"]) == 1
    assert "stepscope.yaml exists; pass --force to replace it." in capsys.readouterr().err
    assert Path("stepscope.yaml").read_text() == "run: mine\n"
    assert main(["doctor", "--write-settings", "--force"]) == 0
    assert "retention" in Path("stepscope.yaml").read_text()
    assert main(["doctor", "--write-settings", "no/such.yaml"]) == 1
    assert "no/such.yaml cannot be written: No such file" in capsys.readouterr().err
    assert not (tmp_path / ".stepscope").exists()


@pytest.mark.slow
def test_doctor_offers_it_where_there_is_no_settings_file(capsys) -> None:
    assert main(["doctor"]) == 0
    assert "stepscope doctor --write-settings" in capsys.readouterr().err
    Path("stepscope.yaml").write_text("run: r\n")
    assert main(["doctor"]) == 0
    assert "--write-settings" not in capsys.readouterr().err
