"""The log file channel."""

from __future__ import annotations

import json

import pytest

from stepscope.alerts.delivery import message
from stepscope.channels.base import DeliveryError
from stepscope.channels.log_file import LogFileChannel
from stepscope.errors import ConfigError
from tests.channels.notices import INJECTIONS, notice


def test_each_notice_is_one_line_of_json_and_the_folder_is_created(tmp_path):
    path = tmp_path / "new" / "folder" / "alerts.jsonl"
    channel = LogFileChannel(path=str(path))
    for text in INJECTIONS:
        channel.send(notice(message=text))
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert lines == [message.fields(notice(message=text)) for text in INJECTIONS]
    assert channel.target == str(path)


def test_a_full_file_is_rotated_and_the_oldest_are_deleted(tmp_path):
    path = tmp_path / "alerts.jsonl"
    channel = LogFileChannel(path=str(path), max_bytes=2_000, keep=2)
    for number in range(9):
        channel.send(notice(id=f"notice-{number}"))
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["alerts.jsonl", "alerts.jsonl.1", "alerts.jsonl.2"]
    assert all(path.stat().st_size <= 2_000 for path in tmp_path.iterdir())
    lines = "".join((tmp_path / name).read_text() for name in reversed(files)).splitlines()
    ids = [json.loads(line)["id"] for line in lines]
    assert ids == [f"notice-{number}" for number in range(9 - len(ids), 9)]
    assert len(ids) >= 3


def test_no_renamed_file_is_kept_if_keep_is_zero(tmp_path):
    channel = LogFileChannel(path=str(tmp_path / "alerts.jsonl"), max_bytes=1_024, keep=0)
    channel.send(notice())
    channel.send(notice(id="notice-8"))
    [file] = tmp_path.iterdir()
    assert json.loads(file.read_text())["id"] == "notice-8"


def test_a_new_line_starts_after_an_incomplete_one(tmp_path):
    path = tmp_path / "alerts.jsonl"
    path.write_text('{"version": 1, "id"')
    LogFileChannel(path=str(path)).send(notice())
    torn, whole = path.read_text().splitlines()
    assert torn == '{"version": 1, "id"'
    assert json.loads(whole)["id"] == "notice-7"


def test_a_file_that_cannot_be_written_is_a_delivery_error(tmp_path):
    with pytest.raises(DeliveryError, match="cannot be written: Is a directory"):
        LogFileChannel(path=str(tmp_path)).send(notice())


@pytest.mark.parametrize("wrong", [{"max_bytes": 3}, {"max_bytes": "big"}, {"keep": True}, {"keep": -1}])
def test_invalid_limits_are_refused(wrong):
    with pytest.raises(ConfigError, match=rf"alerts\.channels\.log_file\.{next(iter(wrong))} must be"):
        LogFileChannel(path="alerts.jsonl", **wrong)
