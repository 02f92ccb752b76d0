"""Renders the Python names that users import, and the objects that they get from them, as text."""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import inspect
import pkgutil
import re
import textwrap
import typing
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import stepscope
from stepscope import errors

ROOT = Path(__file__).parents[2]
PACKAGE = "stepscope"
PLUGIN_FOLDERS = ("channels", "detectors", "exporters", "samplers")
PROTOCOL_METHODS = frozenset(
    ["__call__", "__contains__", "__enter__", "__exit__", "__getitem__", "__iter__", "__len__", "__next__"]
)
LIGHTNING = {"after_batch", "is_part_of_callback", "lightning_base", "state_to_pickle"}
INTERNAL = {
    "Activations": {"due", "is_open"},
    "AlertSystem": {"resend_rules", "judge", "take"},
    "GradientMonitor": {"due", "is_off"},
    "Histograms": {"due"},
    "StructuredLogs": {"begin_in_child"},
    "TrainingMonitor": {"began_ns", "begin_epoch", "begin_pass", "continue_in_child", "open_recording"}
    | {"overhead", "own_event", "record_late", "record_many", "record_now", "current_step", "timer"}
    | {"end_evaluation", "is_recording", "log_loss", "step_phases"},
    "ProfilerCallback": LIGHTNING,
    "ResourceMonitorCallback": LIGHTNING,
    "StepscopeCallback": LIGHTNING,
    "StepscopeLogger": LIGHTNING,
    "ThroughputMonitorCallback": LIGHTNING,
}
INTERNAL["PerformanceMonitor"] = INTERNAL["TrainingMonitor"]
"""Members that only stepscope itself uses: no page and no example mentions them."""
NOT_FOLLOWED = {"Settings"}
"""Classes that have a golden file of their own."""
IMPORT = re.compile(r"^\s*from (stepscope(?:\.\w+)+) import (\([^)]*\)|[^\n#]+)", re.MULTILINE)


def render_api() -> str:
    """Every public name with its signature, and the classes of the objects that public calls return."""
    shown: dict[type, str] = {}
    sections = [_section(PACKAGE, {name: getattr(stepscope, name) for name in stepscope.__all__}, shown)]
    for module, names in sorted(documented_imports().items()):
        loaded = importlib.import_module(module)
        sections.append(_section(module, {name: getattr(loaded, name) for name in sorted(names)}, shown))
    sections.append(_section(errors.__name__, _classes_of(errors), shown))
    for folder in PLUGIN_FOLDERS:
        base = importlib.import_module(f"{PACKAGE}.{folder}.base")
        sections.append(_section(base.__name__, _classes_of(base), shown))
    return "\n".join([*sections, _returned(list(shown), _functions())])


