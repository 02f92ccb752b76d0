"""Removes secrets from the names of runs and projects before ids and folders are derived from them.

Two names that differ only in their secret must stay two runs, and a resumed run must keep its id. So a name
that contained a secret gets a hash of the whole name as a suffix. A weak secret must not be recoverable from
the hash by brute force: the hash uses scrypt, which takes about 50 ms and 16 MB per attempt, and a random
key. The key is in a file in the store folder that only its owner can read.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from typing import TYPE_CHECKING

from stepscope.filesystem import read_regular, write_once
from stepscope.schema.redact import redact_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from stepscope.schema.identity import Identity
    from stepscope.schema.privacy import Privacy

KEY_FILE = "names.key"
KEY_BYTES = 32


def without_secrets(
    identity: Identity, folder: Path | None, privacy: Privacy, warn: Callable[[str], None]
) -> Identity:
    """The same identity with names that are safe to record; logs a warning if a name was changed.

    A name has the same result in every process that uses the store folder. Without a folder no file is
    created, and the result is valid for this process only.
    """
    key: bytes | None = None
    names = {"run": identity.name, "project": identity.project}
    for kind, name in names.items():
        safe = _redacted(name, privacy)
        if safe == name:
            continue
        key = key or (_key_of(folder) if folder is not None else os.urandom(KEY_BYTES))
        names[kind] = _marked(safe, name, key, privacy)
        warn(f"The name of the {kind} contains a secret or personal data; it is recorded as {names[kind]!r}.")
    return identity if key is None else replace(identity, name=names["run"], project=names["project"])


def _redacted(name: str, privacy: Privacy) -> str:
    return privacy.for_names().text(redact_text(name))


def _marked(safe: str, name: str, key: bytes, privacy: Privacy) -> str:
    import hashlib  # lazy: it loads a library, and is rarely needed

    secret = name.encode("utf-8", "surrogatepass")
    mark = hashlib.scrypt(secret, salt=key, n=2**14, r=8, p=1, dklen=4).hex()
    marked = f"{safe}-{mark}"
    # A process that is started with the new name must get the same one.
    return marked if _redacted(marked, privacy) == marked else f"redacted-{mark}"


def _key_of(folder: Path) -> bytes:
    """The key of a store folder, created by the first process that needs it."""
    path = folder / KEY_FILE
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            write_once(path, os.urandom(KEY_BYTES), 0o600)
        key = read_regular(path)
        if len(key) == KEY_BYTES:
            return key
    return os.urandom(KEY_BYTES)  # nothing can be recorded there either
