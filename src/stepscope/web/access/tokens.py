"""The access token: 256 bits in a file only its owner can read, and the cookie derived from it."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import time
from pathlib import Path

from stepscope.errors import ConfigError
from stepscope.filesystem import atomic_file, write_once

FILE_NAME = "server.token"
MIN_CHARACTERS = 16
COOKIE_SECONDS = 30 * 24 * 3600
TICKET_SECONDS = 60
TICKET_START = "ticket-"


def path_of(folder: Path, configured: str | None) -> Path:
    """The token file of a store's server: the one in the settings, else one in the store folder."""
    return Path(configured) if configured else folder / FILE_NAME


def token_of(path: Path) -> str:
    """The token in a file; creates both where there is no file."""
    token = _read(path)
    if token is None:
        _create_once(path)
        token = _read(path)
    if token is None or len(token) < MIN_CHARACTERS:
        raise ConfigError(
            f"{path} has no valid token; it must be one line of at least {MIN_CHARACTERS} characters. "
            "Remove the file: the next start creates a new token."
        )
    return token


def new_token(path: Path) -> str:
    """Replaces the token in a file; the old one is no longer valid."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path, 0o600) as temporary:
            temporary.write_bytes(_random_token())
    except OSError as error:
        raise _cannot_write(path, error) from error
    return token_of(path)


def cookie_name(token: str) -> str:
    """The cookie's name; differs between servers, since cookies ignore the port."""
    return f"stepscope-{hashlib.sha256(b'name' + token.encode()).hexdigest()[:10]}"


def cookie_value(token: str) -> str:
    """The cookie's value: proves knowledge of the token without containing it."""
    return hmac.new(token.encode(), b"stepscope cookie", hashlib.sha256).hexdigest()


def new_ticket(token: str, now_s: float | None = None) -> str:
    """A text that opens the page for a minute: for output that is saved, as that of a notebook is."""
    return _ticket_until(token, int(time.time() if now_s is None else now_s) + TICKET_SECONDS)


def is_ticket(received: str) -> bool:
    """Whether this has the form of a ticket, which may have expired."""
    return received.startswith(TICKET_START)


def is_valid_ticket(received: str, token: str, now_s: float | None = None) -> bool:
    """Whether this is a ticket made with the token, and has not expired."""
    now_s = time.time() if now_s is None else now_s
    end, _, _ = received.removeprefix(TICKET_START).partition("-")
    if not (is_ticket(received) and end.isascii() and end.isdecimal() and len(end) < 16):
        return False
    return is_same(received, _ticket_until(token, int(end))) and now_s <= int(end) <= now_s + TICKET_SECONDS


def _ticket_until(token: str, end_s: int) -> str:
    proof = hmac.new(token.encode(), f"stepscope ticket {end_s}".encode(), hashlib.sha256).hexdigest()
    return f"{TICKET_START}{end_s}-{proof}"


def is_same(received: str, secret: str) -> bool:
    """Compares secrets in a time that does not depend on where they differ."""
    return hmac.compare_digest(received.encode("utf-8", "surrogateescape"), secret.encode())


def _read(path: Path) -> str | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"The token file {path} cannot be read: {error.strerror}.") from error
    with os.fdopen(descriptor, encoding="utf-8", errors="replace") as file:
        mode = os.fstat(descriptor).st_mode
        if mode & 0o077:
            raise ConfigError(
                f"The token file {path} can be read by others (mode {mode & 0o777:o}). "
                f"Fix it with: chmod 600 {path}"
            )
        return file.read(4096).strip()


def _create_once(path: Path) -> None:
    """Writes a token, unless another server has written one at the same time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_once(path, _random_token(), 0o600)
    except OSError as error:
        raise _cannot_write(path, error) from error


def _random_token() -> bytes:
    return f"{secrets.token_urlsafe(32)}\n".encode()


def _cannot_write(path: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"The token file {path} cannot be written: {error.strerror}. Name another with dashboard.token_file."
    )
