"""Routes on alerts: open and past alerts, silences, acknowledgements, tests of channels."""

from __future__ import annotations

import time
from dataclasses import dataclass

from fastapi import APIRouter, Response

from stepscope.alerts.delivery.delivery import DEFAULT_CHANNELS, make_channel
from stepscope.channels.base import DeliveryError
from stepscope.errors import NotFound, StepscopeError
from stepscope.schema.alert import AlertDetail, Notice
from stepscope.views.alerts.alert_list import AlertList, alerts_of
from stepscope.web.api.openapi import answer
from stepscope.web.api.parameters import DONE, AlertId, ChannelName, StateOf
from stepscope.web.api.request_bodies import EndedSilence, NewSilence  # noqa: TC001 - FastAPI reads it
from stepscope.web.api.responses import json_response

router = APIRouter(tags=["alerts"])


@dataclass(frozen=True)
class Delivered:
    """Whether a test notice was delivered."""

    delivered: bool
    message: str


@router.get("/alerts", response_model=answer(AlertList))
def alerts(state: StateOf) -> Response:
    """Open and past alerts, the active rules, channels and silences."""
    with state.readers.open() as opened:
        return json_response(
            alerts_of(
                opened.runs,
                state.options.folder,
                settings=state.options.settings.alerts,
                marks=state.marks,
                now_ns=state.now_ns(),
            )
        )


@router.post("/alerts/silences", status_code=204, response_class=Response, responses=DONE)
def silence(state: StateOf, body: NewSilence) -> Response:
    """Mutes a rule for a while."""
    now_ns = state.now_ns()
    until_ns = now_ns + int(body.minutes * 60e9)
    state.silences.silence(body.rule, body.run, now_ns=now_ns, until_ns=until_ns, reason=body.reason)
    return Response(status_code=204)


@router.delete("/alerts/silences", status_code=204, response_class=Response, responses=DONE)
def end_silence(state: StateOf, body: EndedSilence) -> Response:
    """Ends the silences of a rule in a run."""
    silences = state.silences.read().silences
    matching = [silence for silence in silences if (silence.rule, silence.run) == (body.rule, body.run)]
    if not matching:
        raise NotFound(f"There is no silence of the rule {body.rule!r} in {body.run!r}.")
    for silence in matching:
        state.silences.end_silence(silence.id)
    return Response(status_code=204)


@router.post("/alerts/{alert_id}/ack", status_code=204, response_class=Response, responses=DONE)
def acknowledge(state: StateOf, alert_id: AlertId) -> Response:
    """Acknowledges an alert: no more reminders are sent."""
    with state.readers.open() as opened:
        is_known = any(alert["id"] == alert_id for run in opened.runs.runs() for alert in run.alerts())
    if not is_known:
        raise NotFound(f"There is no alert {alert_id}.")
    state.silences.acknowledge(alert_id)
    return Response(status_code=204)


@router.post("/channels/{name}/test", response_model=answer(Delivered))
def test_channel(state: StateOf, name: ChannelName) -> Response:
    """Sends a test notice by a channel of the settings."""
    channels = {**DEFAULT_CHANNELS, **state.options.settings.alerts.channels}
    if name not in channels:
        raise NotFound(f"The settings have no channel {name!r}; there are: {', '.join(channels)}.")
    now_ns = time.time_ns()
    detail = AlertDetail("test", "info", "This is a test of stepscope: nothing is wrong.", now_ns)
    notice = Notice(f"test-{now_ns}", "test", "test", "test", "", "", now_ns, (detail,))
    try:
        channel = make_channel(name, channels[name])
        channel.send(notice)
    except (DeliveryError, StepscopeError) as error:
        return json_response(Delivered(delivered=False, message=str(error)))
    return json_response(Delivered(delivered=True, message=f"Sent to {channel.target}."))
