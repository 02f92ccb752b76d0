"""Stops a profiler session, computes its profile, and writes trace and summary."""

from __future__ import annotations

import contextlib
import gc
import logging
from typing import TYPE_CHECKING

from stepscope.profiling.result_files import write_compressed, write_json
from stepscope.profiling.window.window_profile import window_profile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from stepscope.profiling.window.session import Session
    from stepscope.profiling.window.window_profile import Place, WindowProfile

TRACE, SUMMARY = ".trace.json.gz", ".json"


def finish_session(session: Session, place: Place, top: int, base: Path | None) -> WindowProfile:
    """Stops a session and returns its profile; writes files named after `base`, unless that is None.

    If a file cannot be written, a warning is logged, and the profile is still returned.
    """
    with _without_collections():
        timeline = session.stop()
        trace = None if base is None else _write_trace(session, base.absolute())
        profile = window_profile(timeline, place, top=top, with_memory=session.detail.memory, trace=trace)
    if base is not None:
        _write_summary(profile, base.absolute())
    return profile


def warn(message: str) -> None:
    """Logs a warning."""
    logging.getLogger("stepscope").warning(message)


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """Disables garbage collection: with hundreds of thousands of spans it would take a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _write_trace(session: Session, base: Path) -> str | None:
    path = base.with_name(base.name + TRACE)
    try:
        write_compressed(path, session.write_trace)
    except OSError as error:
        warn(f"The profiler's trace {path} could not be written: {error.strerror or error}.")
        return None
    return str(path)


def _write_summary(profile: WindowProfile, base: Path) -> None:
    path = base.with_name(base.name + SUMMARY)
    try:
        write_json(path, profile.described())
    except OSError as error:
        warn(f"The profile {path} could not be written: {error.strerror or error}.")
