"""One process as Linux tells of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from stepscope import procfs
from stepscope.devices.host.kernel_files import PAGE_BYTES
from stepscope.devices.process.processes import (
    MemoryShares,
    ProcessKey,
    command_line,
    input_output_counts,
    main_thread_counts,
    memory_shares,
    open_files,
    process_state,
    queued_seconds,
)
from tests.devices.written import stat_line, write

TICKS = os.sysconf("SC_CLK_TCK")


def test_a_name_may_hold_blanks_and_brackets(tmp_path: Path) -> None:
    line = stat_line(
        7, "tmux: (server) 1", parent=3, start=55, ticks=(2 * TICKS, TICKS), threads=4, rss_pages=6
    )
    write(tmp_path, {"7/stat": line})
    state = process_state(7, tmp_path)
    assert state is not None
    assert (state.name, state.parent, state.key) == ("tmux: (server) 1", 3, ProcessKey(7, 55))
    assert (state.user_seconds, state.system_seconds) == (2.0, 1.0)
    assert (state.threads, state.rss_bytes) == (4, 6 * PAGE_BYTES)


def test_a_process_nobody_has_waited_for_has_ended(tmp_path: Path) -> None:
    write(tmp_path, {"7/stat": stat_line(7, state="Z"), "8/stat": "8 (torn"})
    assert process_state(7, tmp_path) is None
    assert process_state(8, tmp_path) is None
    assert process_state(9, tmp_path) is None


def test_what_may_not_be_known_of_a_process_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    assert command_line(7, tmp_path) == ""
    assert input_output_counts(7, tmp_path) == {}
    assert queued_seconds(7, tmp_path) is None
    assert main_thread_counts(7, tmp_path) == ({}, None)
    assert open_files(7, tmp_path) is None
    assert memory_shares(7, tmp_path) is None


def test_unique_and_proportional_memory_are_distinguished(tmp_path: Path) -> None:
    rollup = (
        "00400000-7fff [rollup]\nRss: 900 kB\nPss: 500 kB\nPrivate_Clean: 100 kB\nPrivate_Dirty: 200 kB\n"
    )
    write(tmp_path, {"7/smaps_rollup": rollup})
    assert memory_shares(7, tmp_path) == MemoryShares(uss_bytes=300 * 1024, pss_bytes=500 * 1024)


def test_the_state_of_this_process_is_correct() -> None:
    pid = os.getpid()
    state = process_state(pid)
    assert state is not None
    assert state.key.start_ticks == procfs.start_ticks(pid)
    assert state.parent == os.getppid()
    assert state.rss_bytes > 10_000_000
    assert "python" in command_line(pid)
    shares = memory_shares(pid)
    assert shares is not None
    assert 0 < shares.uss_bytes <= shares.pss_bytes
    files = open_files(pid)
    assert files is not None
    assert files >= 3
    switches, usable = main_thread_counts(pid)
    assert usable == len(os.sched_getaffinity(0))
    assert switches.keys() == {"voluntary_switches", "involuntary_switches"}
    waited = queued_seconds(pid)
    assert waited is not None
    assert waited > 0


def test_reads_are_counted_and_a_childs_are_added_when_it_has_ended(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(bytes(3_000_000))
    pid = os.getpid()
    before, faults = input_output_counts(pid), process_state(pid)
    (tmp_path / "data").read_bytes()
    own = input_output_counts(pid)
    assert 3_000_000 <= own["read_bytes"] - before["read_bytes"] < 3_500_000
    subprocess.run([sys.executable, "-Sc", f"open({str(tmp_path / 'data')!r}, 'rb').read()"], check=True)
    after = process_state(pid)
    assert input_output_counts(pid)["read_bytes"] - own["read_bytes"] >= 3_000_000
    assert faults is not None
    assert after is not None
    assert after.inherited_faults > faults.inherited_faults
