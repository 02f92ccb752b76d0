"""The console channel."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import struct
import subprocess
import sys
import termios

import pytest

from stepscope.alerts.delivery import message
from stepscope.channels.base import DeliveryError
from stepscope.channels.console import ConsoleChannel
from tests.channels.notices import notice


def test_the_text_goes_to_standard_error_without_colour_if_it_is_a_file(capsys):
    ConsoleChannel().send(notice())
    assert capsys.readouterr().err == message.text(notice()) + "\n"


@pytest.mark.parametrize(("kind", "colour"), [("firing", "1;31"), ("resolved", "32")])
def test_the_first_line_is_coloured_on_a_terminal(monkeypatch, kind, colour):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert on_a_terminal(kind).startswith(f"\x1b[{colour}m")


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colour_can_be_disabled(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    assert "\x1b" not in on_a_terminal("firing")


def test_lines_are_wrapped_to_the_width_of_the_terminal(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    advice = "Lower the learning rate, or clip gradients: see ../docs/a-long-name-with-hyphens.md."
    lines = on_a_terminal("firing", columns=40, advice=advice).splitlines()
    assert max(map(len, lines)) <= 40
    begin = next(place for place, line in enumerate(lines) if "what to do" in line)
    assert lines[begin : begin + 3] == [
        "  what to do: Lower the learning rate,",
        "    or clip gradients: see",
        "    ../docs/a-long-name-with-hyphens.md.",
    ]


def on_a_terminal(kind: str, columns: int = 0, **changes: str) -> str:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with os.fdopen(theirs, "w", encoding="utf-8") as stream:
        ConsoleChannel(_stream=stream).send(notice(kind=kind, **changes))
        shown = os.read(ours, 10_000).decode()
    os.close(ours)
    return shown


def test_characters_that_the_stream_cannot_encode_are_replaced():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    ConsoleChannel(_stream=stream).send(notice())
    assert b"recent: ?????" in stream.buffer.getvalue()


def test_a_closed_stream_is_a_delivery_error():
    stream = io.StringIO()
    stream.close()
    with pytest.raises(DeliveryError, match="closed"):
        ConsoleChannel(_stream=stream).send(notice())


def test_a_process_without_standard_error_is_a_delivery_error(monkeypatch):
    monkeypatch.setattr("sys.stderr", None)
    with pytest.raises(DeliveryError, match="no standard error") as raised:
        ConsoleChannel().send(notice())
    assert raised.value.is_final


@pytest.mark.parametrize(("mode", "is_shared"), [("a", True), ("w", False)], ids=["appended to", "written"])
def test_a_file_of_the_training_gets_the_text_where_both_write_at_its_end(tmp_path, capsys, mode, is_shared):
    code = "import sys; sys.stderr.write('before\\n'); sys.stdin.read(); sys.stderr.write('after\\n')"
    log = tmp_path / "train.log"
    with (
        log.open(mode) as stderr,
        subprocess.Popen(
            [sys.executable, "-u", "-c", code], stdin=subprocess.PIPE, stderr=stderr
        ) as training,
    ):
        while log.read_text() != "before\n":
            assert training.poll() is None
        ConsoleChannel().send(notice(pid=training.pid))
    text = message.text(notice()) + "\n"
    assert log.read_text() == ("before\n" + text + "after\n" if is_shared else "before\nafter\n")
    assert capsys.readouterr().err == ("" if is_shared else text)
