"""What the tests of channels share: servers on the loopback interface, and a certificate for them."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.channels.loopback import Receiver, receiver


@dataclass(frozen=True)
class Certificate:
    """Made for these tests; nobody but they trusts it."""

    file: Path
    key: Path

    @property
    def server(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.file, self.key)
        return context

    def trusting(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.file))


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """For localhost and the name hooks.example."""
    folder = tmp_path_factory.mktemp("certificate")
    made = Certificate(folder / "certificate.pem", folder / "key.pem")
    names = "subjectAltName=DNS:localhost,DNS:hooks.example,IP:127.0.0.1"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
    ]
    command += ["-days", "2", "-subj", "/CN=localhost", "-addext", names]
    command += ["-keyout", str(made.key), "-out", str(made.file)]
    subprocess.run(command, check=True, capture_output=True)
    return made


@pytest.fixture
def web() -> Iterator[Receiver]:
    """A web server."""
    with receiver() as started:
        yield started
