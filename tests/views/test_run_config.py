"""How a run was set up."""

from __future__ import annotations

from pathlib import Path

import pytest

import stepscope
from stepscope.views.run_config import config_of
from stepscope.views.run_setup import MAX_ENTRIES, flattened, setup_of
from tests.views.made import Made, as_json


def sections(made: Made) -> dict[str, dict[str, str]]:
    return {
        section.title: {item.label: item.value for item in section.items}
        for section in config_of(made.run()).sections
    }


def test_command_versions_variables_and_gpus_have_sections(made: Made) -> None:
    facts = {
        "command": ["python", "train.py", "--name", "two words"],
        "python": "3.11.7",
        "commit": "0123abc",
        "libraries": {"torch": "2.9.0"},
        "environment": {"CUDA_VISIBLE_DEVICES": "0"},
        "world_size": 1,
    }
    made.process(facts=facts)
    made.gpu(0)
    made.event("loader", num_workers=4, batch_size=32)
    made.event("notice", host="node1", text="No energy counter.")
    lines_by_section = sections(made)
    assert lines_by_section["Launch"]["Command"] == "python train.py --name 'two words'"
    assert lines_by_section["Libraries"] == {"torch": "2.9.0"}
    assert lines_by_section["Environment variables"] == {"CUDA_VISIBLE_DEVICES": "0"}
    assert lines_by_section["GPUs"] == {"gpu 0 · node1": "NVIDIA H200, 80 GiB, driver 550.1, GPU-node1-0"}
    assert lines_by_section["Data loader"] == {"num_workers": "4", "batch_size": "32"}
    assert lines_by_section["Processes"] == {"rank 0 · node1": "process 100, finished"}
    assert lines_by_section["Notices"] == {"node1": "No energy counter."}


def test_a_configuration_keeps_its_nesting(made: Made) -> None:
    made.process(facts={"config": {"seed": 1, "model": {"width": 8}}})
    made.event("config", 1, step=0, seed=2)
    made.event("config", 2, step=0, optimizer={"lr": float("inf"), "betas": [0.9, 0.99]})
    config_json = as_json(config_of(made.run()))
    assert " ".join(config_json) == "config sections"
    assert config_json["config"] == {
        "seed": 2,
        "model": {"width": 8},
        "optimizer": {"lr": "inf", "betas": [0.9, 0.99]},
    }


def test_secrets_are_not_shown(made: Made) -> None:
    made.process(facts={"samplers": {"api_token": "hunter22"}, "environment": {"X": "https://a:b@host/"}})
    assert "hunter22" not in str(sections(made))
    assert "a:b@" not in str(sections(made))


def test_a_run_recorded_by_a_monitor_has_its_command(folder: Path) -> None:
    with stepscope.TrainingMonitor({"agent": {"mode": "none"}}, run="real", directory=folder) as monitor:
        monitor.log_training_step(loss=1.0)
    store = stepscope.open_store(folder)
    sections_by_title = {section.title: section for section in config_of(store.run("real")).sections}
    store.close()
    assert {"Launch", "Processes", "Recorded with"} <= set(sections_by_title)
    assert sections_by_title["Launch"].items[0].copy


def test_flat_names_are_limited_in_number_and_depth() -> None:
    deep: dict = {}
    inner = deep
    for _ in range(50):
        inner["x"] = {}
        inner = inner["x"]
    assert list(flattened(deep)) == [".".join("x" * 8)]
    assert len(flattened({str(number): number for number in range(MAX_ENTRIES + 10)})) == MAX_ENTRIES
    assert flattened({"a": {}, "b": [], "c": None}) == {"a": "{}", "b": "[]", "c": None}


def test_a_fact_overrides_an_event_and_an_event_overrides_an_entry(made: Made) -> None:
    made.process("a-1", facts={"total_steps": 1})
    made.process("b-1")
    made.process("c-1")
    for name in ("a-1", "b-1"):
        made.event("total_steps", run=name, value=2)
    for name in ("a-1", "b-1", "c-1"):
        made.event("config", run=name, max_steps=3)
    totals = [setup_of(run).total_steps for run in made.runs().runs()]
    assert totals == [1, 2, 3]


def test_the_newest_segment_represents_a_run(made: Made) -> None:
    made.process(facts={"python": "3.10"}, end=10)
    made.process(segment="b2", started_ns=2 * 10**18, facts={"python": "3.12"})
    assert sections(made)["Launch"] == {"Python": "3.12"}


@pytest.mark.parametrize(
    "facts", [{}, {"command": "not a list", "libraries": [], "environment": None, "config": 5}]
)
def test_facts_of_a_wrong_type_are_left_out(made: Made, facts: dict) -> None:
    made.process(facts=facts)
    assert as_json(config_of(made.run()))["config"] == {}
