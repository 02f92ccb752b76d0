"""The shapes of answers on alerts and settings, and of what people change."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from stepscope.web.api.shapes_runs import Severity  # noqa: TC001 - pydantic reads it

Text = Annotated[str, Field(max_length=300)]


Origin = Literal["usual", "configuration", "page", "training"]
Time = Annotated[str, Field(max_length=50, description="Such as `60s`, `2m` or `1h`.")]


class ToldBy(BaseModel):
    """Whether a channel has brought an alert to a person."""

    channel: str
    at: float | None
    delivered: bool


class AlertRow(BaseModel):
    """An alert, firing or past."""

    id: int
    run_id: str
    run: str
    rule: str
    severity: Severity
    message: str
    fired: float
    resolved: float | None
    step: int | None
    rank: int | None
    device: str
    value: float | None
    threshold: float | None
    key: str
    quantity: str
    recent: list[float | None]
    advice: str
    acknowledged: bool
    told: list[ToldBy]


class RuleRow(BaseModel):
    """A rule that holds here."""

    name: str
    severity: Severity
    condition: str
    message: str
    enabled: bool
    is_default: bool
    advice: str
    origin: Origin
    replaces: Origin | None
    run: str
    project: str
    for_: Annotated[str, Field(alias="for")]
    clear: str
    cooldown: str
    remind: str
    channels: list[str] | None
    resolve: bool
    problem: str


class ChannelRow(BaseModel):
    """A way to tell a person."""

    name: str
    kind: str
    target: str


class SilenceRow(BaseModel):
    """A rule of which nobody is told for a while."""

    rule: str
    run: str
    until: float | None
    reason: str


class AlertList(BaseModel):
    """Alerts, rules, channels, silences."""

    open: list[AlertRow]
    past: list[AlertRow]
    rules: list[RuleRow]
    channels: list[ChannelRow]
    silences: list[SilenceRow]
    quiet_hours: str | None
    rules_trouble: str


class SettingRow(BaseModel):
    """A setting and its value; secrets are hidden."""

    section: str
    name: str
    value: str
    help: str


class ServerSettings(BaseModel):
    """The settings this server was started with."""

    items: list[SettingRow]
    scrape_config: str | None
    exporters: list[str]
    token_file: str | None = Field(description="Where the token lies; null where none is asked for.")


class Asked(BaseModel):
    """What people send; a field that is not known is refused, so that a slip of the pen is noticed."""

    model_config = ConfigDict(extra="forbid")


class NewMarks(Asked):
    """What to say of a run; what is left out stays as it is."""

    name: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    tags: Annotated[list[Annotated[str, Field(min_length=1, max_length=64)]], Field(max_length=50)] = []
    archived: bool = False
    colour: Annotated[str, Field(pattern=r"^(#[0-9a-fA-F]{6}|[a-z][a-z0-9-]{0,23})$")] | None = None
    muted: Annotated[list[Text], Field(max_length=500)] = []


class NewNote(Asked):
    """A note at a step, at a moment, or on the run as a whole."""

    step: Annotated[int, Field(ge=-(2**53), le=2**53)] | None = None
    time: Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False)] | None = None
    text: Annotated[str, Field(min_length=1, max_length=10_000)]


class NewSilence(Asked):
    """Whom not to tell, of what, for how long."""

    rule: Annotated[str, Field(min_length=1, max_length=300, description="A rule or a pattern of names.")]
    run: Annotated[str, Field(min_length=1, max_length=300)] = "*"
    minutes: Annotated[float, Field(gt=0, le=60 * 24 * 366, allow_inf_nan=False)]
    reason: Annotated[str, Field(max_length=1000)] = ""


class EndedSilence(Asked):
    """The silence to end."""

    rule: Annotated[str, Field(min_length=1, max_length=300)]
    run: Annotated[str, Field(min_length=1, max_length=300)] = "*"


class NewRule(Asked):
    """A rule; empty texts say nothing. Without `when` only `enabled` may be there: it switches the rule."""

    when: Annotated[str, Field(min_length=1, max_length=2000)] | None = None
    for_: Annotated[str, Field(alias="for", max_length=50, description="A time, or such as `100 steps`.")] = (
        ""
    )
    clear: Annotated[str, Field(max_length=2000, description="The condition of its end.")] = ""
    severity: Literal["critical", "warning", "info"] = "warning"
    message: Annotated[str, Field(max_length=2000)] = ""
    advice: Annotated[str, Field(max_length=2000)] = ""
    cooldown: Time = ""
    remind: Time = ""
    channels: Annotated[list[Annotated[str, Field(max_length=100)]], Field(max_length=50)] | None = None
    resolve: bool = True
    enabled: bool = True
    run: Annotated[str, Field(max_length=300, description="A run or a pattern; empty for all.")] = ""
    project: Annotated[str, Field(max_length=300, description="The same of projects.")] = ""


class CheckedCondition(Asked):
    """A condition to look at, and the run to judge it by."""

    when: Annotated[str, Field(max_length=4000)]
    run: Annotated[str, Field(min_length=1, max_length=300)] | None = None


class Fault(BaseModel):
    """What is wrong with a condition, and at which of its characters, the first of them 0."""

    message: str
    begin: int
    end: int


class RuleNow(BaseModel):
    """What a condition comes to in a run."""

    run_id: str
    run: str
    live: bool
    is_true: bool | None
    subjects: int
    true: int
    key: str
    value: float | None
    threshold: float | None
    rank: int | None
    device: str


class RuleCheck(BaseModel):
    """What there is to say of a condition."""

    ok: bool
    fault: Fault | None
    written: str
    keys: list[str]
    doubts: list[str]
    now: RuleNow | None


class Delivered(BaseModel):
    """What became of a test notice."""

    delivered: bool
    message: str


class Started(BaseModel):
    """The run that was started."""

    run: str


Layout = dict[str, Any]
"""How somebody arranged a page: any JSON object."""
