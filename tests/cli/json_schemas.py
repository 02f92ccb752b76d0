"""Writes the JSON schemas of what commands print: `python -m tests.cli.json_schemas`."""

from __future__ import annotations

import json
from pathlib import Path

import stepscope
from stepscope.cli.output.json_outputs import OUTPUTS, schema_of

FOLDER = Path(stepscope.__file__).parent / "cli" / "output" / "json_schemas"


def rendered() -> dict[str, str]:
    """The text of each schema file."""
    return {f"{name}.json": json.dumps(schema_of(name), indent=2) + "\n" for name in OUTPUTS}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in rendered().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
