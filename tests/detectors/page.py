"""Draws the page on detectors from the detectors themselves."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import sys

from stepscope.analysis.detector_registry import known_detectors, options_of
from stepscope.detectors.base import Detector

HEAD = """\
# Detectors

Each detector checks the newest steps of a run for one problem; [Diagnosis](diagnosis.md) describes how their
results become a verdict. All are enabled by default.

```yaml
detectors:
  input.exposed_wait: {share: 0.1}
  host.gc: {enabled: false}
```

An unknown detector, an unknown option or an invalid value is an error that lists what is allowed. Another
package can add a detector as an entry point of the group `stepscope.detectors`: a dataclass derived from
`stepscope.detectors.base.Detector`.

| detector | reports when | needs |
|---|---|---|
"""


def drawn() -> str:
    """The page."""
    lines = [HEAD.rstrip("\n")]
    known = known_detectors()
    for name, kind in known.items():
        needs = ", ".join(" or ".join(f"`{key}`" for key in group) for group in kind.requires)
        state = " after the warm-up" if kind.in_steady_state else ""
        steps = f"; {_steps(kind.min_steps)}{state}" if kind.min_steps else ""
        lines.append(f"| `{name}` | {kind.sentence} | {needs}{steps} |")
    lines += ["", "Keys joined by “or” are alternatives: the first one that a run has is used."]
    for name, kind in known.items():
        lines += [
            "",
            f"## {name}",
            "",
            f"{_first_line(kind)}",
            "",
            "| option | default | allowed | meaning |",
            "|---|---|---|---|",
        ]
        lines.append("| `enabled` | `true` | true or false | Whether the detector runs. |")
        sentences = _sentences(kind)
        for option, (default, bounds) in options_of(kind).items():
            lines.append(f"| `{option}` | `{default}` | {_allowed(bounds)} | {sentences[option]} |")
        if kind.explains:
            lines += ["", f"Reported instead of: {', '.join(f'`{name}`' for name in kind.explains)}."]
    return "\n".join(lines) + "\n"


def _steps(count: int) -> str:
    return f"{count} step{'s' if count > 1 else ''}"


def _first_line(kind: type[Detector]) -> str:
    module = inspect.getmodule(kind)
    assert module is not None
    return (module.__doc__ or "").splitlines()[0]


def _allowed(bounds: object) -> str:
    low, high = bounds.low, bounds.high  # type: ignore[attr-defined]
    if low is None:
        return "any number"
    return f"{low:g} or more" if high is None else f"{low:g} to {high:g}"


def _sentences(kind: type[Detector]) -> dict[str, str]:
    """The sentence under each field, as the source has it."""
    [body] = [node.body for node in ast.parse(inspect.getsource(kind)).body if isinstance(node, ast.ClassDef)]
    names = {option.name for option in dataclasses.fields(kind)}  # type: ignore[arg-type]
    sentences = {}
    for field, after in itertools.pairwise(body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and field.target.id in names
        ):
            assert isinstance(after, ast.Expr), f"{field.target.id} has no sentence under it."
            sentences[field.target.id] = " ".join(ast.literal_eval(after.value).split())
    return sentences


if __name__ == "__main__":
    sys.stdout.write(drawn())
