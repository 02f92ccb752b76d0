"""Hides secrets in what is printed, and resolves references to them when they are used."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

HIDDEN = "***"
CHANNELS = ("alerts", "channels")

SECRET_WORDS = {"password", "passwords", "passwd", "passphrase", "pwd", "token", "secret"} | {
    "secrets",
    "apikey",
    "credential",
    "credentials",
    "authorization",
}
SECRET_PAIRS = {("api", "key"), ("access", "key"), ("private", "key"), ("auth", "key")}
CAMEL_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
TOKEN_SHAPE = re.compile(
    r"(?:xox[abprs]-|gh[pousr]_|github_pat_|hf_|sk-|AKIA|eyJ)[\w.\-]{12,}|-----BEGIN [A-Z ]*KEY"
)
ADDRESS = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.\-]*://)(?P<user>\S*@)?"
    r"(?P<host>[^\s/?#]*)(?P<path>[^\s?#]*)(?P<rest>[?#]\S*)?"
)


def is_secret(name: str) -> bool:
    """Whether a key of this name holds a secret; `token_file` names a file and does not."""
    words = [word for word in re.split(r"[^a-z0-9]+", CAMEL_HUMP.sub("_", name).lower()) if word]
    if words and words[-1] == "file":
        return False
    return not SECRET_WORDS.isdisjoint(words) or not SECRET_PAIRS.isdisjoint(itertools.pairwise(words))


def redacted(value: Any, key: Sequence[str] = ()) -> Any:
    """Returns the value as it may be shown: secrets become `***`, references stay."""
    if is_reference(value):
        return {kind: _redacted_text(name, in_channel=True) for kind, name in value.items()}
    if key and (is_secret(str(key[-1])) or "headers" in key[:-1]):
        return value if value is None else HIDDEN
    if isinstance(value, Mapping):
        return {name: redacted(part, (*key, str(name))) for name, part in value.items()}
    if isinstance(value, list):
        return [redacted(part, key) for part in value]
    if isinstance(value, str):
        return _redacted_text(value, in_channel=tuple(key[:2]) == CHANNELS)
    return value


def is_reference(value: Any) -> bool:
    """Whether a value is `{env: NAME}` or `{file: PATH}`."""
    return (
        isinstance(value, Mapping)
        and len(value) == 1
        and all(kind in {"env", "file"} and isinstance(name, str) for kind, name in value.items())
    )


def resolve_secret(value: str | Mapping[str, str], environment: Mapping[str, str] = os.environ) -> str:
    """Returns the secret itself, read from the variable or the file that the value refers to."""
    if isinstance(value, str):
        return value
    if not is_reference(value):
        raise ConfigError("A secret is text, {env: NAME} or {file: PATH}.")
    [(kind, name)] = value.items()
    if kind == "env":
        if name not in environment:
            raise ConfigError(f"A secret refers to the variable {name}, which is not set.")
        return environment[name]
    try:
        return Path(name).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"A secret refers to the file {name}, which cannot be read: {reason}.") from None


def _redacted_text(text: str, *, in_channel: bool) -> str:
    def shown(address: re.Match[str]) -> str:
        user = f"{HIDDEN}@" if address["user"] else ""
        # The path of a webhook's URL is its password.
        path = f"/{HIDDEN}" if in_channel and address["path"].strip("/") else address["path"]
        rest = f"?{HIDDEN}" if address["rest"] else ""
        return f"{address['scheme']}{user}{address['host']}{path}{rest}"

    return HIDDEN if TOKEN_SHAPE.search(text) else ADDRESS.sub(shown, text)
