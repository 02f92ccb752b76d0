"""Renders all that users build on as text, one golden file for each kind; `make golden` writes the files.

Run by `python -m tests.golden.surface`. What differs between machines, Python versions and installed packages
is left out or replaced, so that a difference in a file is a difference for users.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import sqlite3
import struct
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import stepscope
from stepscope import plugins
from stepscope.agent.own_cost import METRICS as OWN_METRICS
from stepscope.alerts import thresholds
from stepscope.alerts.conditions.expression import FUNCTIONS
from stepscope.alerts.defaults import RULES
from stepscope.alerts.rule import KEYS as RULE_KEYS
from stepscope.alerts.rule import OTHER_KEYS as OTHER_RULE_KEYS
from stepscope.analysis.detector_registry import known_detectors, options_of
from stepscope.channels.base import Channel
from stepscope.config import document_keys, find
from stepscope.config.bounds import Form, Range
from stepscope.config.environment import variable_of
from stepscope.config.reference import dotted, hint_at, leaves, without_none
from stepscope.config.sections import Sampler as SamplerSettings
from stepscope.config.sections import Settings, to_dict
from stepscope.exporters.base import Exporter, Feed
from stepscope.journal import layout
from stepscope.samplers.base import Sampler
from stepscope.schema import keys as key_names
from stepscope.store.sqlite import SqliteStore
from stepscope.store.sqlite.sqlite_marks import SqliteMarks
from stepscope.views.metrics import metric_meaning
from stepscope.web.access.incoming_request import API
from stepscope.web.api import routes_page
from stepscope.web.app import ROUTERS, create_app
from stepscope.web.server.options import ServerOptions
from tests.golden.command_line import render_cli, render_json_outputs
from tests.golden.public_names import PLUGIN_FOLDERS, ROOT, members_of, render_api, written_parameters

HERE = Path(__file__).parent
PAGE_SOURCES = ROOT / "ui" / "src"
PAGE_LIST = PAGE_SOURCES / "pages" / "list.ts"
PAGE_PATHS = r'\bpath: "(\w*)"'
QUERY_KEYS = r'\bquery\.get\("(\w+)"'
CHART_QUERY_KEYS = r"CHART_QUERY = \[([^\]]*)\]"

FRAME_KINDS = ("KEYS", "ROW", "EVENT", "ARRAY", "OPEN", "END", "PAD", "VOID")
OWNERS = (layout.OF_UNKNOWN, layout.OF_STEPSCOPE, layout.OF_USER)
NOT_METRICS = {"PHASES", "ANOTHER_TRAINING_EVENT", "CHECKS_EVENT", "STACKS_EVENT"}
"""Names in the module of common metric names that are something else."""


def render_openapi() -> str:
    """The OpenAPI document of the server; the version of the package is a placeholder."""
    with tempfile.TemporaryDirectory() as folder:
        document = create_app(ServerOptions(Path(folder)))._app.openapi()
    document["info"]["version"] = "<version>"
    return json.dumps(_of_any_pydantic(document), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _of_any_pydantic(schema: Any) -> Any:
    """The same schema without what only some versions of pydantic write, and which changes nothing."""
    if isinstance(schema, list):
        return [_of_any_pydantic(part) for part in schema]
    if not isinstance(schema, dict):
        return int(schema) if isinstance(schema, float) and schema.is_integer() else schema
    parts = {name: _of_any_pydantic(part) for name, part in schema.items()}
    if parts.get("additionalProperties") is True:
        del parts["additionalProperties"]
    if "const" in parts and parts.get("enum") == [parts["const"]]:
        del parts["enum"]
    return parts


def render_settings() -> str:
    """Every setting with its type and default, and the keys of other documents that set the same."""
    values = to_dict(Settings(samplers={"default": SamplerSettings()}))
    lines = []
    for key in leaves():
        value: Any = values
        for part in key:
            value = value[part]
        lines.append(f"{dotted(key)}: {_setting_type(hint_at(key))} = {json.dumps(value)}")
    lines += ["", "# Keys of other documents"]
    lines += [f"{name} -> {dotted(key)}" for name, key in sorted(document_keys.TODAY.items())]
    lines += [f"{name} -> no effect" for name in sorted(document_keys.NO_EFFECT)]
    return _text(lines)


def _setting_type(hint: Any) -> str:
    inner = without_none(hint)
    if inner is not hint:
        return f"{_setting_type(inner)} | null"
    arguments = get_args(inner)
    origin = get_origin(inner)
    if origin is Annotated:
        kind, bound = arguments
        return f"{kind.__name__} like {bound.pattern}" if isinstance(bound, Form) else _number(kind, bound)
    if origin in {dict, list}:
        return f"{origin.__name__}[{', '.join(map(_setting_type, arguments))}]"
    if arguments:
        return "|".join(map(str, arguments))
    return getattr(inner, "__name__", "Any")


def _number(kind: type, bound: Range) -> str:
    low = "" if bound.low is None else f" >= {bound.low:.15g}"
    high = "" if bound.high is None else f" <= {bound.high:.15g}"
    above = "" if bound.above is None else f" > {bound.above:.15g}"
    return f"{kind.__name__}{above}{low}{high}"


def render_schema() -> str:
    """The tables of a new store and of what people add to runs on the page, with their versions."""
    with tempfile.TemporaryDirectory() as folder:
        SqliteStore(Path(folder) / "store.sqlite").close()
        marks = SqliteMarks(Path(folder))
        marks.change("run", name="name")
        marks.close()
        return "\n".join(_schema_of(path) for path in sorted(Path(folder).glob("*.sqlite"), reverse=True))


def _schema_of(path: Path) -> str:
    connection = sqlite3.connect(path)
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    query = (
        "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY type, name"
    )
    statements = [_one_column_a_line(sql) for (sql,) in connection.execute(query)]
    connection.close()
    return _text([f"-- {path.name}", f"PRAGMA user_version = {version};", *statements])


def _one_column_a_line(sql: str) -> str:
    """The same statement with a line for each column, whatever its white space."""
    text, depth = "", 0
    for character in re.sub(r"\s+", " ", sql).replace(" ,", ",").replace("( ", "(").replace(" )", ")"):
        depth += {"(": 1, ")": -1}.get(character, 0)
        is_column_end = character == "," and depth == 1 and sql.startswith("CREATE TABLE")
        text += ",\n   " if is_column_end else character
    return f"{text};"


def render_journal() -> str:
    """The version and magic of the journal, where its fields are, and some frames byte for byte."""
    facts = {
        "magic": layout.MAGIC,
        "version": layout.VERSION,
        "header": layout.HEADER,
        "committed length and count": layout.COMMITTED,
        "committed count": layout.COUNT_AT,
        "closed by the writer": layout.CLOSED_AT,
        "new file wanted by the agent": layout.RETIRE_AT,
        "stored by the agent": layout.STORED_AT,
        "file id": layout.FILE_ID,
        "numbers that no frame has": layout.UNUSED_NUMBERS,
        "head of a frame": layout.HEAD,
        "marker of a frame": layout.MARKER_BYTES,
        "trailer of a frame": layout.TRAILER,
        "length of the JSON of an array": layout.JSON_LENGTH,
        "smallest and largest frame": (layout.MIN_FRAME, layout.MAX_FRAME),
        "kinds": {kind: getattr(layout, kind) for kind in FRAME_KINDS},
        "kinds that carry data": sorted(layout.CARRY_DATA),
        "events of unknown origin, of stepscope, of the user": OWNERS,
        "sequence number of frames without one": layout.NO_SEQUENCE,
        "fields of an opening": (layout.CLOCK_BASE, layout.PREVIOUS),
        "row of two keys": layout.row_struct(2),
        "bytes of a row of two keys": layout.row_length(2),
        "an event": layout.frame(layout.EVENT, b"{}", 1, layout.OF_USER).hex(),
        "the payload of an array": layout.array_payload({"key": "a"}, b"raw").hex(),
    }
    return _text(f"{name}: {_constant(value)}" for name, value in facts.items())


def _constant(value: object) -> str:
    if isinstance(value, struct.Struct):
        return f"Struct({value.format!r}), {value.size} bytes"
    return f"{value.start} to {value.stop}" if isinstance(value, slice) else repr(value)


def render_urls() -> str:
    """Every route of the server with its methods, and the addresses and query keys of the page."""
    routes = [(API + route.path, route.methods) for family in ROUTERS for route in family.routes]
    routes += [(route.path, route.methods) for route in routes_page.router.routes]
    lines = sorted(f"{path} {' '.join(sorted(methods))}" for path, methods in routes)
    sources = [path for path in sorted(PAGE_SOURCES.rglob("*")) if path.suffix in {".svelte", ".ts"}]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources if ".test." not in path.name)
    of_all, of_a_run = (
        PAGE_LIST.read_text().partition("PAGES = ")[2].partition("RUN_FRAME = ")[0].split("RUN_PAGES = ")
    )
    pages = {f"/{path}" for path in re.findall(PAGE_PATHS, of_all)}
    pages |= {f"/run/{{id}}/{path}".rstrip("/") for path in re.findall(PAGE_PATHS, of_a_run)}
    chart_keys = re.findall(r"\w+", " ".join(re.findall(CHART_QUERY_KEYS, text)))
    queries = {*re.findall(QUERY_KEYS, text), *chart_keys}
    return _text([*lines, "", "# Page", *sorted(pages), "", "# Query keys of the page", *sorted(queries)])


def render_plugins() -> str:
    """Names and options of plug-ins, alert rules and their language, environment variables, metric names."""
    variables = {*find.SHORT_NAMES, *find.RESERVED, *(variable_of(key) for key in leaves())}
    limits = {**thresholds.PERCENT, **thresholds.PLAIN, **thresholds.BASELINE}
    rules = [f"{rule['name']}: {rule.get('severity', 'warning')}, {rule['when']}" for rule in RULES]
    sections = {
        "Entry-point groups": [f"stepscope.{folder}" for folder in PLUGIN_FOLDERS],
        "Detectors": _detectors(),
        "Samplers": _members("samplers", Sampler),
        "Channels": _members("channels", Channel),
        "Exporters of live runs": _members("exporters", Feed),
        "Exporters of files": [line.partition("(")[0] for line in _members("exporters", Exporter)],
        "Keys of an alert rule": [*RULE_KEYS, *(f"{old} -> {new}" for old, new in OTHER_RULE_KEYS.items())],
        "Functions of a condition": sorted(FUNCTIONS),
        "Alert rules": rules,
        "Thresholds": [f"{name}: {condition}" for name, condition in limits.items()],
        "Environment variables": sorted(variables),
        "Metrics": sorted(_metrics()),
    }
    return "\n".join(_text([f"# {title}", *lines]) for title, lines in sections.items())


def _detectors() -> list[str]:
    lines = []
    for name, kind in sorted(known_detectors().items()):
        if kind.__module__.startswith(f"{stepscope.__name__}."):
            options = options_of(kind).items()
            lines.append(name)
            lines += [
                f"    {option}: {_number(type(value), bound)} = {value}" for option, (value, bound) in options
            ]
    return lines


def _members(folder: str, base: type) -> list[str]:
    lines = []
    for name in members_of(folder):
        module = importlib.import_module(f"stepscope.{folder}.{name}")
        if any(inspect.isclass(value) and base in value.__mro__[1:] for value in vars(module).values()):
            lines.append(f"{name}({written_parameters(plugins.load(folder, name, base))})")
    return lines


def _metrics() -> set[str]:
    """What samplers and the agent declare, and the names that every run has in common."""
    samplers = [plugins.load("samplers", name, Sampler) for name in members_of("samplers")]
    declared = {metric.key for sampler in samplers for metric in sampler.metrics}
    texts = [value for name, value in vars(key_names).items() if name.isupper() and name not in NOT_METRICS]
    common = {text for value in texts for text in ((value,) if isinstance(value, str) else value)}
    kinds = (key_names.phase_key, key_names.device_key)
    phases = {make(phase) for make in kinds for phase in key_names.PHASES}
    own = {metric.key for metric in OWN_METRICS}
    return declared | own | common | phases | set(metric_meaning._SENTENCES)


def _text(lines: Iterable[str]) -> str:
    return "\n".join(lines) + "\n"


FILES: dict[str, Callable[[], str]] = {
    "api.txt": render_api,
    "cli.txt": render_cli,
    "journal.txt": render_journal,
    "openapi.json": render_openapi,
    "plugins.txt": render_plugins,
    "schema.sql": render_schema,
    "settings.txt": render_settings,
    "urls.txt": render_urls,
}


def write() -> None:
    """Writes every golden file anew, and deletes those of commands that are gone."""
    outputs = {name: render() for name, render in FILES.items()} | render_json_outputs()
    for path in (HERE / "cli_json").glob("*.json"):
        path.unlink()
    for name, text in outputs.items():
        path = HERE / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
