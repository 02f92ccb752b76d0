"""The interface of everything that can tell a person."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from stepscope.errors import StepscopeError

if TYPE_CHECKING:
    from stepscope.schema.alert import Notice


class DeliveryError(StepscopeError):
    """A notice did not arrive.

    `is_final` says that trying again is in vain, as with an address that does not exist. Neither the message
    nor anything else of it holds a secret.
    """

    def __init__(self, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.is_final = is_final


class Channel(ABC):
    """One way to tell a person.

    The name of its file is its name under `alerts.channels` in the settings, its constructor's arguments are
    its options there; what is wrong with them raises ConfigError. A constructor that has `_directory` gets
    the working directory of the run, where relative paths begin. It is used by one thread at a time.
    """

    @abstractmethod
    def send(self, notice: Notice) -> None:
        """Delivers a notice; raises DeliveryError where it cannot be known to have arrived."""

    @property
    @abstractmethod
    def target(self) -> str:
        """Where notices go, for people to read; without secrets."""