def documented_imports() -> dict[str, set[str]]:
    """The names below `stepscope` that the documentation and the examples import, by module."""
    modules: dict[str, set[str]] = {}
    pages = [path for path in ROOT.glob("*.md") if path.name != "CONTRIBUTING.md"]  # that is for work inside
    for path in [*pages, *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*.py")]:
        for module, names in IMPORT.findall(path.read_text(encoding="utf-8")):
            modules.setdefault(module, set()).update(re.findall(r"\w+", names))
    return modules


def written_value(value: object) -> str:
    """A default as code; what is neither plain data nor named is an ellipsis."""
    if isinstance(value, str) and " " in value:
        return "..."  # prose
    if isinstance(value, str | bytes | int | float | None):
        return repr(value)
    if isinstance(value, tuple | list | dict | set | frozenset) and len(value) == 0:
        return f"{type(value).__name__}()"
    if isinstance(value, tuple):
        return f"({', '.join(map(written_value, value))},)"
    return "..."


def written_type(annotation: object) -> str:
    """An annotation as it stands in the source."""
    if annotation is inspect.Parameter.empty:
        return ""
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    return re.sub(r"\s+", " ", text).strip("'\"")


def written_parameters(function: Any) -> str:
    """The parameters of a function as a signature has them, without `self` and those for tests alone."""
    texts: list[str] = []
    kinds = inspect.Parameter
    previous = None
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in {"self", "cls"} or parameter.name.startswith("_"):
            continue
        if previous is kinds.POSITIONAL_ONLY and parameter.kind is not previous:
            texts.append("/")
        if parameter.kind is kinds.KEYWORD_ONLY and previous not in {
            kinds.KEYWORD_ONLY,
            kinds.VAR_POSITIONAL,
        }:
            texts.append("*")
        stars = {kinds.VAR_POSITIONAL: "*", kinds.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        kind = written_type(parameter.annotation)
        text = f"{stars}{parameter.name}" + (f": {kind}" if kind else "")
        if parameter.default is not kinds.empty:
            text += f" = {written_value(parameter.default)}"
        texts.append(text)
        previous = parameter.kind
    if previous is kinds.POSITIONAL_ONLY:
        texts.append("/")
    return ", ".join(texts)


def _section(title: str, objects: dict[str, Any], shown: dict[type, str]) -> str:
    lines = [f"# {title}", ""]
    for name, value in objects.items():
        if inspect.isclass(value):
            if value in shown:
                lines.append(f"class {name}: the same as {shown[value]}")
            else:
                shown[value] = f"{title}.{name}"
                lines += _class_lines(value)
        elif callable(value):
            lines.append(f"def {name}{_call(value)}")
        else:
            lines.append(name)
    return "\n".join(lines) + "\n"


def _classes_of(module: ModuleType) -> dict[str, type]:
    own = [value for value in vars(module).values() if inspect.isclass(value)]
    public = [
        kind for kind in own if kind.__module__ == module.__name__ and not kind.__name__.startswith("_")
    ]
    return {kind.__name__: kind for kind in sorted(public, key=lambda kind: kind.__name__)}


def _functions() -> list[Any]:
    objects = [getattr(stepscope, name) for name in stepscope.__all__]
    for module, names in documented_imports().items():
        objects += [getattr(importlib.import_module(module), name) for name in names]
    return [value for value in objects if inspect.isfunction(value)]


def _returned(public: list[type], functions: list[Any]) -> str:
    """The classes that calls of public objects lead to, without their modules, which nobody imports."""
    known, waiting = list(public), list(public)
    aliases: set[str] = set()
    mentions = [(_module_of(function), _return_of(function)) for function in functions]
    while waiting or mentions:
        if not mentions:
            mentions = list(_mentions(waiting.pop(0)))
            continue
        module, annotation = mentions.pop(0)
        for name in dict.fromkeys(re.findall(r"[A-Za-z_]\w*", annotation)):
            value = _scope(module).get(name)
            if typing.get_origin(value) is typing.Literal:
                aliases.add(f"{name} = one of {', '.join(map(repr, typing.get_args(value)))}")
            elif inspect.isclass(value) and value.__module__.startswith(PACKAGE) and value not in known:
                if name in NOT_FOLLOWED:
                    continue
                known.append(value)
                waiting.append(value)
    returned = ["\n".join(_class_lines(kind, with_constructor=False)) for kind in known[len(public) :]]
    classes = sorted(returned, key=str.casefold)
    return "\n".join(["# Objects that public calls return", "", *classes, *sorted(aliases)]) + "\n"


def _module_of(value: Any) -> ModuleType:
    return importlib.import_module(value.__module__)


@functools.cache
def _scope(module: ModuleType) -> dict[str, Any]:
    """The names of a module, those that it imports for type checkers alone among them."""
    names = dict(vars(module))
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE):
            for alias in node.names:
                source = importlib.import_module(node.module or "")
                names.setdefault(alias.asname or alias.name, getattr(source, alias.name, None))
    return names


def _mentions(kind: type) -> Iterator[tuple[ModuleType, str]]:
    """The types that an object of a class leads to, each with the module in which it is written."""
    for owner in _own_bases(kind):
        for name, annotation in _annotations(owner).items():
            if not name.startswith("_") and name not in INTERNAL.get(kind.__name__, ()):
                yield _module_of(owner), annotation
        for name, value in vars(owner).items():
            function = _function_of(value)
            if function is not None and _is_public(name) and name not in INTERNAL.get(kind.__name__, ()):
                yield _module_of(owner), _return_of(function)


def _class_lines(kind: type, *, with_constructor: bool = True) -> list[str]:
    is_error = issubclass(kind, Exception)
    bases = f"({', '.join(base.__name__ for base in kind.__bases__)})" if is_error else ""
    members: dict[str, str] = {}
    for owner in reversed(_own_bases(kind)):
        fields = {field.name: field for field in dataclasses.fields(owner)} if _is_dataclass(owner) else {}
        for name, annotation in {**dict.fromkeys(_assigned(owner), ""), **_annotations(owner)}.items():
            if not name.startswith("_"):
                members[name] = _attribute(name, annotation, fields.get(name), vars(owner))
        members |= {name: text for name, value in vars(owner).items() if (text := _method(name, value))}
    hidden = INTERNAL.get(kind.__name__, set()) | (set() if with_constructor else {"__init__"})
    order = [name for name in (members if _is_dataclass(kind) else sorted(members)) if name not in hidden]
    return [f"class {kind.__name__}{bases}", *(f"    {members[name]}" for name in order)]


def _attribute(name: str, annotation: str, field: Any, owned: Any) -> str:
    text = f"{name}: {annotation}" if annotation else name
    if field is None:
        is_plain = isinstance(owned.get(name), str | int | float | tuple | None) and name in owned
        return f"{text} = {written_value(owned[name])}" if annotation and is_plain else text
    if field.default is not dataclasses.MISSING:
        return f"{text} = {written_value(field.default)}"
    if field.default_factory is not dataclasses.MISSING:
        return f"{text} = {field.default_factory.__name__}()"
    return text


def _method(name: str, value: object) -> str:
    function = _function_of(value)
    if function is None or not (_is_public(name) or name == "__init__"):
        return ""
    if isinstance(value, property | functools.cached_property):
        return f"property {name}: {_return_of(function)}"
    if name == "__init__" and not hasattr(function, "__code__"):
        return ""
    if function.__qualname__.startswith("__create_fn__") or _is_generated(function):
        return ""
    word = {classmethod: "classmethod ", staticmethod: "staticmethod "}.get(type(value), "def ")
    return f"{word}{name}{_call(function)}"


def _function_of(value: object) -> Any:
    if isinstance(value, property):
        return value.fget
    if isinstance(value, functools.cached_property):
        return value.func
    if isinstance(value, classmethod | staticmethod):
        return value.__func__
    return value if inspect.isfunction(value) else None


def _is_generated(function: Any) -> bool:
    """Whether a function was made by `dataclass` or `NamedTuple`, which have no source."""
    return not function.__code__.co_filename.endswith(".py")


def _call(function: Any) -> str:
    return f"({written_parameters(function)}) -> {_return_of(function) or 'None'}"


def _return_of(function: Any) -> str:
    return written_type(getattr(function, "__annotations__", {}).get("return", inspect.Parameter.empty))


def _is_public(name: str) -> bool:
    return not name.startswith("_") or name in PROTOCOL_METHODS


def _is_dataclass(kind: type) -> bool:
    return "__dataclass_fields__" in vars(kind)


def _own_bases(kind: type) -> list[type]:
    return [base for base in kind.__mro__ if base.__module__.startswith(PACKAGE)]


def _annotations(kind: type) -> dict[str, str]:
    written = inspect.get_annotations(kind)
    return {name: written_type(value) for name, value in {**_assigned(kind), **written}.items()}


@functools.cache
def _assigned(kind: type) -> dict[str, str]:
    """The attributes that methods assign to `self`, with their types where they are written."""
    names: dict[str, str] = {}
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(kind)))):
        targets = node.targets if isinstance(node, ast.Assign) else []
        flat = [part for target in targets for part in getattr(target, "elts", [target])]
        for target in [*flat, *([node.target] if isinstance(node, ast.AnnAssign) else [])]:
            if isinstance(target, ast.Attribute) and getattr(target.value, "id", "") == "self":
                kind_text = ast.unparse(node.annotation) if isinstance(node, ast.AnnAssign) else ""
                names[target.attr] = names.get(target.attr) or kind_text
    return names


def members_of(folder: str) -> list[str]:
    """The plug-ins of a folder that come with stepscope, whatever other packages add to them."""
    package = importlib.import_module(f"{PACKAGE}.{folder}")
    return sorted({module.name for module in pkgutil.iter_modules(package.__path__)} - {"base"})
