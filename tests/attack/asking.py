"""Reads a store by API and command line, in a process of its own that can be given up when it hangs."""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import json
import multiprocessing
import os
import resource
import runpy
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import stepscope
import stepscope.cli.alert
import stepscope.cli.diagnose
import stepscope.cli.export
import stepscope.cli.runs
import stepscope.cli.show
from stepscope.errors import NotFound, StepscopeError
from stepscope.schema.keys import CHECKS_EVENT
from tests.attack.trainer import MAX_MEMORY

BUCKETS = (1, 40, 5000)
SCRATCH = Path(tempfile.gettempdir())
_numbers = itertools.count()
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload([__name__])


@dataclass(frozen=True)
class Asked:
    """What a reading process gave: its result, None when it did not come to one."""

    result: Any
    stderr: str
    hung: bool


def ask(question: Callable[..., Any], *arguments: object, seconds: float = 60.0) -> Asked:
    """Has a question answered in another process."""
    answer = SCRATCH / f"attack-{os.getpid()}-{next(_numbers)}"
    errors = answer.with_suffix(".stderr")
    errors.touch()
    process = _processes.Process(target=_answer, args=(question, arguments, str(answer), str(errors)))
    process.start()
    process.join(seconds)
    hung = process.exitcode is None
    if hung:
        process.kill()
        process.join()
    process.close()
    asked = Asked(json.loads(answer.read_text()) if answer.exists() else None, errors.read_text(), hung)
    answer.unlink(missing_ok=True)
    errors.unlink()
    return asked


def _answer(question: Callable[..., Any], arguments: tuple[object, ...], answer: str, errors: str) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    descriptor = os.open(errors, os.O_WRONLY | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    result = json.dumps(question(*arguments))
    partial = Path(f"{answer}.partial")
    partial.write_text(result)
    partial.rename(answer)


def rows_of(folder: str, run: str, key: str = "loss") -> dict[str, Any]:
    """The rows of one run as an outsider reads them, with what the store says of the process."""
    try:
        store = stepscope.open_store(folder)
        opened = store.run(run)
        known = any(info.key == key for info in opened.keys())
        points = opened.series(key) if known else None
        processes = [process for part in opened.segments for process in part.processes]
        return {
            "name": opened.name,
            "status": opened.status,
            "reason": opened.reason,
            "steps": [] if points is None else points.steps.tolist(),
            "values": [] if points is None else [value.hex() for value in points.values.tolist()],
            "times": [] if points is None else points.times.tolist(),
            # What the agent's checks came to is there where an agent has read it, and no record of the run.
            "events": [[event.kind, event.step] for event in opened.events() if event.kind != CHECKS_EVENT],
            "lost": sum(process.lost for process in processes),
            "dropped": sum(process.dropped for process in processes),
        }
    except StepscopeError as error:
        return {"error": str(error), "kind": type(error).__name__}


def run_command(*words: str) -> dict[str, Any]:
    """Runs the command line as `python -m stepscope` does."""
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, "utf-8", write_through=True)
    err = io.StringIO()
    before = sys.argv
    sys.argv = ["stepscope", *words]
    code: object = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                runpy.run_module("stepscope", run_name="__main__")
            except SystemExit as end:
                code = end.code
            except BaseException:  # noqa: BLE001 - what the interpreter would print is the result
                traceback.print_exc(file=err)
                code = 1
    finally:
        sys.argv = before
    # The last word is the folder, and answers from different folders are compared.
    printed = raw.getvalue().replace(words[-1].encode(), b"FOLDER")
    return {"code": code, "err": err.getvalue(), **_digest(printed)}


def everything(folder: str, known: dict[str, list[str]], shown: list[str]) -> dict[str, dict[str, Any]]:
    """Every answer of the API and the command line, by its name.

    `known` are the runs and keys to ask for, `shown` the runs to ask the command line for.
    """
    answers: dict[str, dict[str, Any]] = {}

    def add(name: str, question: Callable[[], object]) -> Any:
        try:
            value = question()
        except StepscopeError as error:
            answers[name] = {"error": str(error), "missing": isinstance(error, NotFound)}
        except Exception:  # noqa: BLE001 - what an outsider would see as a traceback
            answers[name] = {"error": traceback.format_exc(limit=-2), "traceback": True}
        else:
            answers[name] = _digest(_plain(value))
            return value
        return None

    store = add("open", lambda: _Opened(stepscope.open_store(folder)))
    if store is not None:
        runs = store.runs
        add("runs", lambda: [(run.id, run.info) for run in runs.runs()])
        for name, keys in known.items():
            _ask_run(runs, name, keys, add)
        runs.close()
    for words in _commands(folder, shown):
        answers["stepscope " + " ".join(words[:-2])] = run_command(*words)
    return answers


class _Opened:
    """A store that was opened; all opened stores are alike."""

    def __init__(self, runs: stepscope.reading.Runs) -> None:
        self.runs = runs

    def __repr__(self) -> str:
        return "opened"


def _ask_run(runs: Any, name: str, keys: list[str], add: Callable[[str, Callable[[], object]], Any]) -> None:
    run = add(f"run {name}", lambda: runs.run(name))
    if run is None:
        return
    add(f"info of {name}", lambda: run.info)
    for question in (
        "keys",
        "machine_keys",
        "sources",
        "summaries",
        "events",
        "alerts",
        "notices",
        "findings",
    ):
        add(f"{question} of {name}", getattr(run, question))
    add(f"arrays of {name}", lambda: run.arrays("weights"))
    for key in keys:
        add(f"{key} of {name}", lambda key=key: _columns(run.series(key)))
        for most in BUCKETS:
            add(f"{most} buckets of {key} of {name}", lambda key=key, most=most: run.buckets(key, most))


def _columns(points: Any) -> tuple[object, ...]:
    return points.steps, points.times, points.values


def _commands(folder: str, names: list[str]) -> list[tuple[str, ...]]:
    words: list[tuple[str, ...]] = [("runs", "--json"), ("alert", "history", "--json")]
    for name in names:
        words += [
            ("show", name, "--json"),
            ("show", name),
            ("export", name, "--format", "jsonl"),
            ("diagnose", name, "--json"),
        ]
    return [(*command, "--store", folder) for command in words]


def _plain(value: object) -> bytes:
    return "\n".join(_parts(value)).encode("utf-8", "backslashreplace")


def _parts(value: object) -> list[str]:
    """A value as lines of text that differ whenever the value does, arrays bit for bit."""
    if isinstance(value, np.ndarray):
        return [f"{value.dtype} {value.shape} {value.tobytes().hex()}"]
    if isinstance(value, dict):
        return [part for key in value for part in (repr(key), *_parts(value[key]))]
    if isinstance(value, list | tuple):
        return [f"{len(value)}", *(part for element in value for part in _parts(element))]
    if hasattr(value, "__dataclass_fields__"):
        return [part for name in value.__dataclass_fields__ for part in (name, *_parts(getattr(value, name)))]
    return [repr(value)]


def _digest(data: bytes) -> dict[str, Any]:
    return {"digest": hashlib.sha256(data).hexdigest(), "size": len(data)}
