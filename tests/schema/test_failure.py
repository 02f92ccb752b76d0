"""Of several processes that failed, the one that failed by itself gives the run's reason."""

from __future__ import annotations

import pytest

from stepscope.schema.run import Process, SegmentInfo, segments_of

GLOO = (
    "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer "
    "[127.0.0.1]:3254. This is typically caused by a remote worker crashing."
)
CONSEQUENCES = [
    GLOO,
    "RuntimeError: [unbound_buffer.cc:78] Timed out waiting 1800000ms for recv operation to complete",
    "RuntimeError: Application timeout caused pair closure",
    "RuntimeError: Connection reset by peer",
    "ConnectionResetError: [Errno 104] Connection reset by peer",
    "BrokenPipeError: [Errno 32] Broken pipe",
    "DistBackendError: NCCL error in: x.cpp:1970, remote process exited or there was a network error",
    "DistBackendError: [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3)",
    "RuntimeError: NCCL communicator was aborted on rank 0.",
    "DistStoreError: wait timeout after 300000ms, keys: /default_pg/0//cpu//0/0",
    "DistNetworkError: The client socket has failed to connect",
    "terminated by SIGTERM",
]


def process(rank: int, reason: str, ended_ns: int = 100, **more: object) -> Process:
    given = {"role": "rank", "status": "failed", **more}
    return Process(
        "r", "run", "p", "s", rank, "host", 10 + rank, started_ns=1, reason=reason, ended_ns=ended_ns, **given
    )


def together(*processes: Process) -> SegmentInfo:
    (segment,) = segments_of(processes)
    return segment


@pytest.mark.parametrize("consequence", CONSEQUENCES)
def test_a_consequence_on_rank_0_does_not_hide_the_exception_of_rank_1(consequence: str) -> None:
    segment = together(process(0, consequence, 50), process(1, "ValueError: bad batch", 90))
    assert (segment.status, segment.reason) == ("failed", "rank 1: ValueError: bad batch")


def test_of_two_ranks_with_exceptions_of_their_own_the_first_is_the_reason() -> None:
    segment = together(process(0, "KeyError: 'b'", 90), process(1, "ValueError: a", 50), process(2, GLOO, 20))
    assert segment.reason == "rank 1: ValueError: a"


def test_of_consequences_alone_the_first_is_the_reason() -> None:
    assert (
        together(process(0, GLOO, 90), process(1, "BrokenPipeError", 50)).reason == "rank 1: BrokenPipeError"
    )


def test_a_rank_that_the_launcher_killed_later_does_not_make_a_failed_run_crashed() -> None:
    killed = process(0, "process 10 was killed (no error message): by SIGKILL", 20, status="crashed")
    segment = together(killed, process(1, "ValueError: a", 50))
    assert (segment.status, segment.reason) == ("failed", "rank 1: ValueError: a")


def test_a_rank_that_was_killed_is_the_reason_for_connections_that_were_lost() -> None:
    killed = process(1, "process 11 was killed (no error message): by SIGKILL", 90, status="crashed")
    segment = together(process(0, GLOO, 20), killed)
    assert segment.status == "crashed"
    assert segment.reason.startswith("rank 1: process 11")


def test_a_fault_of_its_own_comes_before_an_abort() -> None:
    fault = process(2, "Segmentation fault in process 12", 90, status="crashed")
    aborted = process(0, "Aborted in process 10", 20, status="crashed")
    assert together(aborted, fault).reason == "rank 2: Segmentation fault in process 12"


def test_what_happened_to_all_ranks_alike_names_none() -> None:
    stopped = "interrupted by SIGINT"
    assert together(process(0, stopped), process(1, stopped)).reason == stopped


def test_a_single_rank_is_not_named() -> None:
    assert together(process(0, "ValueError: a")).reason == "ValueError: a"


def test_what_a_launcher_read_from_the_console_explains_a_connection_that_was_lost() -> None:
    launcher = process(0, "rank 1: ValueError: a", 200, role="launcher")
    assert together(launcher, process(0, GLOO, 50)).reason == "rank 1: ValueError: a"


@pytest.mark.parametrize("reason", [GLOO, "ValueError: a", "exit with 3"])
def test_a_reason_of_the_training_says_more_than_an_exit_code(reason: str) -> None:
    launcher = process(0, "exit code 1", 20, role="launcher")
    assert together(launcher, process(0, reason, 50)).reason == reason


def test_an_exception_of_the_training_says_more_than_the_console() -> None:
    launcher = process(0, "KeyError: 'printed'", 20, role="launcher")
    assert together(launcher, process(0, "ValueError: a", 50)).reason == "ValueError: a"


def test_a_failed_process_without_a_reason_leaves_that_to_others() -> None:
    launcher = process(0, "exit code 3", 20, role="launcher")
    assert together(process(0, ""), launcher).reason == "exit code 3"


def test_a_launcher_knows_the_signal_that_a_process_vanished_by() -> None:
    vanished = process(0, "process 10 was killed (no error message): by SIGKILL", status="crashed")
    launcher = process(0, "killed by SIGKILL", role="launcher", status="crashed")
    segment = together(vanished, launcher)
    assert (segment.status, segment.reason) == ("crashed", "killed by SIGKILL")
