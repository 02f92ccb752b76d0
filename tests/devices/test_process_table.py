"""Who is whose child, without reading about every process at every look."""

from __future__ import annotations

from pathlib import Path

from stepscope.devices.process.process_table import ProcessTable
from tests.devices.written import HandClock, stat_line, write


def newest(proc: Path, pid: int) -> None:
    write(proc, {"loadavg": f"0.1 0.2 0.3 1/99 {pid}\n"})


def child(proc: Path, pid: int, parent: int) -> None:
    write(proc, {f"{pid}/stat": stat_line(pid, parent=parent)})


def end(proc: Path, pid: int) -> None:
    (proc / f"{pid}/stat").unlink()
    (proc / f"{pid}").rmdir()


def test_descendants_come_after_their_parents_and_others_are_left_out(tmp_path: Path) -> None:
    for pid, parent in {1: 0, 10: 1, 11: 10, 12: 10, 13: 12, 20: 1, 21: 20}.items():
        child(tmp_path, pid, parent)
    table = ProcessTable(tmp_path, HandClock())
    table.refresh()
    assert sorted(table.below(10)) == [11, 12, 13]
    assert table.below(10).index(12) < table.below(10).index(13)
    assert table.below(10, lambda pid: pid == 12) == [11]
    assert table.below(99) == []


def test_nothing_is_listed_while_no_process_was_started(tmp_path: Path) -> None:
    clock = HandClock()
    child(tmp_path, 10, 1)
    newest(tmp_path, 10)
    table = ProcessTable(tmp_path, clock)
    table.refresh()
    child(tmp_path, 11, 10)
    clock.now += 1
    table.refresh()
    assert table.below(10) == []
    newest(tmp_path, 11)
    table.refresh()
    assert table.below(10) == [11]


def test_a_system_that_does_not_tell_of_new_processes_is_looked_through_now_and_then(tmp_path: Path) -> None:
    clock = HandClock()
    child(tmp_path, 10, 1)
    newest(tmp_path, 10)
    table = ProcessTable(tmp_path, clock)
    table.refresh()
    child(tmp_path, 11, 10)
    clock.now += 11
    table.refresh()
    assert table.below(10) == [11]


def test_a_system_that_never_knows_the_newest_is_looked_through_every_time(tmp_path: Path) -> None:
    child(tmp_path, 10, 1)
    newest(tmp_path, 0)
    table = ProcessTable(tmp_path, HandClock())
    table.refresh()
    child(tmp_path, 11, 10)
    table.refresh()
    assert table.below(10) == [11]


def test_a_child_whose_parent_has_ended_belongs_to_another(tmp_path: Path) -> None:
    for pid, parent in {1: 0, 10: 1, 11: 10, 12: 11}.items():
        child(tmp_path, pid, parent)
    table = ProcessTable(tmp_path, HandClock())
    table.refresh()
    assert sorted(table.below(10)) == [11, 12]
    end(tmp_path, 11)
    child(tmp_path, 12, 1)
    table.refresh()
    assert table.below(10) == []
    assert sorted(table.below(1)) == [10, 12]


def test_a_number_that_another_process_has_now_is_asked_about_again(tmp_path: Path) -> None:
    for pid, parent in {1: 0, 10: 1, 11: 10}.items():
        child(tmp_path, pid, parent)
    newest(tmp_path, 11)
    table = ProcessTable(tmp_path, HandClock())
    table.refresh()
    child(tmp_path, 11, 1)
    table.forget(11)
    assert table.below(10) == []
    table.refresh()
    assert sorted(table.below(1)) == [10, 11]
