"""Renders the command line: every command with its options, and what `--json` prints over a fixed store."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from stepscope.agent.sampling import SamplerReadings
from stepscope.cli import doctor, profile
from stepscope.cli.checks.store_checks import Check
from stepscope.cli.main import COMMANDS, _parser, main
from stepscope.devices.find_gpus import GpusFound
from stepscope.devices.scripted import scripted_host
from stepscope.launcher.machine import MachineWatch
from stepscope.profiling.result_files import write_json
from stepscope.profiling.window.events import DeviceSpan, Span, Timeline
from stepscope.profiling.window.window_profile import Place, window_profile
from stepscope.samplers.gpu import GpuSampler
from stepscope.schema.sample import Notice, Sample
from tests.golden.fixed_store import BEGUN_NS, FAILED, TRAINED, fill

WIDTH = 100
STORE_PLACEHOLDER = "<store>"
TEXT_PLACEHOLDER = "<text>"
"""What is put in the place of sentences, whose wording nobody should build on."""
RANDOM_KEYS = {"silences": "id"}
"""Keys of lists whose items have a value that is drawn by chance, and the name of that value."""


def render_cli() -> str:
    """Every command and action with its arguments; help is on lines that begin with `#`."""
    lines = [line for line in _own_lines(_parser(None)) if line]
    lines.append("")
    for command in COMMANDS:
        root = _parser(command)
        lines += _command_lines(_subparsers(root)[command])
    return "\n".join(lines)


def _own_lines(parser: argparse.ArgumentParser) -> Iterator[str]:
    yield parser.prog
    yield from _help_lines(parser.description or "", 2)
    excluded = {
        id(action): number
        for number, group in enumerate(parser._mutually_exclusive_groups, 1)
        for action in group._group_actions
    }
    for action in parser._actions:
        if not isinstance(action, argparse._HelpAction | argparse._SubParsersAction):
            group = f" (only one of group {excluded[id(action)]})" if id(action) in excluded else ""
            yield f"  {_argument(action)}{group}"
            if not isinstance(action, argparse._VersionAction):  # its help is argparse's own
                yield from _help_lines(action.help or "", 6)
    yield ""


def _command_lines(parser: argparse.ArgumentParser) -> Iterator[str]:
    yield from _own_lines(parser)
    for name, subparser in _subparsers(parser).items():
        text = _summaries(parser)[name]
        first, *rest = _command_lines(subparser)
        yield first
        yield from _help_lines(text, 2)
        yield from rest


def _argument(action: argparse.Action) -> str:
    metavar = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    name = ", ".join(action.option_strings) or metavar
    parts = [name]
    if action.option_strings and action.nargs != 0:
        parts.append(metavar)
    facts = {
        "nargs": action.nargs if action.nargs != 0 else None,
        "choices": None if action.choices is None else "|".join(map(str, action.choices)),
        "type": action.type.__name__ if action.type in {int, float} else None,
        "without value": action.const if action.nargs == "?" else None,
        "repeatable": "yes" if isinstance(action, argparse._AppendAction) else None,
        "default": None if action.default in (None, False, [], "", argparse.SUPPRESS) else action.default,
    }
    parts += [f"[{fact}: {value}]" for fact, value in facts.items() if value is not None]
    return " ".join(parts)


def _help_lines(text: str, indent: int) -> list[str]:
    start = " " * indent + "# "
    return textwrap.wrap(text, WIDTH, initial_indent=start, subsequent_indent=start, break_on_hyphens=False)


def _subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    actions = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(actions[0].choices) if actions else {}


def _summaries(parser: argparse.ArgumentParser) -> dict[str, str]:
    actions = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return {choice.dest: choice.help or "" for choice in actions[0]._choices_actions}


def render_json_outputs() -> dict[str, str]:
    """What each command prints with `--json`, by the name of its golden file."""
    with _fixed_store() as folder:
        outputs = {name: render(folder) for name, render in JSON_OUTPUTS.items()}
    return {f"cli_json/{name}.json": json.dumps(value, indent=2) + "\n" for name, value in outputs.items()}


@contextlib.contextmanager
def _fixed_store() -> Iterator[str]:
    """A store in a folder of its own, in which no settings of the person who runs this apply."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith("STEPSCOPE_")}
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, environment, clear=True):
        fill(Path(folder) / "store")
        os.chdir(folder)
        try:
            yield str(Path(folder) / "store")
        finally:
            os.chdir(before)


def _printed(*words: str) -> str:
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()):
        main(list(words))
    return output.getvalue()


def _values(*words: str) -> Callable[[str], Any]:
    """Renders what a command prints, with placeholders for the folder, random ids and prose."""

    def render(folder: str) -> Any:
        text = _printed(*words, "--json", "--store", folder)
        return _without_chance(json.loads(text.replace(folder, STORE_PLACEHOLDER)))

    return render


