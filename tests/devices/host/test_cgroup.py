"""The control group of a process is found on every kind of system, with all that lie around it."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepscope.devices.host.cgroup import Group, Groups, group_of, hierarchies
from tests.devices.written import HandClock, watched, write


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    return tmp_path / "proc"


def mount(tmp_path: Path, *mounts: tuple[str, str, str, str]) -> None:
    """Mounts hierarchies: the folder of a system that is shown, where, of which kind, with which options."""
    lines = [
        f"{number} 1 0:{number} {root} {tmp_path}/{point} rw - {kind} {kind} {options}\n"
        for number, (root, point, kind, options) in enumerate(mounts)
    ]
    write(tmp_path / "proc", {"self/mountinfo": "".join(lines)})


def of_process(proc: Path, process: str, controller: str = "cpu") -> Group | None:
    return group_of(process, controller, hierarchies(proc), proc)  # type: ignore[arg-type]


def test_a_group_is_within_all_its_parents(tmp_path: Path, proc: Path) -> None:
    mount(tmp_path, ("/", "unified", "cgroup2", "rw"))
    write(proc, {"7/cgroup": "0::/slurm/job_1/step_0\n"})
    (tmp_path / "unified/slurm/job_1/step_0").mkdir(parents=True)
    group = of_process(proc, "7")
    assert group is not None
    assert group.version == 2
    assert [str(Path(level).relative_to(tmp_path)) for level in group.levels] == [
        "unified/slurm/job_1/step_0",
        "unified/slurm/job_1",
        "unified/slurm",
        "unified",
    ]


def test_a_controller_of_version_1_is_found_beside_an_empty_version_2(tmp_path: Path, proc: Path) -> None:
    mount(tmp_path, ("/", "both", "cgroup2", "rw"), ("/", "cpu", "cgroup", "rw,cpuacct,cpu"))
    write(proc, {"7/cgroup": "3:cpuset:/other\n2:cpu,cpuacct:/user\n0::/elsewhere\n"})
    (tmp_path / "cpu/user").mkdir(parents=True)
    assert of_process(proc, "7") == Group(1, (f"{tmp_path}/cpu/user", f"{tmp_path}/cpu"))


def test_a_container_that_gets_the_path_of_the_host_sees_its_own_group_as_the_outermost(
    tmp_path: Path, proc: Path
) -> None:
    mount(tmp_path, ("/docker/abc", "memory", "cgroup", "rw,memory"))
    write(proc, {"7/cgroup": "4:memory:/docker/abc/inner\n", "8/cgroup": "4:memory:/docker/abc\n"})
    (tmp_path / "memory/inner").mkdir(parents=True)
    assert of_process(proc, "7", "memory") == Group(1, (f"{tmp_path}/memory/inner", f"{tmp_path}/memory"))
    assert of_process(proc, "8", "memory") == Group(1, (f"{tmp_path}/memory",))


@pytest.mark.parametrize("path", ["/../sibling", "/docker/abc", "/gone"])
def test_a_group_that_cannot_be_seen_from_here_counts_as_the_outermost(
    tmp_path: Path, proc: Path, path: str
) -> None:
    mount(tmp_path, ("/", "unified", "cgroup2", "rw"))
    write(proc, {"7/cgroup": f"0::{path}\n"})
    (tmp_path / "unified").mkdir()
    assert of_process(proc, "7") == Group(2, (f"{tmp_path}/unified",))


def test_a_system_without_control_groups_has_none(tmp_path: Path, proc: Path) -> None:
    assert of_process(proc, "self") is None
    assert Groups("cpu", proc).by_owner([watched(7)]) == []


@pytest.fixture
def two_groups(tmp_path: Path, proc: Path) -> Path:
    mount(tmp_path, ("/", "unified", "cgroup2", "rw"))
    (tmp_path / "unified/a").mkdir(parents=True)
    (tmp_path / "unified/b").mkdir()
    write(proc, {"self/cgroup": "0::/a\n", "7/cgroup": "0::/a\n", "8/cgroup": "0::/b\n"})
    return proc


def owners(groups: Groups, *pids: int) -> list[tuple[int | None, str]]:
    shared = groups.by_owner([watched(pid) for pid in pids])
    return [(owner and owner.pid, Path(group.levels[0]).name) for owner, group in shared]


def test_a_group_shared_with_the_agent_is_reported_once_for_the_host(two_groups: Path) -> None:
    write(two_groups, {"9/cgroup": "0::/a\n"})
    assert owners(Groups("cpu", two_groups), 7, 9, 8) == [(None, "a"), (8, "b")]


def test_the_agents_own_group_is_left_out_when_no_training_is_in_it(two_groups: Path) -> None:
    assert owners(Groups("cpu", two_groups), 8) == [(8, "b")]
    assert owners(Groups("cpu", two_groups)) == [(None, "a")]


def test_a_process_without_group_information_counts_to_the_agents_group(two_groups: Path) -> None:
    assert owners(Groups("cpu", two_groups), 12345) == [(None, "a")]


def test_a_process_that_is_moved_is_found_again(two_groups: Path) -> None:
    clock = HandClock()
    groups = Groups("cpu", two_groups, clock)
    assert owners(groups, 7) == [(None, "a")]
    write(two_groups, {"7/cgroup": "0::/b\n"})
    clock.now += 11
    assert owners(groups, 7) == [(7, "b")]
