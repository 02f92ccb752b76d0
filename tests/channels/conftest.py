"""What the tests of channels share: servers on the loopback interface, and a certificate for them."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme

from tests.channels.loopback import Receiver, receiver


@dataclass(frozen=True)
class Certificate:
    """Made for these tests; nobody but they trusts it."""

    file: Path
    """That of the authority, which is to be trusted."""
    chain: Path
    """Key and certificate of the server."""

    @property
    def server(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.chain)
        return context

    def trusting(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.file))


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """For localhost and the name hooks.example."""
    folder = tmp_path_factory.mktemp("certificate")
    made = Certificate(folder / "authority.pem", folder / "server.pem")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(made.file))
    issued = authority.issue_cert("localhost", "hooks.example", "127.0.0.1")
    issued.private_key_and_cert_chain_pem.write_to_path(str(made.chain))
    return made


@pytest.fixture
def web() -> Iterator[Receiver]:
    """A web server."""
    with receiver() as started:
        yield started