def _shape(*words: str) -> Callable[[str], Any]:
    """Renders the keys and types of what a command prints."""
    return lambda folder: shape_of([json.loads(_printed(*words, "--json", "--store", folder))])


def _without_chance(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_chance(part) for part in value]
    if isinstance(value, float):
        return float(f"{value:.12g}")
    if isinstance(value, str):
        return TEXT_PLACEHOLDER if " " in value else value
    if not isinstance(value, dict):
        return value
    plain = {name: _without_chance(part) for name, part in value.items()}
    for name, key in RANDOM_KEYS.items():
        for item in plain.get(name, ()):
            item[key] = "<random>"
    return plain


def shape_of(values: list[Any]) -> Any:
    """The keys and types that some values have in common; a key that not all of them have ends with `?`."""
    objects = [value for value in values if isinstance(value, dict)]
    lists = [value for value in values if isinstance(value, list)]
    others = [value for value in values if not isinstance(value, dict | list)]
    names = sorted({type(value).__name__ if value is not None else "null" for value in others})
    shapes: list[Any] = [" | ".join(names)] if names else []
    if objects:
        keys = list(dict.fromkeys(key for value in objects for key in value))
        parts = {key: [value[key] for value in objects if key in value] for key in keys}
        marks = {key: "" if len(part) == len(objects) else "?" for key, part in parts.items()}
        shapes.append({f"{key}{marks[key]}": shape_of(part) for key, part in parts.items()})
    if lists:
        items = [item for value in lists for item in value]
        shapes.append([shape_of(items)] if items else [])
    return shapes[0] if len(shapes) == 1 else {"one of": shapes}


def _settings(_folder: str) -> Any:
    return json.loads(_printed("config", "show", "--json", "--origin"))


def _checks(folder: str) -> Any:
    """The checks themselves depend on the machine."""
    with mock.patch.object(doctor, "_checks", return_value=[Check("name", "ok", "text", "text")]):
        return _shape("doctor")(folder)


def _machine(folder: str) -> Any:
    """A notice, figures of a host, and facts and figures of a scripted GPU."""
    gpu = GpuSampler(_find=lambda **_: GpusFound(scripted_host(1), [])).sample([])
    host = [Notice("subject", "text"), Sample({"cpu/utilization_ratio": 0.5})]
    readings = [SamplerReadings("cpu", BEGUN_NS, host), SamplerReadings("gpu", BEGUN_NS, list(gpu))]
    with (
        mock.patch.object(MachineWatch, "begin"),
        mock.patch.object(MachineWatch, "end"),
        mock.patch.object(MachineWatch, "readings", return_value=readings),
    ):
        lines = _printed("watch", "--json", "--store", folder).splitlines()
    return [shape_of([json.loads(line)]) for line in lines]


def _exports(folder: str) -> Any:
    """The lines of each text format, wide and long."""
    lines = {}
    for name in ("csv", "json", "jsonl"):
        for option in ([], ["--long"]):
            path = Path(folder).with_name(f"export{len(option)}.{name}")
            _printed("export", FAILED, "--store", folder, "--output", str(path), *option)
            lines[" ".join(["--format", name, *option])] = path.read_text(encoding="utf-8").splitlines()
    return lines


def _imports(folder: str) -> Any:
    """A run that would be imported."""
    table = Path(folder).with_name("table.csv")
    table.write_text("step,loss\n0,1.0\n")
    return _shape("import", str(table), "--dry-run")(folder)


def _profile(folder: str) -> Any:
    """A profile of two operators and a kernel, without torch and without a process."""
    timeline = Timeline(
        [Span(1, 0, 10, "aten::mm", id=1), Span(1, 10, 20, "aten::add", id=2)],
        [Span(1, 0, 20, "ProfilerStep#0")],
        device=[DeviceSpan(0, 10, 15, "gemm", begun_by=1)],
    )

    def write(_command: object, options: Any) -> int:
        described = window_profile(timeline, Place(), top=5, trace="trace.json.gz").described()
        write_json(options.base.with_name(f"{options.base.name}.json"), described)
        return 0

    with mock.patch.object(profile, "_run", write):
        text = _printed("profile", "--json", "--store", folder, "--", sys.executable, "-c", "pass")
    return shape_of([json.loads(text)])


JSON_OUTPUTS: dict[str, Callable[[str], Any]] = {
    "alert_history": _values("alert", "history"),
    "alert_list": _values("alert", "list"),
    "alert_rules": _shape("alert", "rules"),
    "config_show": _settings,
    "diagnose": _shape("diagnose", TRAINED),
    "doctor": _checks,
    "export": _exports,
    "gate": _shape("gate", TRAINED, "--baseline", FAILED),
    "import": _imports,
    "profile": _profile,
    "runs": _values("runs"),
    "show": _values("show", TRAINED),
    "show_events": _shape("show", TRAINED, "--events"),
    "show_schedule": _shape("show", TRAINED, "--schedule"),
    "watch": _machine,
}
"""The outputs by file name: values where the fixed store determines them, else their shape."""
