"""The settings tree: every setting with its type, its default and its description.

Standard library only, because training processes import it. `load` validates values from outside; a tree
built in code is trusted. `to_dict` and `from_dict` pass a tree to another process.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_args, get_origin, get_type_hints

from stepscope.config.bounds import Form, Range

if TYPE_CHECKING:
    from collections.abc import Mapping

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

Options = dict[str, Any]

_ORIGIN = r"^https?://[A-Za-z0-9.\-\[\]:]+?(:\*)?$"
"""Scheme, host and port of a site: no path, and nothing that would end or extend a header."""


class Section:
    """A section of the tree, which refuses unknown keys."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}


@dataclass(frozen=True)
class Retention(Section):
    """Limits for keeping old runs."""

    max_age_days: Annotated[float, Range(0)] | None = None
    """Days after which a run that has ended is deleted; null keeps it."""

    max_runs: Annotated[int, Range(1)] | None = None
    """Number of runs in the store above which the run is deleted, older runs first; null keeps it."""

    max_bytes: Annotated[int, Range(MIB)] | None = None
    """Size of the store above which the run is deleted, older runs first; null sets no limit."""


@dataclass(frozen=True)
class Store(Section):
    """Where runs are stored."""

    url: Annotated[str, Form("^sqlite:///.+", "a URL such as sqlite:///data/runs.sqlite")] | None = None
    """URL of the database, as in `sqlite:///data/runs.sqlite`; null is a file in the store folder."""

    retention: Retention = field(default_factory=Retention)
    """Limits for keeping old runs."""


@dataclass(frozen=True)
class Recorder(Section):
    """The recorder inside the training process."""

    enabled: bool = True
    """Whether anything is recorded; when false every log call returns at once."""

    strict: bool = False
    """Whether a failure of the recorder raises in the training loop instead of warning once."""

    attach: bool = True
    """Whether `stepscope run` records the steps of trainings whose scripts do not use stepscope."""

    max_overhead: Annotated[float, Range(0.0001, 1)] = 0.005
    """Share of the training's time that `watch` and `batches` may take; probes are sampled accordingly."""

    escalation: bool = True
    """Whether signs such as a step that blocks may start stack samples of the training thread."""

    segment_bytes: Annotated[int, Range(64 * KIB)] = 4 * MIB
    """Size of one journal file; a full one is closed and the next begun."""

    unread_bytes: Annotated[int, Range(MIB)] = GIB
    """Maximum number of journal bytes that may wait for the agent; beyond it the newest rows are dropped."""

    max_keys: Annotated[int, Range(1)] = 50_000
    """Maximum number of metric names of a run; further names are dropped and counted."""

    mapping: Literal["auto", "always", "never"] = "auto"
    """Whether the journal is memory-mapped or written with write()."""


@dataclass(frozen=True)
class Agent(Section):
    """The process that moves records from the journals to the store."""

    mode: Literal["process", "thread", "none"] = "process"
    """Whether the agent is its own process, a thread of the training process, or absent."""

    interval_s: Annotated[float, Range(0.01, 60)] = 0.5
    """How often journals are read into the store."""

    sync_interval_s: Annotated[float, Range(0.1, 1)] = 1.0
    """How often stored data is synced to disk, which protects it from a power failure."""

    linger_s: Annotated[float, Range(0, 3600)] = 3.0
    """How long the agent stays after the last run has ended."""

    stall_after_s: Annotated[float, Range(1)] = 60.0
    """A run without a record for this long counts as stalled."""

    verdict: bool = True
    """Whether a training in a terminal says there how it is doing: after 100 steps and at its end."""


@dataclass(frozen=True)
class Sampler(Section):
    """How one sampler polls."""

    enabled: bool = True
    """Whether the sampler is polled."""

    interval_s: Annotated[float, Range(0.1, 600)] | None = None
    """How often the sampler is polled; null is its own interval, 1 s for most."""

    options: Options = field(default_factory=dict)
    """The sampler's own options; any other key beside `interval_s` is one of them."""


FindingLevel = Literal["none", "critical", "warning", "notice"]


