"""Reads a YAML file into plain data, with the line number of every key.

PyYAML's nodes have the lines. ruamel.yaml has them too, but reads `yes` and `on` as text and `007` as 7,
stops at the first key that is given twice, takes 2.3 times as long for the sample file, and would need the
same limits. Its strength, to change a file and keep its comments, has no use: no settings file is changed.
"""

from __future__ import annotations

import re
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

from stepscope.config.entry import MAX_DEPTH, Problem
from stepscope.config.reference import Key, dotted
from stepscope.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

MAX_BYTES = 1024 * 1024

TAG = "tag:yaml.org,2002:"
TRUE, FALSE = {"yes", "true", "on"}, {"no", "false", "off"}
PLAIN_VALUES = {
    "bool": r"(?:yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF)",
    "int": r"[-+]?(?:0|[1-9][0-9_]*)|0x[0-9a-fA-F_]+|0o[0-7_]+",
    # With a leading zero, such as 007, it is a name or a code, not a number.
    "float": r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
    "null": r"~|null|Null|NULL|",
}


@dataclass
class Document:
    """The data of one file, and the line of each key."""

    name: str
    data: Any = None
    lines: dict[Key, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def origin_of(self, key: Key) -> str:
        """Returns `FILE:LINE` of a key, or of the nearest key above it."""
        while key and key not in self.lines:
            key = key[:-1]
        return f"{self.name}:{self.lines.get(key, 1)}"


def read(path: Path, name: str) -> Document:
    """Reads a file; raises ConfigError when it is not a YAML mapping."""
    document = parse(_text(path, name), name)
    if document.data is None:
        document.data = {}
    if not isinstance(document.data, dict):
        raise ConfigError(f"{document.origin_of(())}: the file must contain settings as 'key: value' lines.")
    return document


def parse(text: str, name: str) -> Document:
    """Parses YAML text of any form; a key that is given twice is added to the problems."""
    document = Document(name)
    failure = None
    loader = None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is not None:
            document.lines[()] = _line(node)
            document.data = _Builder(document).value(node, ())
    except yaml.MarkedYAMLError as error:
        # Only the reason is used: the rest of the error quotes the line, which may contain a secret.
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        is_tab = error.problem is not None and "'\\t'" in error.problem
        reason = "a tab is not allowed here, use spaces" if is_tab else _without_quotes(error.problem)
        failure = f"{name}:{line}: cannot be read: {reason}."
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        failure = f"{name}:{line}: cannot be read: it contains a character that YAML does not allow."
    finally:
        if loader is not None:
            loader.dispose()
    if failure is not None:
        raise ConfigError(failure)
    return document


class _Loader(yaml.SafeLoader):
    """A safe loader that reads dates and sexagesimals as text, and refuses aliases.

    It reads `1e-3` as a number, like YAML 1.2 and unlike YAML 1.1.
    """

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent) or event.anchor:
            reason = "anchors and aliases (& and *) are not supported, write the value out"
            raise yaml.composer.ComposerError(None, None, reason, event.start_mark)
        if self.depth > MAX_DEPTH:
            reason = "it is nested too deeply"
            raise yaml.composer.ComposerError(None, None, reason, event.start_mark)
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


_Loader.yaml_implicit_resolvers = {}
for _kind, _pattern in PLAIN_VALUES.items():
    _Loader.add_implicit_resolver(TAG + _kind, re.compile(rf"^(?:{_pattern})$"), None)


class _Builder:
    """Converts nodes into data and records their lines."""

    def __init__(self, document: Document) -> None:
        self._document = document

    def value(self, node: yaml.Node, key: Key) -> Any:
        self._document.lines.setdefault(key, _line(node))
        if isinstance(node, yaml.MappingNode) and node.tag == TAG + "map":
            return self._mapping(node, key)
        if isinstance(node, yaml.SequenceNode) and node.tag == TAG + "seq":
            return [self.value(part, (*key, index)) for index, part in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        raise _refusal(node)

    def _mapping(self, node: yaml.MappingNode, parent: Key) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for name_node, value_node in node.value:
            if not isinstance(name_node, yaml.ScalarNode):
                reason = "a key must be a single word"
                raise yaml.constructor.ConstructorError(None, None, reason, name_node.start_mark)
            name = name_node.value
            key = (*parent, name)
            if name in data:
                text = f"{dotted(key)} is given twice; the first is on line "
                text += f"{self._document.lines[key]}."
                origin = f"{self._document.name}:{_line(name_node)}"
                self._document.problems.append(Problem(origin, text))
                continue
            self._document.lines[key] = _line(name_node)
            data[name] = self.value(value_node, key)
        return data

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        text: str = node.value
        kind = node.tag.removeprefix(TAG)
        if kind == "str":
            return text
        if kind == "null":
            return None
        if kind == "bool" and text.lower() in TRUE | FALSE:
            return text.lower() in TRUE
        try:
            if kind == "int":
                return int(text.replace("_", ""), 0)
            if kind == "float":
                return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
        except ValueError:
            pass
        raise _refusal(node)


def _refusal(node: yaml.Node) -> yaml.MarkedYAMLError:
    reason = "a value has a type that is not supported; put it in quotes if it is text"
    return yaml.constructor.ConstructorError(None, None, reason, node.start_mark)


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _without_quotes(reason: str | None) -> str:
    """Removes quoted text: the parser's reasons name tokens like '<scalar>', but may also quote the file."""
    return re.sub(r"'(?!<)[^']{2,}'", "'...'", reason or "it is not YAML")


def _text(path: Path, name: str) -> str:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ConfigError(f"{name}: is not a file.")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(f"{name}: there is no such file.") from None
    except OSError as error:
        raise ConfigError(f"{name}: cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise ConfigError(f"{name!a}: is not the name of a file.") from error
    if len(content) > MAX_BYTES:
        raise ConfigError(f"{name}: is larger than {MAX_BYTES} bytes, which no settings need.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
    raise ConfigError(f"{name}:{line}: cannot be read: it is not UTF-8 text.")
