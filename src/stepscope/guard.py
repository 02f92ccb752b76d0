"""Contains our own failures: says each once, goes on, and never raises into training unless asked to."""

from __future__ import annotations

import contextlib
import os
import reprlib
import sys
from typing import TYPE_CHECKING, Any

from stepscope.errors import RecorderError

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_SHOWN = 80
"""Characters of a value that a message shows."""

MAX_TOPICS = 500
"""Topics that are warned of; a training that finds more has been told often enough."""


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = MAX_SHOWN


class Guard:
    """Where failures of the recorder end."""

    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        self._said: set[str] = set()

    def complain(self, topic: str, message: str, error: Exception | None = None) -> None:
        """Says something once for each topic; with strict, raises it instead."""
        if self._strict:
            raise RecorderError(message) from error
        self.warn_once(topic, message)

    def warn_once(self, topic: str, message: str) -> None:
        """Says something once for each topic, also with strict: for what nobody could catch."""
        if topic in self._said or len(self._said) > MAX_TOPICS:
            return
        self._said.add(topic)
        if len(self._said) > MAX_TOPICS:
            message = f"{message} Further kinds of mistakes are not reported."
        self.tell(message)

    def attempt(self, what: str, call: Callable[..., object], *arguments: Any) -> None:
        """Does something on which nothing else depends; where it fails, complains."""
        try:
            call(*arguments)
        except RecorderError:
            raise
        except Exception as error:  # noqa: BLE001 - training goes on whatever happens here
            self.complain(what, f"{what} failed: {shown(error)}", error)

    def tell(self, message: str) -> None:
        """Says something every time: for what happens seldom and is not this process's fault."""
        # A handler or filter of the user's own may raise anything, and a lost warning stops no training.
        with contextlib.suppress(Exception):
            try:
                logger = _logger()
            except ImportError:  # a process that has changed its user or root may no longer read its library
                sys.stderr.write(f"{message}\n")
                return
            logger.warning(message)


def shown(value: object) -> str:
    """Writes any value as a message may show it: short, on one line, and never raising."""
    try:
        shape = getattr(value, "shape", ())
        # A tensor is told by its shape: its numbers may lie on a GPU, and would have to be waited for.
        is_tensor = isinstance(shape, tuple) and (shape or getattr(value, "is_cuda", False) is True)
        text = f"<{type(value).__name__} of shape {tuple(shape)}>" if is_tensor else _SHORT.repr(value)
    except Exception as error:  # noqa: BLE001 - a value's own text may raise anything
        text = f"<{type(value).__name__} whose text raises {type(error).__name__}>"
    text = " ".join(text.split())
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 1]}…"


def hidden_modules() -> str:
    """Ends a message with the files beside the script that hide modules of the standard library, if any."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    if not isinstance(script, str):
        return ""
    folder = os.path.dirname(os.path.abspath(script))  # noqa: PTH100, PTH120 - pathlib may be one of them
    loaded = {name: sys.modules[name] for name in sys.stdlib_module_names & sys.modules.keys()}
    files = {name: getattr(module, "__file__", None) or "" for name, module in loaded.items()}
    hidden = [
        f". {file} hides the module {name} of the standard library; rename it"
        for name, file in files.items()
        if name != "__main__" and file and os.path.dirname(os.path.abspath(file)) == folder  # noqa: PTH100, PTH120
    ]
    return "".join(hidden)


def _logger() -> Any:
    import logging  # lazy: most runs have nothing to say

    return logging.getLogger("stepscope")
