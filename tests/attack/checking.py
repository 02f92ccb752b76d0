"""Compares what was read back with what was logged, and says what is wrong."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path

from tests.attack.asking import Asked, ask, rows_of
from tests.attack.outcomes import FAILED, HANG, LOST, OTHER, TRACEBACK, UNCLEAR, WRONG, Fault
from tests.attack.trainer import value
from tests.attack.training import Training, agent_log

LONGEST_CALL_S = 2.0
"""A log call takes microseconds; on a busy machine its thread may wait that long for a core."""


def text_faults(what: str, text: str) -> Iterator[Fault]:
    """Looks for tracebacks in what a process printed."""
    if "Traceback (most recent call last)" in text:
        places = re.findall(r'File "(.*?)", line (\d+), in (\w+)', text)
        errors = re.findall(r"^[A-Za-z_.]+(?:Error|Exception|Exit|Interrupt|Warning)\b.*", text, re.MULTILINE)
        ours = [f"{Path(path).name}:{line} {name}" for path, line, name in places if "stepscope" in path]
        said = errors[-1][:150] if errors else text[-150:]
        yield Fault(TRACEBACK, f"{what}: {said} in {ours[-1] if ours else places[-1]}")


def reading_faults(what: str, asked: Asked) -> Iterator[Fault]:
    """Whether a reader came to an end, and quietly."""
    if asked.hung:
        yield Fault(HANG, f"reading {what} did not come to an end")
    yield from text_faults(f"reading {what}", asked.stderr)
    if asked.result is None and not asked.hung and "Traceback" not in asked.stderr:
        yield Fault(TRACEBACK, f"the process that read {what} died: {asked.stderr[-300:]}")


def value_faults(run: str, answers: dict, salt: float) -> Iterator[Fault]:
    """Whether each row has the value that was logged at its step, and none comes twice."""
    steps, values = answers["steps"], answers["values"]
    wrong = [
        (step, float.fromhex(one))
        for step, one in zip(steps, values, strict=True)
        if one != value(step, salt).hex()
    ]
    if wrong:
        yield Fault(WRONG, f"{len(wrong)} rows of {run} have wrong values, first (step, value) {wrong[0]}")
    if len(set(steps)) != len(steps):
        yield Fault(WRONG, f"{len(steps) - len(set(steps))} rows of {run} are there twice")


def whole_run_faults(
    store: Path,
    training: Training,
    acknowledged: int,
    statuses: Collection[str],
    kind: str = LOST,
    seconds: float = 60.0,
) -> Iterator[Fault]:
    """Whether every acknowledged row of a run is read back, with exact values and a true status."""
    asked = ask(rows_of, str(store), training.run, seconds=seconds)
    yield from reading_faults(training.run, asked)
    answers = asked.result
    if answers is None:
        return
    if "error" in answers:
        if acknowledged or kind == OTHER:
            yield Fault(
                kind, f"{training.run} with {acknowledged} rows: {answers['kind']}: {answers['error']}"
            )
        return
    steps = answers["steps"]
    if steps != list(range(len(steps))) or len(steps) < acknowledged:
        missing = sorted(set(range(acknowledged)) - set(steps))
        yield Fault(
            kind,
            f"{len(missing)} of {acknowledged} acknowledged rows of {training.run} are missing, first "
            f"{missing[:3]}; read {len(steps)}, lost {answers['lost']}, dropped {answers['dropped']}, "
            f"status {answers['status']}",
        )
    yield from value_faults(training.run, answers, training.salt)
    if answers["status"] not in statuses:
        yield Fault(
            WRONG,
            f"status of {training.run} is {answers['status']} ({answers['reason']}), "
            f"expected {list(statuses)}",
        )


def process_faults(training: Training, exit_code: int | None, killed: bool = False) -> Iterator[Fault]:
    """Whether the training itself came through unharmed."""
    yield from text_faults(f"stderr of {training.run}", training.stderr)
    if exit_code is None:
        yield Fault(HANG, f"{training.run} did not end; it printed: {training.stderr[-300:]!r}")
    elif exit_code != 0 and not killed:
        yield Fault(FAILED, f"{training.run} ended with {exit_code}: {training.stderr[-300:]!r}")
    if training.longest_call_s > LONGEST_CALL_S:
        yield Fault(HANG, f"a log call of {training.run} took {training.longest_call_s:.1f} s")


def agent_faults(store: Path) -> Iterator[Fault]:
    """Whether the agents of a folder had anything to complain of."""
    yield from text_faults("agent.log", agent_log(store))


def untouched_faults(store: Path, run: str, before: dict, seconds: float = 60.0) -> Iterator[Fault]:
    """Whether a run that had nothing to do with the attack is read back as before it."""
    asked = ask(rows_of, str(store), run, seconds=seconds)
    yield from reading_faults(run, asked)
    if asked.result is None:
        yield Fault(OTHER, f"{run} cannot be read")
    elif asked.result != before:
        now = asked.result
        differing = [name for name in before if before[name] != now.get(name)]
        said = (
            now.get("error") or f"{len(now['steps'])} of {len(before['steps'])} rows, differs in {differing}"
        )
        yield Fault(OTHER, f"{run}: {said}")


def stderr_lines(text: str) -> list[str]:
    """The lines a training printed."""
    return [line for line in text.splitlines() if line.strip()]


def named_faults(what: str, message: str, path: Path) -> Iterator[Fault]:
    """Whether an error names the file it is about."""
    if str(path) not in message:
        yield Fault(UNCLEAR, f"{what} does not name {path.name}: {message[:250]}")
