"""Checks the options of a channel; error messages never repeat a value, which may be a secret."""

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
    """Checks the options of one channel; error messages show an example of its settings."""

    def __init__(self, channel: str, example: str) -> None:
        self._channel, self._example = channel, example

    def name(self, option: str) -> str:
        """Returns the full name of an option in the settings."""
        return f"alerts.channels.{self._channel}.{option}"

    def missing(self, option: str) -> ConfigError:
        """Creates the error for a required option that is not set."""
        return ConfigError(f"{self.name(option)} is not set; example: {self._example}.")

    def text(self, option: str, value: Secret | None) -> str:
        """Returns the text of a required option: given directly, or read from a variable or a file."""
        if value is None or value == "":
            raise self.missing(option)
        text = self.optional_text(option, value)
        if not text:
            raise ConfigError(f"{self.name(option)} is read from a variable or file that is empty.")
        return text

    def optional_text(self, option: str, value: Secret | None) -> str:
        """Returns the text of an optional option; empty if it is not set."""
        if value is None:
            return ""
        try:
            text = resolve_secret(value)
        except ConfigError as error:
            raise ConfigError(f"{self.name(option)}: {error}") from None
        if _CONTROL.search(text):
            raise ConfigError(f"{self.name(option)} contains a line break or another control character.")
        return text

    def seconds(self, option: str, value: float, most: float = MAX_TIMEOUT_S) -> float:
        """Checks a timeout in seconds."""
        return float(self._number(option, value, 0.1, most))

    def whole(self, option: str, value: int, least: int, most: int) -> int:
        """Checks a whole number in a range."""
        if not isinstance(value, int):
            raise ConfigError(f"{self.name(option)} must be a whole number.")
        return int(self._number(option, value, least, most))

    def switch(self, option: str, value: bool) -> bool:  # noqa: FBT001 - the value to check
        """Checks that a value is true or false."""
        if not isinstance(value, bool):
            raise ConfigError(f"{self.name(option)} must be true or false.")
        return value

    def _number(self, option: str, value: float, least: float, most: float) -> float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not least <= value <= most:
            raise ConfigError(f"{self.name(option)} must be a number from {least:g} to {most:g}.")
        return value
