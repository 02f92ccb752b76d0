"""Contains stepscope's own failures: logs each once, and raises into training only in strict mode."""

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
"""The most characters of a value in a message."""

MAX_TOPICS = 500
"""The most topics that are reported."""


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = MAX_SHOWN


class Guard:
    """Handles failures of the recorder."""

    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        self._reported_topics: set[str] = set()

    def complain(self, topic: str, message: str, error: Exception | None = None) -> None:
        """Logs a message once for each topic; raises it instead in strict mode."""
        if self._strict:
            raise RecorderError(message) from error
        self.warn_once(topic, message)

    def warn_once(self, topic: str, message: str) -> None:
        """Logs a message once for each topic, also in strict mode: for failures that nobody could catch."""
        if topic in self._reported_topics or len(self._reported_topics) > MAX_TOPICS:
            return
        self._reported_topics.add(topic)
        if len(self._reported_topics) > MAX_TOPICS:
            message = f"{message} Further kinds of mistakes are not reported."
        self.tell(message)

    def attempt(self, what: str, call: Callable[..., object], *arguments: Any) -> None:
        """Calls a function on which nothing else depends; where it fails, complains."""
        try:
            call(*arguments)
        except RecorderError:
            raise
        except Exception as error:  # noqa: BLE001 - training goes on whatever happens here
            self.complain(what, f"{what} failed: {shown(error)}", error)

    def tell(self, message: str) -> None:
        """Logs a message every time: for rare events that are not this process's fault."""
        # A handler or filter of the user may raise anything; a lost warning must not stop a training.
        with contextlib.suppress(Exception):
            try:
                logger = _logger()
            except ImportError:  # after a change of user or root, the library may not be readable
                sys.stderr.write(f"{message}\n")
                return
            logger.warning(message)


def shown(value: object) -> str:
    """Formats any value for a message: short, on one line; never raises."""
    try:
        shape = getattr(value, "shape", ())
        # A tensor is shown by its shape: its numbers may be on a GPU, and reading them would wait for it.
        is_tensor = isinstance(shape, tuple) and (shape or getattr(value, "is_cuda", False) is True)
        text = f"<{type(value).__name__} of shape {tuple(shape)}>" if is_tensor else _SHORT.repr(value)
    except Exception as error:  # noqa: BLE001 - a value's own text may raise anything
        text = f"<{type(value).__name__} whose text raises {type(error).__name__}>"
    text = " ".join(text.split())
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 1]}…"


def hidden_modules() -> str:
    """The end of a message: files beside the script that hide modules of the standard library, if any."""
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
    import logging  # lazy: most runs log nothing

    return logging.getLogger("stepscope")
