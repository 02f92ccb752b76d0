"""The commands of a notebook: `%stepscope` shows the page, `%%watch` records a cell as a run."""

from __future__ import annotations

import argparse
import ast
import contextlib
import inspect
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote

from IPython.core.error import UsageError
from IPython.display import display

from stepscope.errors import StepscopeError
from stepscope.notebook.page_frame import LOCALHOST, page_frame
from stepscope.reading import default_folder, open_store
from stepscope.recorder.monitor import TrainingMonitor

if TYPE_CHECKING:
    from types import CodeType

    from IPython.core.interactiveshell import InteractiveShell

    from stepscope.notebook.page_frame import PageFrame

VARIABLE = "monitor"
"""The name by which a cell under `%%watch` finds its monitor."""

HEIGHT = 720
MAX_HEIGHT = 10_000


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Adds the commands to a notebook, for `%load_ext stepscope`."""
    magics = Magics(shell)
    shell.register_magic_function(magics.stepscope, "line", "stepscope")
    shell.register_magic_function(magics.watch, "cell", "watch")


class Options(argparse.ArgumentParser):
    """A parser of a command's line, whose mistakes are those of a cell and do not end the kernel."""

    def error(self, message: str) -> NoReturn:
        """Shows the mistake and the usage below the cell."""
        raise UsageError(f"{message}\n{self.format_usage().strip()}")

    def read(self, line: str) -> argparse.Namespace:
        """The options of a line."""
        try:
            words = shlex.split(line)
        except ValueError as error:  # a quotation mark without its pair
            self.error(str(error))
        return self.parse_args(words)


class Magics:
    """The commands, for the shell of one notebook."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell

    def stepscope(self, line: str) -> PageFrame:
        """Shows the page of a store in a frame; starts its server if none runs.

        %stepscope [RUN] [--store FOLDER] [--height PIXELS] [--host NAME]
        """
        options = _PAGE.read(line)
        folder = Path(options.store).expanduser() if options.store else default_folder()
        try:
            path = "/" if options.run is None else _path_of(folder, options.run)
            return page_frame(folder.absolute(), path, options.height, options.host)
        except StepscopeError as error:
            raise UsageError(str(error)) from error

    def watch(self, line: str, cell: str) -> Any:
        """Records the cell as a run of its own, and shows the run below it.

        %%watch [NAME] [--project PROJECT] [--store FOLDER]

        The cell finds its monitor in the variable `monitor`.
        """
        options = _WATCH.read(line)
        names = self._shell.user_ns
        before = names.get(VARIABLE)
        if isinstance(before, TrainingMonitor) and before.is_recording:
            raise UsageError(
                f"The variable `{VARIABLE}` records the run {before.identity.name!r}, and %%watch would "
                f"replace it. End the run with {VARIABLE}.stop_monitoring(), or leave out %%watch."
            )
        compiled = self._compiled(cell)  # before the run starts: a cell with a syntax error is no run
        try:
            monitor = TrainingMonitor(run=options.name, project=options.project, directory=options.store)
        except StepscopeError as error:
            raise UsageError(str(error)) from error
        names[VARIABLE] = monitor
        try:
            with monitor:
                return self._execute(*compiled)
        finally:
            display(monitor)

    def _compiled(self, cell: str) -> tuple[CodeType, CodeType | None]:
        """The code of a cell, and that of the value of its last line if the value is to be shown."""
        code = self._shell.transform_cell(cell)
        file = self._shell.compile.cache(code)
        # With the notebook's own future imports, and without those of this module.
        flags = self._shell.compile.flags
        parsed = compile(code, file, "exec", flags | ast.PyCF_ONLY_AST, dont_inherit=True)
        can_wait = flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        if compile(parsed, file, "exec", can_wait, dont_inherit=True).co_flags & inspect.CO_COROUTINE:
            raise UsageError(
                "%%watch cannot execute a cell with `await` outside of functions. Record it without %%watch: "
                f"with stepscope.TrainingMonitor() as {VARIABLE}: ..."
            )
        last, value = parsed.body[-1] if parsed.body else None, None
        if isinstance(last, ast.Expr) and not cell.rstrip().endswith(";"):
            parsed.body.pop()
            value = compile(ast.Expression(last.value), file, "eval", flags, dont_inherit=True)
        return compile(parsed, file, "exec", flags, dont_inherit=True), value

    def _execute(self, body: CodeType, value: CodeType | None) -> Any:
        """Executes a compiled cell in the notebook; returns the value to be shown."""
        names = self._shell.user_ns
        exec(body, names)  # noqa: S102 - it is the user's cell
        return None if value is None else eval(value, names)  # noqa: S307 - as above


def _path_of(folder: Path, name: str) -> str:
    """The path of a run's page, after all that was recorded of it has been read."""
    with contextlib.closing(open_store(folder)) as runs:
        return f"/run/{quote(runs.run(name).id)}"


def _height(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not 0 < int(text) <= MAX_HEIGHT:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a valid height; give pixels from 1 to {MAX_HEIGHT}."
        )
    return int(text)


_PAGE = Options("%stepscope", add_help=False)
_PAGE.add_argument("run", nargs="?", metavar="RUN")
_PAGE.add_argument("--store", metavar="FOLDER")
_PAGE.add_argument("--height", type=_height, default=HEIGHT, metavar="PIXELS")
_PAGE.add_argument("--host", default=LOCALHOST, metavar="NAME")

_WATCH = Options("%%watch", add_help=False)
_WATCH.add_argument("name", nargs="?", metavar="NAME")
_WATCH.add_argument("--project", metavar="PROJECT")
_WATCH.add_argument("--store", metavar="FOLDER")
