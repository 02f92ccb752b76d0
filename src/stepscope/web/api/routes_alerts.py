"""Routes on alerts: what fires, silences, acknowledgements, tests of channels."""

from __future__ import annotations

import time

from fastapi import APIRouter, Response

from stepscope.alerts.delivery.delivery import DEFAULT_CHANNELS, make_channel
from stepscope.channels.base import DeliveryError
from stepscope.errors import NotFound, StepscopeError
from stepscope.schema.alert import AlertDetail, Notice
from stepscope.web.api.parameters import DONE, AlertId, ChannelName, SiteOf
from stepscope.web.api.responses import answer
from stepscope.web.api.shapes_alerts import AlertList, Delivered, EndedSilence, NewSilence

router = APIRouter(tags=["alerts"])


@router.get("/alerts", response_model=AlertList)
def alerts(site: SiteOf) -> Response:
    """What fires, what fired, the rules that hold, channels and silences."""
    from stepscope.views.alerts.alert_list import alerts_of

    with site.readers.open() as opened:
        return answer(
            alerts_of(
                opened.runs,
                site.options.folder,
                settings=site.options.settings.alerts,
                marks=site.marks,
                now_ns=site.now_ns(),
            )
        )


@router.post("/alerts/silences", status_code=204, response_class=Response, responses=DONE)
def silence(site: SiteOf, asked: NewSilence) -> Response:
    """Has nobody told of a rule for a while."""
    now_ns = site.now_ns()
    until_ns = now_ns + int(asked.minutes * 60e9)
    site.silences.silence(asked.rule, asked.run, now_ns=now_ns, until_ns=until_ns, reason=asked.reason)
    return Response(status_code=204)


@router.delete("/alerts/silences", status_code=204, response_class=Response, responses=DONE)
def end_silence(site: SiteOf, asked: EndedSilence) -> Response:
    """Ends the silences of a rule in a run."""
    meant = [one for one in site.silences.read().silences if (one.rule, one.run) == (asked.rule, asked.run)]
    if not meant:
        raise NotFound(f"There is no silence of the rule {asked.rule!r} in {asked.run!r}.")
    for one in meant:
        site.silences.end_silence(one.id)
    return Response(status_code=204)


@router.post("/alerts/{alert_id}/ack", status_code=204, response_class=Response, responses=DONE)
def acknowledge(site: SiteOf, alert_id: AlertId) -> Response:
    """Says that somebody looks after an alert: no more reminders."""
    with site.readers.open() as opened:
        known = any(one["id"] == alert_id for run in opened.runs.runs() for one in run.alerts())
    if not known:
        raise NotFound(f"There is no alert {alert_id}.")
    site.silences.acknowledge(alert_id)
    return Response(status_code=204)


@router.post("/channels/{name}/test", response_model=Delivered)
def test_channel(site: SiteOf, name: ChannelName) -> Response:
    """Sends a test notice by a channel of the settings, now."""
    channels = {**DEFAULT_CHANNELS, **site.options.settings.alerts.channels}
    if name not in channels:
        raise NotFound(f"The settings have no channel {name!r}; there are: {', '.join(channels)}.")
    now_ns = time.time_ns()
    told = AlertDetail("test", "info", "This is a test of stepscope: nothing is wrong.", now_ns)
    notice = Notice(f"test-{now_ns}", "test", "test", "test", "", "", now_ns, (told,))
    try:
        channel = make_channel(name, channels[name])
        channel.send(notice)
    except (DeliveryError, StepscopeError) as error:
        return answer({"delivered": False, "message": str(error)})
    return answer({"delivered": True, "message": f"Sent to {channel.target}."})
