"""Checks the options of a channel; what is said about a wrong one never repeats its value."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from stepscope.config.secret import resolve_secret
from stepscope.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    Secret = str | Mapping[str, str]

MAX_TIMEOUT_S = 60.0
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class Options:
    """The options of one channel, by its name and with an example of how it is set up."""

    def __init__(self, channel: str, example: str) -> None:
        self._channel, self._example = channel, example

    def name(self, option: str) -> str:
        """The option as the settings call it."""
        return f"alerts.channels.{self._channel}.{option}"

    def missing(self, option: str) -> ConfigError:
        """What to raise where an option that is needed is not there."""
        return ConfigError(f"{self.name(option)} is not set; a channel looks like {self._example}.")

    def text(self, option: str, value: Secret | None) -> str:
        """The text of an option that must be set: given outright, or read from a variable or a file."""
        if value is None or value == "":
            raise self.missing(option)
        found = self.optional_text(option, value)
        if not found:
            raise ConfigError(f"{self.name(option)} is to be read from a place where there is nothing.")
        return found

    def optional_text(self, option: str, value: Secret | None) -> str:
        """The same for one that need not be set; empty where it is not."""
        if value is None:
            return ""
        try:
            found = resolve_secret(value)
        except ConfigError as error:
            raise ConfigError(f"{self.name(option)}: {error}") from None
        if _CONTROL.search(found):
            raise ConfigError(f"{self.name(option)} has a line break or another control character in it.")
        return found

    def seconds(self, option: str, value: float, most: float = MAX_TIMEOUT_S) -> float:
        """A number of seconds that one can wait for."""
        return float(self._number(option, value, 0.1, most))

    def whole(self, option: str, value: int, least: int, most: int) -> int:
        """A whole number between two others."""
        if not isinstance(value, int):
            raise ConfigError(f"{self.name(option)} must be a whole number.")
        return int(self._number(option, value, least, most))

    def switch(self, option: str, value: bool) -> bool:  # noqa: FBT001 - it is what is checked
        """True or false, and nothing that only looks like it."""
        if not isinstance(value, bool):
            raise ConfigError(f"{self.name(option)} must be true or false.")
        return value

    def _number(self, option: str, value: float, least: float, most: float) -> float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not least <= value <= most:
            raise ConfigError(f"{self.name(option)} must be a number from {least:g} to {most:g}.")
        return value
