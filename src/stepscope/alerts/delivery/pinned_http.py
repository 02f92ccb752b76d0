"""Sends HTTP POST requests: resolves the host once, connects to that address, no redirects, one deadline.

It uses `http.client`: httpx would not make it shorter. Time limits of httpx are for single operations, so
resolving, deadline and maximum size would still be ours: on httpcore it has 197 lines instead of 198.
Importing httpx 0.28 would add 60 ms and 8 MiB to an agent, httpcore alone 20 ms and 1.6 MiB; this module adds
10 ms and 1.1 MiB.
"""

from __future__ import annotations

import http.client
import io
import queue
import socket
import ssl
import threading
import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepscope.alerts.delivery.web_address import is_public
from stepscope.channels.base import DeliveryError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from typing_extensions import Buffer

    from stepscope.alerts.delivery.web_address import WebAddress

TIMEOUT_S = 5.0
MAX_ANSWER_BYTES = 64 * 1024
WORTH_RETRYING = frozenset([408, 425, 429])


def resolve(host: str, port: int) -> list[str]:
    """Returns the IP addresses of a host, each once, in the system's order."""
    results = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in results))


@dataclass(frozen=True)
class Network:
    """The network functions of this process; tests replace them."""

    resolve: Callable[[str, int], Sequence[str]] = resolve
    connect: Callable[[tuple[str, int], float], socket.socket] = socket.create_connection
    tls: Callable[[], ssl.SSLContext] = ssl.create_default_context


class Deadline:
    """The time limit of a whole request."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left_s(self) -> float:
        """Returns the remaining seconds; raises TimeoutError if there are none."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


class Poster:
    """Posts to one address; `public_only` refuses every host with an address in a private network.

    It does not use proxies of the environment, does not follow redirects, and reads only the status of the
    answer.
    """

    def __init__(
        self,
        address: WebAddress,
        timeout_s: float = TIMEOUT_S,
        *,
        public_only: bool = False,
        network: Network | None = None,
    ) -> None:
        self._address, self._timeout_s, self._public_only = address, timeout_s, public_only
        self._network = network or Network()

    @property
    def target(self) -> str:
        """The address without the path, which may be a password."""
        return self._address.shown

    def post(self, body: bytes, headers: Mapping[str, str]) -> None:
        """Posts once; raises DeliveryError if the answer is not a success."""
        try:
            status = self._status(body, headers, Deadline(self._timeout_s))
        except TimeoutError:
            raise DeliveryError(f"{self.target} did not answer within {self._timeout_s:g} s.") from None
        except ssl.SSLCertVerificationError as error:
            reason = error.verify_message
            raise DeliveryError(f"{self.target} has no trusted certificate: {reason}.") from error
        except http.client.HTTPException:
            # Not chained: its text repeats what the server sent.
            raise DeliveryError(f"{self.target} did not send a valid HTTP response.") from None
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise DeliveryError(f"{self.target} cannot be reached: {reason}.") from error
        self._check_status(status)

    def _status(self, body: bytes, headers: Mapping[str, str], deadline: Deadline) -> int:
        addresses = self._resolved(deadline)
        if self._public_only and not all(is_public(address) for address in addresses):
            raise DeliveryError(
                f"{self.target} has an address that is not public; nothing was sent.", is_final=True
            )
        with closing(_TimedSocket(self._connected(addresses, deadline), deadline)) as link:
            if self._address.is_tls:
                link.encrypt(self._network.tls(), self._address.name)
            connection = http.client.HTTPConnection(self._address.name, self._address.port)
            # An existing socket instead of connecting by name, which would resolve the name again.
            connection.sock = link
            connection.auto_open = 0
            sent = {"Host": self._address.authority, "Connection": "close", **headers}
            connection.request("POST", self._address.path, body, sent)
            with closing(connection.getresponse()) as response:
                return response.status

    def _resolved(self, deadline: Deadline) -> Sequence[str]:
        """Returns the addresses of the host; resolved in a thread because the system sets no time limit."""
        answers: queue.SimpleQueue[Sequence[str] | OSError] = queue.SimpleQueue()

        def ask() -> None:
            try:
                answers.put(self._network.resolve(self._address.host, self._address.port))
            except OSError as error:
                answers.put(error)

        threading.Thread(target=ask, name="stepscope-resolve", daemon=True).start()
        try:
            answer = answers.get(timeout=deadline.left_s())
        except queue.Empty:
            raise TimeoutError from None
        if isinstance(answer, OSError):
            raise answer
        return answer

    def _connected(self, addresses: Sequence[str], deadline: Deadline) -> socket.socket:
        failure = OSError("the name has no address")
        for place, address in enumerate(addresses):
            share_s = deadline.left_s() / (len(addresses) - place)
            try:
                return self._network.connect((address, self._address.port), share_s)
            except OSError as error:
                failure = error
        raise failure

    def _check_status(self, status: int) -> None:
        if 200 <= status < 300:
            return
        if 300 <= status < 400:
            raise DeliveryError(
                f"{self.target} answered {status}, a redirect, which is not followed; "
                "set the address it leads to.",
                is_final=True,
            )
        is_final = 400 <= status < 500 and status not in WORTH_RETRYING
        raise DeliveryError(f"{self.target} answered {status}.", is_final=is_final)


class _TimedSocket:
    """The part of a socket that http.client needs, with one deadline for all sending and receiving."""

    def __init__(self, connected: socket.socket, deadline: Deadline) -> None:
        self._socket, self._deadline = connected, deadline

    def encrypt(self, context: ssl.SSLContext, name: str) -> None:
        self._socket.settimeout(self._deadline.left_s())
        self._socket = context.wrap_socket(self._socket, server_hostname=name)

    def sendall(self, content: Buffer) -> None:
        left = memoryview(content)
        while left:
            self._socket.settimeout(self._deadline.left_s())
            left = left[self._socket.send(left) :]

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_LimitedReader(self._socket, self._deadline))

    def close(self) -> None:
        self._socket.close()


class _LimitedReader(io.RawIOBase):
    """Reads from a socket until the deadline, up to the maximum size of an answer."""

    def __init__(self, connected: socket.socket, deadline: Deadline) -> None:
        self._socket, self._deadline, self._left = connected, deadline, MAX_ANSWER_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        if not self._left:
            raise http.client.HTTPException
        self._socket.settimeout(self._deadline.left_s())
        count = self._socket.recv_into(memoryview(buffer)[: self._left])
        self._left -= count
        return count
