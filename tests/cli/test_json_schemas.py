"""What commands print with `--json` is exactly what their schemas describe."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from stepscope.cli import doctor
from stepscope.cli.checks.store_checks import Check
from stepscope.cli.main import main
from stepscope.cli.output.json_outputs import OUTPUTS, VERSION, schema_of
from tests.cli.json_schemas import FOLDER, rendered
from tests.golden.fixed_store import FAILED, TRAINED, fill

PAGE = Path(__file__).parents[2] / "docs" / "json.md"
WRITE_AGAIN = (
    "If an entry was removed or renamed, or changed its type or meaning, raise VERSION. Then run: "
    "python -m tests.cli.json_schemas"
)
COMMANDS = [
    ("runs", "runs"),
    ("show", f"show {TRAINED}"),
    ("show", f"show {FAILED}"),
    ("show", f"show {TRAINED} --events"),
    ("show", f"show {TRAINED} --schedule"),
    ("diagnose", f"diagnose {TRAINED}"),
    ("diagnose", f"diagnose {FAILED}"),
    ("gate", f"gate {TRAINED} --baseline {FAILED}"),
    ("alert-list", "alert list"),
    ("alert-history", "alert history"),
    ("alert-rules", "alert list --rules"),
    ("doctor", "doctor"),
]


def closed(schema: Any) -> Any:
    """The same schema, which forbids entries that it does not name: each must be documented."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    parts = {key: closed(part) for key, part in schema.items()}
    is_object = schema.get("type") == "object" and "properties" in schema
    return {**parts, "additionalProperties": False} if is_object else parts


def assert_described(name: str, printed: Any) -> None:
    jsonschema_rs.validator_for(closed(schema_of(name))).validate(printed)


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("json") / "store"
    fill(folder)
    return folder


@pytest.mark.parametrize(("name", "words"), COMMANDS, ids=[words for _, words in COMMANDS])
def test_an_output_is_what_its_schema_describes(
    name: str, words: str, store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The checks themselves look at the machine and take long.
    monkeypatch.setattr(doctor, "_checks", lambda *_: [Check("name", "ok", "text", "text")])
    main([*words.split(), "--json", "--store", str(store)])
    assert_described(name, json.loads(capsys.readouterr().out))


def test_the_settings_are_what_their_schema_describes(capsys: pytest.CaptureFixture[str]) -> None:
    main(["config", "show", "--json", "--origin"])
    assert_described("config-show", json.loads(capsys.readouterr().out))


def test_an_imported_run_is_what_its_schema_describes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "history.csv").write_text("step,loss\n0,1.0\n1,nan\n")
    outcomes = []
    for line in ("", "", "3,1.0\n"):  # the second time it is imported already, then it has changed
        with (tmp_path / "history.csv").open("a") as file:
            file.write(line)
        main(["import", str(tmp_path / "history.csv"), "--json", "--store", str(tmp_path / "store")])
        printed = json.loads(capsys.readouterr().out)
        assert_described("import", printed)
        outcomes.append(printed[0]["outcome"])
    assert outcomes == ["imported", "known", "changed"]


@pytest.mark.parametrize(("name", "file"), [("watch", "watch"), ("profile", "profile")])
def test_the_recorded_shape_of_an_output_is_the_one_of_its_schema(name: str, file: str) -> None:
    """These need a GPU or torch: the golden file has their shape, with type names in place of values."""
    golden = Path(__file__).parents[1] / "golden" / "cli_json" / f"{file}.json"
    shape = json.loads(golden.read_text(encoding="utf-8"))
    examples = {"str": "text", "int": 1, "float": 1.5, "null": None, "bool": True}

    def example(part: Any) -> Any:
        if isinstance(part, dict):
            return {key: example(value) for key, value in part.items()}
        return [example(value) for value in part] if isinstance(part, list) else examples[part]

    for printed in shape if isinstance(shape, list) else [shape]:
        assert_described(name, example(printed))


def test_an_output_with_an_entry_that_is_missing_or_unknown_does_not_match(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["runs", "--json", "--store", str(store)])
    first, *_ = json.loads(capsys.readouterr().out)
    for wrong in ({**first, "more": 1}, {key: value for key, value in first.items() if key != "step"}):
        with pytest.raises(jsonschema_rs.ValidationError):
            assert_described("runs", [wrong])


def test_the_schema_files_are_those_of_the_code() -> None:
    files = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.iterdir()}
    assert files == rendered(), WRITE_AGAIN


def test_the_page_names_every_schema_and_the_version() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert set(re.findall(r"`([a-z-]+)\.json`", page)) == set(OUTPUTS)
    assert f"The version is {VERSION}." in page


def test_the_command_on_the_page_prints_a_schema(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(code, str(PAGE), "exec"), {})
    assert json.loads(capsys.readouterr().out)["version"] == VERSION
