"""Hashes names of people and machines, and removes personal data, where the settings ask for it."""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

_BEFORE = r"(?<![\w.~/-])"
_HOMES = re.compile(_BEFORE + r"/(?:home|Users)/[^/\s\"'`<>|:;,()\[\]{}]+")


def hash_name(value: str, salt: str) -> str:
    """A name that is the same for the same value and salt, and reveals nothing without the salt.

    Names of hosts and people can be guessed: anyone who knows the salt can find them by trying.
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
    """What is hashed or removed: nothing by default."""

    salt: str | None = None
    """The salt of hashed names; None leaves names readable."""
    names: tuple[str, ...] = ()
    """Further names to hash in text, such as the user's; host names are always hashed."""
    home: str | None = None
    """The home directory to write as `~`; None leaves paths as they are."""
    personal_data: bool = False
    """Whether e-mail addresses, phone numbers, IP addresses and account numbers are removed."""

    def for_names(self) -> Privacy:
        """The same for names and texts of the user's program: hosts and people in them stay readable."""
        return Privacy(personal_data=self.personal_data)

    def name(self, name: str) -> str:
        """A host's or user's name as it may be recorded."""
        return name if self.salt is None else hash_name(name, self.salt)

    def text(self, text: str, name: str = "") -> str:
        """A text as it may be recorded, given the name of its field."""
        if self.home is not None:
            text = shorten_home(text, self.home)
        if self.salt is not None and self._name_pattern is not None:
            text = self._name_pattern.sub(lambda match: self.name(match[0]), text)
        return _without_personal_data(text, name) if self.personal_data else text

    def nested(self, value: Any, name: str = "") -> Any:
        """Nested dictionaries and lists as they may be recorded; values that are not text stay."""
        if self == _DEFAULT:
            return value
        if isinstance(value, dict):
            pair = value.get("key") if "value" in value else None  # the form of a text among metrics
            return {
                self.text(key): self.nested(part, str(pair) if pair and key == "value" else key)
                for key, part in value.items()
            }
        if isinstance(value, list):
            return [self.nested(part, name) for part in value]
        return self.text(value, name) if isinstance(value, str) else value

    @cached_property
    def _name_pattern(self) -> re.Pattern[str] | None:
        # Longest first: `node7.cluster` must not become the hash of `node7` and a readable rest.
        names = sorted(filter(None, self.names), key=len, reverse=True)
        return re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, names))})(?![\w-])") if names else None


_DEFAULT = Privacy()


def _without_personal_data(text: str, name: str) -> str:
    from stepscope.schema.personal_data import redact_personal_data  # lazy: rarely used

    # The name says what a number is: `phone` and `version` count as words before it.
    begin = f"{name}: " if name else ""
    redacted = redact_personal_data(begin + text)
    return redacted.removeprefix(begin) if redacted.startswith(begin) else redact_personal_data(text)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
