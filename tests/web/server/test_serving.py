"""Real servers: how they start, what they refuse, what they print, and how they end."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import ssl
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
import trustme

from stepscope.recorder.page_server import find_server
from stepscope.store.sqlite import SqliteStore
from tests.web.asking import API, RUN, append, rich_store, times

Serve = Callable[..., "subprocess.Popen[str]"]
PAGE = re.compile(r"page +(\S+)")


@pytest.fixture
def serve(folder: Path) -> Iterator[Serve]:
    """Starts `stepscope serve` on the store, as a process of its own, on any free port by default."""
    started: list[subprocess.Popen[str]] = []

    def start(*flags: object, store: Path = folder, **environment: str) -> subprocess.Popen[str]:
        port = () if any(str(flag).startswith(("--port", "--unix")) for flag in flags) else ("--port", "0")
        known = {name: value for name, value in os.environ.items() if name != "SSH_CONNECTION"}
        process = subprocess.Popen(
            [sys.executable, "-m", "stepscope", "serve", "--store", str(store), *port, *map(str, flags)],
            env={**known, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=120)
        if process.poll() is None:
            process.kill()
            process.communicate()


def link_of(process: subprocess.Popen[str]) -> str:
    """The address with token that a server prints first."""
    line = process.stdout.readline()
    assert line.startswith("page"), line + process.stderr.read()
    return PAGE.match(line)[1]


def client_of(link: str, **options) -> httpx.Client:
    address, _, token = link.partition("/?token=")
    return httpx.Client(base_url=address, headers={"Authorization": f"Bearer {token}"}, **options)


def raw(link: str, text: str) -> bytes:
    """Sends bytes as they are and reads the answer."""
    address = httpx.URL(link)
    with socket.create_connection((address.host, address.port), timeout=10) as connection:
        connection.sendall(text.encode().replace(b"\n", b"\r\n"))
        received = b""
        with contextlib.suppress(ConnectionError):
            while part := connection.recv(65536):
                received += part
        return received


@pytest.mark.slow
def test_a_server_prints_at_most_four_lines_does_not_leak_its_token_and_ends_on_a_signal(
    folder, serve, until
) -> None:
    rich_store(folder).close()
    process = serve(SSH_CONNECTION="10.0.0.9 50000 10.0.0.5 2222")
    link = link_of(process)
    lines = [process.stdout.readline() for _ in range(3)]
    port = httpx.URL(link).port
    assert lines[0].split() == ["store", str(folder)]
    assert "Ctrl-C" in lines[1]
    assert f"ssh -N -p 2222 -L {port}:127.0.0.1:{port} " in lines[2]
    assert lines[2].rstrip().endswith("@10.0.0.5")
    token = link.partition("token=")[2]
    assert (folder / "server.token").read_text().strip() == token
    for name in ("server.token", "server.json", "server.log", "server.lock"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600, name
    assert token not in (folder / "server.json").read_text()
    assert token not in Path(f"/proc/{process.pid}/cmdline").read_text()
    assert token not in Path(f"/proc/{process.pid}/environ").read_text()

    with client_of(link) as client:
        assert client.get(f"{API}/runs").json()["total"] == 1
        response = client.get(link, headers={"Authorization": ""})
        assert response.status_code == 303
        assert "server" not in response.headers
        assert client.get(f"{API}/health", headers={"Authorization": ""}).json() == {"status": "ok"}

    # What only bytes on a wire can say: a target that names a host, two hosts, none, and ways out.
    bearer = f"Authorization: Bearer {token}\nConnection: close\n"
    home = f"Host: 127.0.0.1:{port}\n"
    for request, status in (
        (f"GET {API}/meta HTTP/1.1\n{home}{bearer}\n", b"200"),
        (f"GET http://evil.test{API}/meta HTTP/1.1\n{home}{bearer}\n", b"403"),
        (f"GET http://127.0.0.1:{port}{API}/meta HTTP/1.1\n{home}{bearer}\n", b"403"),
        (f"GET {API}/meta HTTP/1.1\n{home}Host: evil.test\n{bearer}\n", b"4"),
        (f"GET {API}/meta HTTP/1.1\nHost: evil.test\n{home}{bearer}\n", b"4"),
        (f"GET {API}/meta HTTP/1.1\n{bearer}\n", b"4"),
        (f"GET {API}/meta HTTP/1.0\n{bearer}\n", b"403"),
        (f"GET /assets/../../serving.py HTTP/1.1\n{home}{bearer}\n", b""),
        (f"GET /assets/%2e%2e/%2e%2e/serving.py HTTP/1.1\n{home}{bearer}\n", b""),
        (f"GET /../../../../etc/passwd HTTP/1.1\n{home}{bearer}\n", b""),
        (f"GET /%00 HTTP/1.1\n{home}{bearer}\n", b""),
        ("BREW / HTCPCP/1.0\n\n", b""),
    ):
        answer = raw(link, request)
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.split(b" ")[1].startswith(status), request
        assert b"import" not in body
        assert b"root:" not in body
        assert b"uvicorn" not in head.lower()
    log = (folder / "server.log").read_text()
    assert "GET '/api/v1/meta' 200" in log
    assert token not in log

    again = serve("--port", "1")
    assert link_of(again) == link
    assert again.wait(20) == 0
    assert "options of this command have no effect" in again.stderr.read()

    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 0
    assert process.stderr.read() == ""
    assert not (folder / "server.json").exists()
    assert find_server(folder) is None


@pytest.mark.slow
def test_a_server_refuses_options_that_would_expose_the_store(tmp_path, serve) -> None:
    certificate = tmp_path / "cert.pem"
    certificate.write_text("x")
    cases = {
        ("--host", "0.0.0.0", "--no-token"): "--no-token was given together with the address 0.0.0.0",
        ("--host", "::", "--no-token"): "--no-token was given together with the address ::",
        ("--host", "192.168.3.4", "--no-token", "--behind-proxy"): "allowed on 127.0.0.1 alone",
        ("--tls-certificate", certificate): "belong together",
        ("--tls-certificate", certificate, "--tls-key", tmp_path / "none"): "there is no such file",
        ("--base-path", "/a b"): "--base-path is '/a b'",
        ("--host", "no-such-host.invalid"): "not an address of this machine",
        ("--port", "70000"): "give a number from 0 to 65535",
    }
    started = {flags: serve(*flags, store=tmp_path / str(number)) for number, flags in enumerate(cases)}
    for flags, process in started.items():
        out, err = process.communicate(timeout=120)
        assert process.returncode in (1, 2), flags
        assert cases[flags] in err, flags
        assert out == ""


@pytest.mark.slow
def test_a_server_warns_if_traffic_is_not_encrypted(tmp_path, serve) -> None:
    quiet = [("--host", "localhost", "--no-token"), ("--host", "0.0.0.0", "--behind-proxy")]
    loud = [("--host", "0.0.0.0", "--allow-host", "runs.example.com")]
    started = {
        flags: serve(*flags, store=tmp_path / str(number)) for number, flags in enumerate(quiet + loud)
    }
    for flags, process in started.items():
        link = link_of(process)
        assert ("token=" in link) is ("--no-token" not in flags)
        port = httpx.URL(link).port
        with httpx.Client() as client:
            status = client.get(f"http://127.0.0.1:{port}{API}/meta").status_code
        assert status == (200 if "--no-token" in flags else 401)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=120)
        assert ("WARNING" in err) is (flags in loud), flags
        if flags in loud:
            assert link.startswith("http://runs.example.com:")
            assert "not encrypted" in err


@pytest.mark.slow
def test_a_used_port_is_an_error_if_it_was_requested_and_otherwise_the_next_is_used(tmp_path, serve) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        exact = serve("--port", port, store=tmp_path / "a")
        near = subprocess.Popen(
            [sys.executable, "-m", "stepscope", "serve", "--store", str(tmp_path / "b")],
            env={**os.environ, "STEPSCOPE_DASHBOARD__PORT": str(port)},
            stdout=subprocess.PIPE,
            text=True,
        )
        _, err = exact.communicate(timeout=120)
        assert exact.returncode == 1
        assert f"Port {port} of 127.0.0.1 is in use by another program" in err
        assert port < httpx.URL(link_of(near)).port <= port + 50
        near.terminate()
        near.communicate(timeout=120)


@pytest.mark.slow
def test_with_a_certificate_it_is_https_and_by_a_socket_file_only_its_owner_gets_in(
    tmp_path, serve, until
) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    rich_store(tmp_path / "a").close()
    rich_store(tmp_path / "b").close()
    files = ("--tls-certificate", tmp_path / "cert.pem", "--tls-key", tmp_path / "key.pem")
    secure = serve(*files, "--base-path", "/deep/er", store=tmp_path / "a")
    path = tmp_path / "page.socket"
    local = serve("--unix-socket", path, "--read-only", store=tmp_path / "b")

    link = link_of(secure)
    assert link.startswith("https://127.0.0.1:")
    trusted = ssl.create_default_context()
    authority.configure_trust(trusted)
    with httpx.Client(verify=trusted, follow_redirects=True) as client:
        assert client.get(link).status_code == 200
        assert str(client.get(link).url).endswith("/deep/er/")
        assert client.cookies
        assert client.get(f"{link.partition('?')[0]}api/v1/runs").json()["total"] == 1

    token = link_of(local).partition("token=")[2]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://localhost") as client:
        bearer = {"Authorization": f"Bearer {token}"}
        assert client.get(f"{API}/meta", headers=bearer).json()["read_only"] is True
        assert client.post(f"{API}/demo", headers=bearer).status_code == 405
        assert client.get(f"{API}/meta").status_code == 401
    local.terminate()
    assert local.wait(20) == 0
    assert not path.exists()


def events_of(lines: Iterator[str], wanted: str) -> Iterator[tuple[str, dict]]:
    """Id and data of the events of one kind."""
    event = identity = ""
    for line in lines:
        name, _, rest = line.partition(": ")
        if name == "event":
            event, identity = rest, ""
        elif name == "id":
            identity = rest
        elif name == "data" and event == wanted:
            yield identity, json.loads(rest)


@pytest.mark.slow
def test_a_stream_continues_after_the_server_was_killed_and_restarted(folder, serve) -> None:
    store = rich_store(folder)
    first = serve()
    link = link_of(first)
    got: list[float] = []

    def log(number: int) -> None:
        append(store, {"live": [float(number)]}, [number], times(1, 2000 + number))

    def take(link: str, headers: dict[str, str], count: int) -> str:
        """Reads events until so many points have come; the id of the last is where to go on."""
        identity = ""
        with (
            client_of(link, timeout=30) as client,
            client.stream("GET", f"{API}/stream?run={RUN}&keys=live", headers=headers) as stream,
        ):
            assert stream.headers["content-type"].startswith("text/event-stream")
            lines = stream.iter_lines()
            if not headers:
                next(events_of(lines, "hello"))
                log(0)
            for event, data in events_of(lines, "points"):
                identity = event
                got.extend(value for part in data["series"] for value in part["values"])
                if len(got) >= count:
                    break
        return identity

    identity = take(link, {}, 1)
    first.kill()
    first.wait(10)
    for number in (1, 2, 3):
        log(number)
    second = serve()
    take(link_of(second), {"Last-Event-ID": identity}, 4)
    assert got == [0.0, 1.0, 2.0, 3.0]
    # A server whose streams are open ends all the same, and soon.
    with client_of(link_of(serve()), timeout=30) as client, client.stream("GET", f"{API}/stream") as stream:
        next(stream.iter_lines())
        second.terminate()
        assert second.wait(15) == 0
    store.close()


@pytest.mark.slow
def test_unread_journals_are_read_in_the_background(folder, serve, run_script, until) -> None:
    run_script(
        """
        import stepscope
        with stepscope.TrainingMonitor({"agent": {"mode": "none"}}, run="left") as monitor:
            monitor.log_training_step(loss=1.0)
        """
    )
    assert not (folder / "store.sqlite").exists()
    with client_of(link_of(serve())) as client:
        until(lambda: [row["name"] for row in client.get(f"{API}/runs").json()["runs"]] == ["left"])


def test_word_of_a_server_that_has_died_or_is_not_ours_is_not_believed(folder) -> None:
    SqliteStore(folder / "store.sqlite").close()
    assert find_server(folder) is None
    alive = {"pid": os.getpid(), "start_ticks": 1, "boot_id": None, "namespace": None}
    record = {
        "address": "http://127.0.0.1:1",
        "token_file": None,
        "host": os.uname().nodename,
        "process": alive,
    }
    for content in ("", "[]", "{}", json.dumps(record), json.dumps({**record, "host": "elsewhere"})):
        (folder / "server.json").write_text(content)
        assert find_server(folder) is None


def test_no_server_module_can_unpickle_and_none_is_loaded_by_a_training(run_script) -> None:
    package = Path(__file__).parents[3] / "src" / "stepscope" / "web"
    for path in package.glob("*.py"):
        assert not re.search(r"\b(pickle|marshal|shelve|eval|exec)\b\(?", path.read_text()), path
    result = run_script(
        """
        import sys, stepscope
        with stepscope.TrainingMonitor(run="a") as monitor:
            monitor.log_training_step(loss=1.0)
            assert monitor.url is None
        print(sorted({"fastapi", "uvicorn", "starlette", "pydantic", "asyncio", "numpy"} & set(sys.modules)))
        print([name for name in sys.modules if name.startswith("stepscope.web")])
        """
    )
    assert result.stdout == "[]\n[]\n", result.stderr


@pytest.mark.slow
def test_a_folder_without_a_store_is_reported_as_empty(tmp_path, serve) -> None:
    process = serve(store=tmp_path / "typo")
    link_of(process)
    process.terminate()
    _, err = process.communicate(timeout=120)
    assert f"There is no store at {tmp_path / 'typo'} yet." in err
    assert not list(tmp_path.glob(":memory:*")), "it leaves files in the working directory"
