"""Base class of alert channels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from stepscope.errors import StepscopeError

if TYPE_CHECKING:
    from stepscope.schema.alert import Notice


class DeliveryError(StepscopeError):
    """A notice could not be delivered.

    `is_final` means that a retry cannot succeed, as for an address that does not exist. The error contains no
    secret, neither in its message nor elsewhere.
    """

    def __init__(self, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.is_final = is_final


class Channel(ABC):
    """Delivers notices to people.

    The file is named after the channel's name under `alerts.channels` in the settings. The arguments of the
    constructor are its options there; it raises ConfigError for invalid ones. A parameter `_directory` gets
    the working directory of the run, where relative paths start. One thread at a time uses a channel.
    """

    @abstractmethod
    def send(self, notice: Notice) -> None:
        """Delivers a notice; raises DeliveryError if it is not certain that it arrived."""

    @property
    @abstractmethod
    def target(self) -> str:
        """Where notices go, for people to read, without secrets."""