@dataclass(frozen=True)
class Alerts(Section):
    """When and how to notify people."""

    enabled: bool = True
    """Whether alert rules are evaluated."""

    rules: list[Options] = field(default_factory=list)
    """Alert rules, each a section with its own keys."""

    findings: FindingLevel = "critical"
    """Least severity of findings of the diagnosis that raise an alert while the run is live."""

    thresholds: dict[str, Annotated[float, Range()]] = field(default_factory=dict)
    """Limits by metric name; exceeding one raises an alert."""

    disabled: list[str] = field(default_factory=list)
    """Names of rules that are switched off, such as `input_bound` or `finding.mem.leak`."""

    channels: dict[str, Options] = field(default_factory=dict)
    """Where notices are sent, by channel name, such as `webhook: {url: ...}`."""

    quiet_hours: str | None = None
    """Hours in which only critical alerts are sent, such as `22:00-07:00`; null for none."""

    link: str | None = None
    """URL of the web page, for links in notices; null omits them."""


@dataclass(frozen=True)
class Dashboard(Section):
    """The web dashboard."""

    enabled: bool = False
    """Whether the dashboard is served during a run."""

    host: str = "127.0.0.1"
    """Address to listen on; the default is reachable only from this host."""

    port: Annotated[int, Range(0, 65535)] = 8787
    """Port to listen on; 0 takes any free one."""

    token_file: str | None = None
    """File with the access token; null creates a token at the first start."""

    frame_origins: list[Annotated[str, Form(_ORIGIN, "an origin such as http://localhost:8888")]] = field(
        default_factory=list
    )
    """Origins whose pages may show the dashboard in a frame, such as `http://localhost:8888`."""


@dataclass(frozen=True)
class Logging(Section):
    """Log files of a run."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level that is logged."""

    directory: str | None = None
    """Folder for log files; null writes none."""

    jsonl: bool = False
    """Whether log files hold one JSON object per line instead of text."""


@dataclass(frozen=True)
class Energy(Section):
    """The cost of energy, in money and in carbon dioxide."""

    region: str | None = None
    """Where the power comes from, such as `DE` or `europe-west4`; null leaves carbon dioxide unknown."""

    carbon_grams_per_kwh: Annotated[float, Range(0)] | None = None
    """Carbon dioxide per kilowatt-hour, in grams; null is the region's value."""

    electricity_price_per_kwh: Annotated[float, Range(0)] | None = None
    """Price per kilowatt-hour; null leaves the cost of electricity unknown."""

    currency: str = "USD"
    """Currency of the prices given here."""

    pue: Annotated[float, Range(1, 10)] = 1.0
    """Power usage effectiveness: watts of the building, with cooling, for each watt of the machine."""

    gpu_price_per_hour: dict[str, Annotated[float, Range(0)]] = field(default_factory=dict)
    """Prices of rented GPUs, by name or pattern, such as `NVIDIA H100*`."""

    prices_file: str | None = None
    """YAML file with your own prices and carbon figures, which override the defaults."""


@dataclass(frozen=True)
class Targets(Section):
    """What the run is to reach; an alert says when it misses one for a while."""

    steps_per_second: Annotated[float, Range(above=0)] | None = None
    """Minimum number of steps per second; null for no target."""

    samples_per_second: Annotated[float, Range(above=0)] | None = None
    """Minimum number of samples per second, of all ranks together; null for no target."""

    gpu_utilization_percent: Annotated[float, Range(above=0, high=100)] | None = None
    """Minimum mean utilization of the GPUs of the run; null for no target."""

    cpu_utilization_percent: Annotated[float, Range(above=0, high=100)] | None = None
    """Minimum mean utilization of the processors of its hosts; null for no target."""

    cost: Annotated[float, Range(above=0)] | None = None
    """Maximum cost of the run, in `energy.currency`; null for no target."""


@dataclass(frozen=True)
class Privacy(Section):
    """What is hashed or removed before it is recorded; secrets always are."""

    salt_file: str | None = None
    """File with the salt for hashing names of hosts and users; null leaves them readable."""

    shorten_home: bool = False
    """Whether home directories are written as `~`."""

    personal_data: bool | None = None
    """Whether e-mail and IP addresses, phone numbers and IBANs are removed; null: only with a salt file."""

    rules: dict[str, str] = field(default_factory=dict)
    """Further secrets to remove: patterns, by the name that replaces them."""


