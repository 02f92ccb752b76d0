"""Makes names of people and machines unreadable where somebody asks for it."""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass
from functools import cached_property

_BEFORE = r"(?<![\w.~/-])"
_HOMES = re.compile(_BEFORE + r"/(?:home|Users)/[^/\s\"'`<>|:;,()\[\]{}]+")


def hash_name(value: str, salt: str) -> str:
    """A name that is the same for the same value and salt, and tells nothing without the salt.

    Names of hosts and people are few and guessable: whoever knows the salt finds them by trying.
    """
    mark = hmac.new(_bytes(salt), _bytes(value), hashlib.sha256).hexdigest()
    return f"anon-{mark[:12]}"


def shorten_home(text: str, home: str | None = None) -> str:
    """Writes `~` for the given home directory, and for any below `/home` or `/Users`."""
    home = (home or "").rstrip("/")
    if home and home in text:
        text = re.sub(rf"{_BEFORE}{re.escape(home)}(?![\w.-])", "~", text)
    return _HOMES.sub("~", text) if "/home/" in text or "/Users/" in text else text


@dataclass(frozen=True)
class Privacy:
    """What is made unreadable: nothing unless asked for."""

    salt: str | None = None
    """Names are hashed with it; None leaves them readable."""
    names: tuple[str, ...] = ()
    """Further names to hash wherever text mentions them, such as the user's; hosts are hashed anyway."""
    home: str | None = None
    """The home directory to write as `~`; None leaves paths as they are."""

    def name(self, name: str) -> str:
        """A host's or a user's name as it may be written."""
        return name if self.salt is None else hash_name(name, self.salt)

    def text(self, text: str) -> str:
        """Text as it may be written."""
        if self.home is not None:
            text = shorten_home(text, self.home)
        if self.salt is not None and self._mentioned is not None:
            text = self._mentioned.sub(lambda found: self.name(found[0]), text)
        return text

    @cached_property
    def _mentioned(self) -> re.Pattern[str] | None:
        # Longest first: `node7.cluster` must not become the hash of `node7` and a readable rest.
        names = sorted(filter(None, self.names), key=len, reverse=True)
        return re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, names))})(?![\w-])") if names else None


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
