"""The messages for a wrong settings file."""

import os

import pytest

from stepscope.config.document import MAX_BYTES
from stepscope.config.load import load
from stepscope.config.sections import Sampler, Settings
from stepscope.errors import ConfigError


def message_of(folder, content):
    (folder / "train.yaml").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError) as caught:
        load("train.yaml", environment={}, directory=folder)
    return str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "run: a\n\ndashboard:\n  host: x\n  enabled: true\n\n  port: 99999\n",
            "train.yaml:7: dashboard.port is 99999; it must be a whole number from 0 to 65535.",
        ),
        (
            "dashboard.port: 9000\n",
            (
                "train.yaml:1: there is no setting 'dashboard.port'; "
                "write 'port' below 'dashboard', as a section."
            ),
        ),
        (
            "dashboard:\n  port: 0777\n",
            'train.yaml:2: dashboard.port is "0777"; it must be a whole number from 0 to 65535.',
        ),
        (
            "dashboard:\n\tport: 1\n",
            "train.yaml:2: cannot be read: a tab is not allowed here, use spaces.",
        ),
        (
            "run: a\n\ndashbord:\n  port: 1\n  host: x\n",
            "train.yaml:3: there is no setting 'dashbord'; did you mean 'dashboard'?",
        ),
        (
            "dashboard:\n  prot: 1\n",
            "train.yaml:2: there is no setting 'dashboard.prot'; did you mean 'dashboard.port'?",
        ),
        (
            "port: 1\n",
            "train.yaml:1: there is no setting 'port'; did you mean 'dashboard.port'?",
        ),
        (
            "logging: {zebra: 1}\n",
            "train.yaml:1: there is no setting 'logging.zebra'; there are level, directory, jsonl.",
        ),
        (
            "agent:\n  mode: fork\n",
            'train.yaml:2: agent.mode is "fork"; it must be one of process, thread, none.',
        ),
        (
            "recorder: {enabled: 7}\n",
            "train.yaml:1: recorder.enabled is 7; it must be true or false.",
        ),
        (
            "dashboard: {port: true}\n",
            "train.yaml:1: dashboard.port is true; it must be a whole number from 0 to 65535.",
        ),
        (
            "agent: {interval_s: .nan}\n",
            "train.yaml:1: agent.interval_s is NaN; it must be a number from 0.01 to 60.",
        ),
        (
            "recorder: {segment_bytes: 100}\n",
            ("train.yaml:1: recorder.segment_bytes is 100; it must be a whole number, at least 65536."),
        ),
        (
            "store:\n  retention: {max_runs: none}\n",
            (
                'train.yaml:2: store.retention.max_runs is "none"; '
                "it must be a whole number, at least 1, or null."
            ),
        ),
        ("run: 12\n", "train.yaml:1: run is 12; it must be text, or null."),
        (
            "alerts:\n  disabled:\n    - gpu_hot\n    - 5\n",
            "train.yaml:4: alerts.disabled[1] is 5; it must be text.",
        ),
        (
            "logging: loud\n",
            (
                'train.yaml:1: logging is "loud"; '
                "it must be a section with the settings level, directory, jsonl."
            ),
        ),
        (
            "samplers:\n  gpu: {intervall_s: 3}\n",
            (
                "train.yaml:2: there is no setting 'samplers.gpu.intervall_s'; "
                "did you mean 'samplers.gpu.interval_s'?"
            ),
        ),
        (
            "dashboard:\n  port: 1\n  port: 2\n",
            "train.yaml:3: dashboard.port is given twice; the first is on line 2.",
        ),
        (
            "dashboard:\n  port: {a: {b: 1}}\n",
            ('train.yaml:2: dashboard.port is {"a": {"b": 1}}; it must be a whole number from 0 to 65535.'),
        ),
        (
            "run: a\nstore: &s\n  url: x\n",
            (
                "train.yaml:2: cannot be read: "
                "anchors and aliases (& and *) are not supported, write the value out."
            ),
        ),
        (
            "run: *a\n",
            (
                "train.yaml:1: cannot be read: "
                "anchors and aliases (& and *) are not supported, write the value out."
            ),
        ),
        (
            "run: a\nproject: b: c\n",
            "train.yaml:2: cannot be read: mapping values are not allowed here.",
        ),
        (
            "run: a\ndirectory: !!python/object/apply:os.getcwd []\n",
            (
                "train.yaml:2: cannot be read: a value has a type that is not supported; "
                "put it in quotes if it is text."
            ),
        ),
        (
            "run: a\n---\nrun: b\n",
            "train.yaml:2: cannot be read: but found another document.",
        ),
        ("? [a]\n: b\n", "train.yaml:1: cannot be read: a key must be a single word."),
        (
            "\n- a\n- b\n",
            "train.yaml:2: the file must contain settings as 'key: value' lines.",
        ),
        ("[" * 100_000, "train.yaml:1: cannot be read: it is nested too deeply."),
        (b"run: a\nproject: \xff\n", "train.yaml:2: cannot be read: it is not UTF-8 text."),
        (
            "run: a\nproject: \x00\n",
            "train.yaml:2: cannot be read: it contains a character that YAML does not allow.",
        ),
        (
            "#" * (MAX_BYTES + 1),
            "train.yaml: is larger than 1048576 bytes, which no settings need.",
        ),
    ],
)
def test_a_mistake_is_named_with_file_line_and_what_is_allowed(tmp_path, content, message):
    assert message_of(tmp_path, content) == message


