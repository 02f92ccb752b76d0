"""Stand-ins for what other trackers keep and stepscope does not: media, tables, artifacts, sweeps.

A script made for such a tracker goes on; one line says what is not kept.
"""

from __future__ import annotations

import os
from typing import Any, NoReturn

from stepscope.errors import StepscopeError
from stepscope.guard import Guard

guard = Guard(strict=False)
"""Says each thing once, for all runs of the process."""


class NotKept:
    """Accepts any use: its attributes, its calls and what it returns are of the same kind."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __getattr__(self, name: str) -> NotKept:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *_: Any, **__: Any) -> NotKept:  # noqa: D102 - what it does is in the class
        return self

    def __enter__(self) -> NotKept:
        return self

    def __exit__(self, *_: object) -> None: ...

    def __iter__(self) -> Any:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        return True


class Image(NotKept):
    """An image; it is not kept."""


class Video(NotKept):
    """A video; it is not kept."""


class Audio(NotKept):
    """A sound; it is not kept."""


class Html(NotKept):
    """A piece of HTML; it is not kept."""


class Table(NotKept):
    """A table; its rows are not kept."""


class Markdown(NotKept):
    """A text with marks; it is not kept."""


class Object3D(NotKept):
    """A point cloud or a mesh; it is not kept."""


class Molecule(NotKept):
    """A molecule; it is not kept."""


class Plotly(NotKept):
    """A Plotly figure; it is not kept."""


class Graph(NotKept):
    """The graph of a model; it is not kept."""


class Plot(NotKept):
    """Functions that draw; what they return is not kept."""


class Classes(NotKept):
    """Names of the classes in an image; they are not kept."""


class JoinedTable(NotKept):
    """Two tables joined by a key; they are not kept."""


class Settings(NotKept):
    """Settings of another tracker; they have no effect."""


class Histogram:
    """A distribution: of values, which are recorded as an array, or of counts, which are."""

    def __init__(self, sequence: Any = None, np_histogram: Any = None, num_bins: int = 64) -> None:
        self.values = np_histogram[0] if np_histogram is not None else sequence
        self.num_bins = num_bins


class Artifact(NotKept):
    """A named set of files: its name and the paths are recorded, the files stay where they are."""

    def __init__(self, name: Any = "", type: Any = "", *_: Any, **fields: Any) -> None:  # noqa: A002 - their name
        self.name, self.type = str(name), str(type)
        self.metadata = fields.get("metadata") or {}
        self.files: list[str] = []

    def add_file(self, local_path: Any, *_: Any, **__: Any) -> None:
        """Notes the path of a file."""
        self.files.append(
            os.fspath(local_path) if isinstance(local_path, str | os.PathLike) else str(local_path)
        )

    def add_dir(self, local_path: Any, *_: Any, **__: Any) -> None:
        """Notes the path of a folder."""
        self.add_file(local_path)

    def add_reference(self, uri: Any, *_: Any, **__: Any) -> None:
        """Notes an address."""
        self.add_file(uri)

    def wait(self, *_: Any, **__: Any) -> Artifact:
        """Returns immediately: nothing is uploaded."""
        return self

    def download(self, *_: Any, **__: Any) -> NoReturn:
        """Raises: there is nothing to download."""
        raise StepscopeError(
            f"stepscope keeps no artifacts, so {self.name!r} cannot be downloaded. Read the files from where "
            "they are."
        )

    file = get_path = get_entry = checkout = download


class _Ids:
    """`util`, as far as scripts use it."""

    @staticmethod
    def generate_id(length: int = 8) -> str:
        """A random id."""
        alphabet = "abcdefghijklmnopqrstuvwxyz012345"
        return "".join(alphabet[byte % 32] for byte in os.urandom(length))


util = _Ids()
plot = plot_table = box3d = Plot()
ArtifactTTL = NotKept()
sdk = data_types = NotKept()
"""Modules that scripts use in annotations."""
Error = CommError = UsageError = StepscopeError


def _unsupported(what: str, instead: str) -> Any:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise StepscopeError(f"{what} {instead}")

    return refuse


sweep = controller = _unsupported(
    "stepscope runs no sweeps.", "Call your training function with each configuration, one init() each."
)
Api = _unsupported("stepscope has no Api class.", "Read runs with stepscope.open_store().")
restore = use_model = _unsupported("stepscope keeps no files of a run.", "Read them from where they are.")


def setup(*_: Any, **__: Any) -> NotKept:
    """Does nothing: there is no service to start."""
    return NotKept()


require = mark_preempting = termsetup = setup


def login(*_: Any, **__: Any) -> bool:
    """Returns True: nobody needs an account."""
    return True


def say_not_kept(name: str, value: object) -> None:
    """Logs once for each kind of value that a run does not keep it."""
    kind = type(value).__name__
    guard.warn_once(f"kind {kind}", f"{name!r} is of the kind {kind}, which stepscope does not keep.")


def say_ignored(what: str, reason: str) -> None:
    """Logs once that an argument or a call has no effect."""
    guard.warn_once(what, f"{what} has no effect: {reason}")
