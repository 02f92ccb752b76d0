"""The frame of the page: which server it shows, what its address holds, what it says when there is none."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stepscope import TrainingMonitor
from stepscope.errors import StepscopeError
from stepscope.notebook.page_frame import address_by, page_frame
from stepscope.recorder.page_server import find_server
from stepscope.web.server.server_lock import ServerLock
from tests.browser.serving import Served
from tests.notebook.kernels import stop_server


@pytest.fixture
def registered(folder: Path) -> Iterator[Callable[[str], None]]:
    """Registers an address as that of the store's server."""
    lock = ServerLock(folder)
    assert lock.acquire()
    yield lambda address: lock.write_address(address, None)
    lock.release()


def test_a_server_that_is_dead_is_explained_with_what_to_do(folder: Path, registered) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and listens to nobody
        registered(f"http://127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(StepscopeError, match=r"does not answer at .*\(kill \d+\) and try again"):
            page_frame(folder, "/", 100, "localhost")


@pytest.mark.parametrize("place", ["typo/store", "empty", "file/store"])
def test_a_folder_without_a_store_is_explained_and_no_server_is_started(place: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    with pytest.raises(StepscopeError, match=rf"no store at .*{place}.*--store"):
        page_frame(tmp_path / place, "/", 100, "localhost")
    assert not (tmp_path / "typo").exists()
    assert find_server(tmp_path / place) is None


@pytest.mark.slow
def test_a_monitor_that_has_just_started_has_a_page(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPSCOPE_DASHBOARD__PORT", "0")
    with TrainingMonitor(run="first", directory=folder):
        try:
            assert page_frame(folder, "/", 100, "localhost").address.startswith("http://localhost:")
        finally:
            stop_server(folder)


def test_the_address_of_the_frame_has_a_ticket_and_what_a_person_reads_has_none(
    folder: Path, tmp_path: Path, without_agent
) -> None:
    (tmp_path / "stepscope.yaml").write_text("dashboard: {frame_origins: ['http://localhost:8888']}\n")
    server = Served(folder, shipped=True)
    try:
        frame = page_frame(folder, "/run/a", 321, "localhost")
    finally:
        server.kill()
    shown = frame._repr_html_()
    assert "/run/a?token=ticket-" in frame.address
    assert (folder / "server.token").read_text().strip() not in shown
    assert 'height="321"' in shown
    assert "ticket" not in repr(frame)
    assert shown.count("ticket-") == 1


@pytest.mark.parametrize(
    ("address", "host", "shown"),
    [
        ("http://127.0.0.1:8787/base", "localhost", "http://localhost:8787/base"),
        ("http://[::1]:8787", "127.0.0.1", "http://127.0.0.1:8787"),
        ("https://node1:8787", "localhost", "https://node1:8787"),
    ],
)
def test_a_server_on_loopback_is_named_as_the_notebook_is_and_another_keeps_its_name(
    address: str, host: str, shown: str
) -> None:
    assert address_by(address, host) == shown
