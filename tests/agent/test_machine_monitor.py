"""What is read of the machine belongs to the runs on it, for as long as they live."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from stepscope import plugins
from stepscope.agent import machine_monitor
from stepscope.agent.machine_monitor import MachineMonitor
from stepscope.agent.sampling import SamplerPool
from stepscope.config.sections import Sampler as SamplerSettings
from stepscope.config.sections import Settings, to_dict
from stepscope.errors import StepscopeError
from stepscope.samplers.base import Sampler
from stepscope.schema.run import Process
from stepscope.schema.sample import DeviceFacts, Metric, Notice, Reading, Sample, Watched
from stepscope.schema.series import Selection
from stepscope.store.sqlite import SqliteStore


class Machine(Sampler):
    interval_s = 0.01
    metrics = (
        Metric("power_watts", "Power of a device."),
        Metric("resident_bytes", "Memory of a process."),
    )

    def sample(self, watched: Sequence[Watched]) -> Iterable[Reading]:
        yield DeviceFacts("gpu-a", {"name": "Scripted", "index": 0})
        yield Notice("no fan", "gpu-a has no fan.")
        yield Sample({"power_watts": 250.0}, "gpu-a")
        yield Sample({})
        for process in watched:
            yield Sample({"resident_bytes": float(process.pid)}, owner=process)


@pytest.fixture
def store(folder: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(folder / "store.sqlite")
    yield opened
    opened.close()


@pytest.fixture
def machine(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[MachineMonitor]:
    monkeypatch.setattr(machine_monitor, "STORE_EVERY_S", 0.0)
    made = MachineMonitor(store, SamplerPool(["machine"], lambda *_: Machine()))
    yield made
    made.close()


def process(store: SqliteStore, run: str, rank: int = 0, pid: int = 100, **changes: object) -> Process:
    fields = {"segment": "s1", "host": "node1", "role": "rank", **changes}
    made = Process(run_id=run, name=run, project="p", rank=rank, pid=pid, started_ns=1, **fields)
    with store.transaction():
        store.put_process(made)
    return made


def watch_until(machine: MachineMonitor, until, done) -> None:
    def step() -> bool:
        machine.flush()
        return bool(done())

    until(step)


def keys(store: SqliteStore, run: str) -> list[str]:
    return [info.key for info in store.keys(run, "seconds")]


def test_figures_of_the_host_are_kept_with_every_run_and_a_process_has_its_own(
    machine: MachineMonitor, store: SqliteStore, until
) -> None:
    machine.update_processes(
        [process(store, "one"), process(store, "two", pid=7), process(store, "two", 1, 8)]
    )
    watch_until(machine, until, lambda: len(keys(store, "one")) == 2 and len(keys(store, "two")) == 2)
    for run in ("one", "two"):
        (power,) = [source for source, known in store.sources(run).items() if "power_watts" in known]
        assert (power.rank, power.host, power.device, power.axis) == (None, "node1", "gpu-a", "seconds")
    own = {rank: store.points(Selection("two", "resident_bytes", rank=rank)).values[0] for rank in (0, 1)}
    assert own == {0: 7.0, 1: 8.0}


def test_facts_and_notices_are_stored_once_for_each_run_also_for_a_later_one(
    machine: MachineMonitor, store: SqliteStore, until
) -> None:
    first = process(store, "one")
    machine.update_processes([first])
    watch_until(machine, until, lambda: store.events("one"))
    machine.update_processes([first, process(store, "two")])
    watch_until(machine, until, lambda: store.events("two"))
    for run in ("one", "two"):
        events = {event.kind: (event.rank, event.fields) for event in store.events(run)}
        assert len(store.events(run)) == 2
        assert events["device"] == (
            None,
            {"host": "node1", "device": "gpu-a", "name": "Scripted", "index": 0},
        )
        assert events["notice"] == (None, {"host": "node1", "text": "gpu-a has no fan."})


def test_a_run_that_has_ended_gets_no_more_and_sampling_is_paused(
    machine: MachineMonitor, store: SqliteStore, until
) -> None:
    machine.update_processes([process(store, "one")])
    watch_until(machine, until, lambda: keys(store, "one"))
    machine.update_processes([])
    (info, _) = store.keys("one", "seconds")
    machine.flush()
    assert store.keys("one", "seconds")[0] == info


def test_the_shortest_interval_that_a_run_requests_applies(
    store: SqliteStore, until, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured: list[dict[str, float]] = []
    monkeypatch.setattr(SamplerPool, "configure", lambda _, intervals, __: configured.append(dict(intervals)))
    machine = MachineMonitor(store, SamplerPool(["machine", "other"], lambda *_: Machine()))

    def requested(**settings: SamplerSettings) -> dict[str, object]:
        return {"samplers": to_dict(Settings(samplers=settings))["samplers"]}

    plain = process(store, "plain")
    eager = process(store, "eager", facts=requested(machine=SamplerSettings(interval_s=0.005)))
    modest = process(store, "modest", facts=requested(default=SamplerSettings(enabled=False)))
    newer = process(store, "newer", facts={"samplers": {"machine": {"colour": "blue"}}})
    machine.update_processes([modest])
    machine.update_processes([modest, plain])
    machine.update_processes([modest, plain, eager, newer])
    assert configured == [{}, {"machine": 0.01, "other": 0.01}, {"machine": 0.005, "other": 0.01}]


def test_a_run_gets_no_figures_of_a_sampler_that_it_has_switched_off(
    machine: MachineMonitor, store: SqliteStore, until
) -> None:
    facts = {"samplers": to_dict(Settings(samplers={"machine": SamplerSettings(enabled=False)}))["samplers"]}
    machine.update_processes([process(store, "plain"), process(store, "modest", pid=7, facts=facts)])
    watch_until(machine, until, lambda: len(keys(store, "plain")) == 2)
    assert keys(store, "modest") == []


def test_a_launcher_is_watched_only_until_its_rank_records(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched: list[list[int]] = []
    monkeypatch.setattr(
        SamplerPool,
        "configure",
        lambda _, __, processes: watched.append([process.pid for process in processes]),
    )
    machine = MachineMonitor(store, SamplerPool([]))
    launcher = process(store, "one", pid=10, role="launcher")
    worker = process(store, "one", pid=12, role="worker")
    machine.update_processes([launcher, worker])
    machine.update_processes([launcher, worker, process(store, "one", pid=11)])
    assert watched == [[10], [11]]


def test_an_option_the_sampler_does_not_have_is_named_and_the_others_go_on(
    store: SqliteStore, until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_monitor, "STORE_EVERY_S", 0.0)

    def make(name: str, options: Mapping[str, object]) -> Sampler:
        return Machine() if name == "machine" else plugins.make("samplers", name, Sampler, options)

    wrong = {"cpu": SamplerSettings(options={"colour": "blue"})}
    machine = MachineMonitor(store, SamplerPool(["cpu", "machine"], make))
    facts = {"samplers": to_dict(Settings(samplers=wrong))["samplers"]}
    machine.update_processes([process(store, "one", facts=facts)])
    watch_until(machine, until, lambda: keys(store, "one") and store.events("one"))
    machine.close()
    texts = [event.fields["text"] for event in store.events("one", "notice")]
    assert any(text.startswith("samplers.cpu has no option 'colour'; it has: ") for text in texts)


def test_invalid_options_of_one_run_do_not_affect_another_and_are_reported_only_to_that_run(
    store: SqliteStore, until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_monitor, "STORE_EVERY_S", 0.0)

    def make(name: str, options: Mapping[str, object]) -> Sampler:
        plugins.check_options("samplers", name, Machine, options)
        return Machine()

    facts = {"samplers": {"machine": {"enabled": True, "interval_s": None, "options": {"colour": "blue"}}}}
    machine = MachineMonitor(store, SamplerPool(["machine"], make))
    machine.update_processes([process(store, "wrong", facts=facts), process(store, "right", pid=7)])
    watch_until(machine, until, lambda: keys(store, "right") and store.events("wrong", "notice"))
    machine.close()
    notices = {
        run: [event.fields["text"] for event in store.events(run, "notice")] for run in ("wrong", "right")
    }
    assert any("has no option 'colour'" in text for text in notices["wrong"])
    assert not any("colour" in text for text in notices["right"])


def test_an_unknown_sampler_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(StepscopeError, match="There is no 'telepathy' in samplers; there are: .*cpu"):
        plugins.make("samplers", "telepathy", Sampler, {})


def test_what_a_full_disk_refuses_is_kept_when_it_has_room_again(
    machine: MachineMonitor, store: SqliteStore, until, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.update_processes([process(store, "one")])
    full = True
    append = store.append

    def refuse(*arguments: object) -> None:
        if full:
            raise StepscopeError("no space left")
        append(*arguments)

    monkeypatch.setattr(store, "append", refuse)
    refused = 0

    def is_refused_often() -> bool:
        nonlocal refused
        try:
            machine.flush()
        except StepscopeError:
            refused += 1
        return refused > 5

    until(is_refused_often)
    full = False
    machine.flush()
    points = store.points(Selection("one", "power_watts"))
    assert len(points) >= 3
