"""What is kept of a command's console: its end, bounded, readable, without secrets."""

from __future__ import annotations

import os

import pytest

from stepscope.launcher.console_tail import MAX_BYTES, MAX_LINE_BYTES, MAX_LINES, ConsoleTail, last_exception

KEY_LINES = ["-----BEGIN RSA PRIVATE KEY-----", *["c2VjcmV0" * 8] * 20, "-----END RSA PRIVATE KEY-----"]


def tail_of(*pieces: bytes) -> ConsoleTail:
    tail = ConsoleTail()
    for piece in pieces:
        tail.add("stdout", piece)
    return tail


def test_a_short_console_is_kept_whole() -> None:
    assert tail_of(b"one\ntwo\n", b"thr", b"ee").text() == ("one\ntwo\nthree", False)


def test_nothing_printed_is_nothing_kept() -> None:
    assert ConsoleTail().text() == ("", False)


@pytest.mark.parametrize("piece_bytes", [7, 4096, 1 << 20])
def test_of_many_lines_the_last_are_kept(piece_bytes: int) -> None:
    printed = b"".join(b"line %d\n" % number for number in range(5000))
    pieces = [printed[start : start + piece_bytes] for start in range(0, len(printed), piece_bytes)]
    text, left_out = tail_of(*pieces).text()
    assert text.splitlines() == [f"line {number}" for number in range(5000 - MAX_LINES, 5000)]
    assert left_out


def test_of_long_lines_as_many_are_kept_as_fit() -> None:
    text, left_out = tail_of(b"".join(b"%04d %s\n" % (number, b"x " * 500) for number in range(150))).text()
    assert len(text.encode()) <= MAX_BYTES
    assert text.splitlines()[-1].startswith("0149")
    assert text.splitlines()[0].endswith("x ")
    assert left_out