@dataclass(frozen=True)
class Settings(Section):
    """All settings of stepscope."""

    run: str | None = None
    """Name of the run; null generates one."""

    project: str = "default"
    """Project the run belongs to."""

    directory: str | None = None
    """Store folder; null is `.stepscope` in the working directory. A leading `~` is your home folder."""

    store: Store = field(default_factory=Store)
    """Where runs are stored."""

    recorder: Recorder = field(default_factory=Recorder)
    """The recorder inside the training process."""

    agent: Agent = field(default_factory=Agent)
    """The process that moves records from the journals to the store."""

    samplers: dict[str, Sampler] = field(default_factory=dict)
    """What is polled on the host, by sampler name; `default` applies to all samplers."""

    alerts: Alerts = field(default_factory=Alerts)
    """When and how to notify people."""

    detectors: dict[str, Options] = field(default_factory=dict)
    """Options of the detectors, by detector id."""

    dashboard: Dashboard = field(default_factory=Dashboard)
    """The web dashboard."""

    exporters: dict[str, Options] = field(default_factory=dict)
    """Live exporters, by name, such as `metrics_files: {directory: metrics}`."""

    energy: Energy = field(default_factory=Energy)
    """The cost of energy, in money and in carbon dioxide."""

    targets: Targets = field(default_factory=Targets)
    """What the run is to reach; an alert says when it misses one for a while."""

    logging: Logging = field(default_factory=Logging)
    """Log files of a run."""

    privacy: Privacy = field(default_factory=Privacy)
    """What is hashed or removed before it is recorded; secrets always are."""

    def sampler(self, name: str) -> Sampler:
        """Returns the settings of one sampler: its own, else `default`, else the built-in ones."""
        return self.samplers.get(name) or self.samplers.get("default") or Sampler()


_Kind = type | tuple[type, ...]
_NUMBER = (int, float)

_RECORDED: dict[str, _Kind] = {
    "enabled": bool,
    "rules": list,
    "thresholds": dict,
    "disabled": list,
    "quiet_hours": str,
    "findings": str,
}
"""The alert settings that are recorded, with their types."""

_RECORDED_ENERGY: dict[str, _Kind] = {
    "region": str,
    "carbon_grams_per_kwh": _NUMBER,
    "electricity_price_per_kwh": _NUMBER,
    "currency": str,
    "pue": _NUMBER,
    "gpu_price_per_hour": dict,
}
"""The prices that are recorded: not a file, since whoever reads the store might not be allowed to read it."""


def to_dict(settings: Settings) -> dict[str, Any]:
    """Returns the whole tree as dicts and lists, for JSON."""
    return dataclasses.asdict(settings)


def from_dict(data: Mapping[str, Any]) -> Settings:
    """Rebuilds what `to_dict` returned, without validation."""
    settings: Settings = _built(Settings, data)
    return settings


def recorded_alerts(facts: Mapping[str, Any]) -> Alerts:
    """The alert settings that a run was recorded with, without those that may be secret."""
    recorded = _of_kinds(facts.get("alerts"), _RECORDED)
    if recorded.get("findings") not in get_args(FindingLevel):
        recorded.pop("findings", None)
    return Alerts(**recorded)


def recorded_targets(facts: Mapping[str, Any]) -> Targets:
    """The targets that a run was recorded with."""
    names = [target.name for target in dataclasses.fields(Targets)]
    numbers = _of_kinds(facts.get("targets"), dict.fromkeys(names, _NUMBER))
    return Targets(**{name: float(number) for name, number in numbers.items() if 0 < number < math.inf})


def recorded_energy(facts: Mapping[str, Any]) -> Energy:
    """The prices that a run was recorded with, without those of a file."""
    recorded = _of_kinds(facts.get("energy"), _RECORDED_ENERGY)
    prices = recorded.get("gpu_price_per_hour", {})
    return Energy(**{**recorded, "gpu_price_per_hour": _of_kinds(prices, dict.fromkeys(prices, _NUMBER))})


def _of_kinds(recorded: object, kinds: Mapping[str, _Kind]) -> dict[str, Any]:
    """The recorded values of these types: a record may be damaged, or written by another version."""
    if not isinstance(recorded, dict):
        return {}
    return {name: recorded[name] for name, kind in kinds.items() if isinstance(recorded.get(name), kind)}


def _built(hint: Any, value: Any) -> Any:
    if dataclasses.is_dataclass(hint):
        hints = get_type_hints(hint)
        parts = {name: _built(hints[name], part) for name, part in value.items()}
        return hint(**parts)  # type: ignore[operator]  # a dataclass type, never an instance
    if get_origin(hint) is dict:
        return {name: _built(get_args(hint)[1], part) for name, part in value.items()}
    return value