def test_all_mistakes_of_a_file_are_reported_in_the_order_of_its_lines(tmp_path):
    message = message_of(tmp_path, "quux: 1\nlogging: {level: 5}\nagent: {mode: 1}\nrunn: a\n")
    assert [line.split(":")[1] for line in message.splitlines()] == ["1", "2", "3", "4"]


def test_mistakes_of_different_sources_are_reported_together(tmp_path):
    (tmp_path / "stepscope.yaml").write_text("quux: 1\n")
    with pytest.raises(ConfigError) as caught:
        load({"agent": 5}, environment={"STEPSCOPE_X": "1"}, directory=tmp_path)
    origins = [line.split(": ")[0] for line in str(caught.value).splitlines()]
    assert sorted(origins) == ["dictionary", "environment STEPSCOPE_X", "stepscope.yaml:1"]


@pytest.mark.parametrize("content", ["", "# nothing\n", "---\n", "{}\n", "\ufeffrun: null\n"])
def test_an_empty_file_means_the_defaults(tmp_path, content):
    (tmp_path / "train.yaml").write_text(content, encoding="utf-8")
    assert load("train.yaml", environment={}, directory=tmp_path).settings == Settings()


@pytest.mark.parametrize("section", ["store", "exporters", "samplers", "alerts"])
def test_a_section_left_empty_means_its_defaults(tmp_path, section):
    (tmp_path / "train.yaml").write_text(f"{section}:\n")
    assert load("train.yaml", environment={}, directory=tmp_path).settings == Settings()


def test_a_sampler_left_empty_means_its_defaults():
    assert load({"samplers": {"gpu": None}}, environment={}).settings.samplers == {"gpu": Sampler()}


def test_a_run_name_in_the_place_of_a_file_gets_a_hint_where_it_belongs(tmp_path):
    with pytest.raises(ConfigError, match=r"^mnist-2: there is no such file\. .* is run='mnist-2'\.$"):
        load("mnist-2", environment={}, directory=tmp_path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"^nowhere\.yaml: there is no such file\.$"):
        load("nowhere.yaml", environment={}, directory=tmp_path)


def test_a_folder_and_a_pipe_are_not_files(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name in (".", "pipe"):
        with pytest.raises(ConfigError, match="is not a file"):
            load(name, environment={}, directory=tmp_path)


def test_a_file_that_cannot_be_opened_says_why(tmp_path):
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    with pytest.raises(ConfigError, match=r"^loop\.yaml: cannot be read: .*symbolic links"):
        load("loop.yaml", environment={}, directory=tmp_path)


def test_values_that_another_process_could_not_receive_are_refused():
    with pytest.raises(ConfigError) as caught:
        load({"exporters": {"x": {"hook": print}}, 5: 1, "run": "\ud800"}, environment={})
    lines = str(caught.value).splitlines()
    expected = "it must be text, a number, a list or a section."
    assert lines == [
        f"dictionary: exporters.x.hook is of type builtin_function_or_method; {expected}",
        "dictionary: the key 5 must be text.",
        f"dictionary: run is text with half a character; {expected}",
    ]


def test_a_mapping_that_contains_itself_is_refused():
    loop = {}
    loop["exporters"] = loop
    with pytest.raises(ConfigError, match="nested too deeply"):
        load(loop, environment={})


def test_something_that_is_neither_mapping_nor_path_is_refused():
    with pytest.raises(ConfigError, match=r"YAML file, not int\."):
        load(42, environment={})


def test_a_name_of_digits_keeps_its_leading_zeros(tmp_path):
    (tmp_path / "train.yaml").write_text("run: 007\n")
    assert load("train.yaml", environment={}, directory=tmp_path).settings.run == "007"