def test_a_progress_bar_is_kept_in_its_last_state() -> None:
    bar = b"".join(b"\r%3d%%|%s" % (share, b"#" * (share // 10)) for share in range(101))
    text, _ = tail_of(b"begin\n", bar[:700], bar[700:], b"\nend\n").text()
    assert text.splitlines() == ["begin", "100%|##########", "end"]


def test_a_progress_bar_that_still_moves_is_kept_too() -> None:
    assert tail_of(b"begin\n\r10%\r", b"20%\r").text() == ("begin\n20%", False)


def test_line_ends_of_other_systems_leave_nothing_behind() -> None:
    assert tail_of(b"one\r\ntwo\r", b"\n").text() == ("one\ntwo", False)


def test_colours_titles_and_bells_are_taken_out() -> None:
    printed = b"\x1b]0;title\x07\x1b[1;31mred\x1b[0m\x07 \x1b(Bplain\x08\x00\ttab \xc2\x9bx"
    assert tail_of(printed).text()[0] == "red plain\ttab x"


def test_two_streams_do_not_cut_each_others_lines() -> None:
    tail = ConsoleTail()
    tail.add("stdout", b"half a ")
    tail.add("stderr", b"warning\n")
    tail.add("stdout", b"line\n")
    assert tail.text()[0] == "warning\nhalf a line"


def test_secrets_are_taken_out() -> None:
    printed = "token hf_abcdefghijklmnopqrst and https://me:hunter2@example.org\n" + "\n".join(KEY_LINES)
    text, _ = tail_of(printed.encode()).text()
    assert "abcdefghij" not in text
    assert "hunter2" not in text
    assert "c2VjcmV0" not in text


def test_a_key_whose_beginning_has_scrolled_away_is_taken_out() -> None:
    lines = [*KEY_LINES, *["later"] * (MAX_LINES - 5)]
    text, _ = tail_of("\n".join(lines).encode() + b"\n").text()
    assert "c2VjcmV0" not in text
    assert text.count("later") == MAX_LINES - 5


def test_a_line_too_long_is_cut_where_no_secret_can_be_halved() -> None:
    long = b"a " * (MAX_LINE_BYTES // 2 - 5) + b"sk-" + b"canary" * 20
    for pieces in [(long, b"\n"), (long[:3000], long[3000:])]:
        text, _ = tail_of(*pieces).text()
        assert "canary" not in text
        assert text.endswith("[...]")


def test_a_line_without_end_takes_no_more_memory_than_a_line() -> None:
    tail = ConsoleTail()
    for _ in range(100):
        tail.add("stdout", b"x" * 65536)
    assert len(tail.text()[0]) <= MAX_LINE_BYTES


def test_any_bytes_become_text() -> None:
    text, _ = tail_of(*(os.urandom(10_000) for _ in range(20))).text()
    assert text.encode().decode() == text
    assert not set(text) & {chr(code) for code in range(32) if chr(code) not in "\t\n"}


def traceback(*exception: str, prefix: str = "") -> str:
    lines = [
        "Traceback (most recent call last):",
        '  File "train.py", line 3, in <module>',
        "    train()",
        "    ^^^^^^^",
        *exception,
    ]
    return "".join(f"{prefix}{line}\n" for line in lines)


CHAINED = "\nDuring handling of the above exception, another exception occurred:\n\n"
GROUP = """  + Exception Group Traceback (most recent call last):
  |   File "train.py", line 4, in <module>
  |     raise ExceptionGroup("several", errors)
  | ExceptionGroup: several (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | ValueError: one
    +---------------- 2 ----------------
    | KeyError: 'two'
    +------------------------------------
"""


@pytest.mark.parametrize(
    ("text", "exception"),
    [
        ("", None),
        ("loss: 3\nValueError: only a word\n", None),
        (traceback("ValueError: a"), "ValueError: a"),
        (
            traceback("torch.cuda.OutOfMemoryError: CUDA out of memory"),
            "OutOfMemoryError: CUDA out of memory",
        ),
        (traceback("ValueError: first line", "second: line"), "ValueError: first line"),
        (traceback("AssertionError"), "AssertionError"),
        (traceback("KeyboardInterrupt"), "interrupted by SIGINT"),
        (traceback("KeyError: 'a'") + CHAINED + traceback("ValueError: b"), "ValueError: b"),
        (traceback("ValueError: a") + "epoch 3\nloss: 3\n", "ValueError: a"),
        (traceback("KeyError: 'a'") + CHAINED + GROUP, "ExceptionGroup: several (2 sub-exceptions)"),
        (
            '  File "train.py", line 1\n    x = = 3\n        ^\nSyntaxError: invalid syntax\n',
            "SyntaxError: invalid syntax",
        ),
        (traceback("ValueError: a", prefix="[rank1]: "), "rank 1: ValueError: a"),
        (traceback("ValueError: a", prefix="[default1]:"), "rank 1: ValueError: a"),
        (traceback("ValueError: a", prefix="1: "), "ValueError: a"),
        (
            traceback("ValueError: a", prefix="[rank1]: ")
            + traceback("RuntimeError: Connection closed by peer", prefix="[rank0]: ")
            + traceback("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: "),
            "rank 1: ValueError: a",
        ),
        (traceback("RuntimeError: Connection closed by peer"), "RuntimeError: Connection closed by peer"),
        ("Traceback (most recent call last):\n", None),
    ],
)
def test_the_last_traceback_of_a_console_names_the_exception(text: str, exception: str | None) -> None:
    assert last_exception(text) == exception


def test_interleaved_tracebacks_of_two_ranks_are_separated() -> None:
    of_0 = traceback("RuntimeError: Connection reset by peer", prefix="[rank0]: ").splitlines()
    of_1 = traceback("ValueError: a", prefix="[rank1]: ").splitlines()
    mixed = [line for pair in zip(of_0, of_1, strict=True) for line in pair]
    assert last_exception("\n".join(mixed)) == "rank 1: ValueError: a"
