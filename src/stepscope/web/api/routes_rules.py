"""Routes on alert rules: create, change, switch on or off, delete, and check a condition."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response
from fastapi.exceptions import HTTPException

from stepscope.alerts.rule_list import list_rules
from stepscope.errors import ConfigError, NotFound
from stepscope.views.alerts.alert_list import rules_of_live_runs
from stepscope.views.alerts.rule_check import RuleCheck, check_rule
from stepscope.web.api.openapi import answer
from stepscope.web.api.parameters import DONE, RuleName, StateOf
from stepscope.web.api.request_bodies import CheckedCondition, NewRule  # noqa: TC001 - FastAPI reads it
from stepscope.web.api.responses import json_response

router = APIRouter(tags=["alerts"])


@router.put("/alerts/rules/{name:path}", status_code=204, response_class=Response, responses=DONE)
def put_rule(state: StateOf, name: RuleName, body: NewRule) -> Response:
    """Creates or replaces the rule of this name; without `when`, switches it on or off."""
    try:
        if body.when is not None:
            state.page_rules.put(_fields(name, body))
        elif body.model_fields_set == {"enabled"}:
            state.page_rules.switch(name, on=_switch(state, name, on=body.enabled))
        else:
            raise HTTPException(400, "Give a condition, `when`; without one, `enabled` and nothing else.")
    except ConfigError as error:
        raise HTTPException(400, str(error)) from error
    return Response(status_code=204)


@router.delete("/alerts/rules/{name:path}", status_code=204, response_class=Response, responses=DONE)
def delete_rule(state: StateOf, name: RuleName) -> Response:
    """Deletes a rule that was created on the page; a rule it replaced applies again."""
    if not state.page_rules.delete(name):
        raise NotFound(f"No rule {name!r} was created on the page; other rules can be switched off.")
    return Response(status_code=204)


@router.post("/alerts/rules/check", response_model=answer(RuleCheck))
def check(state: StateOf, body: CheckedCondition) -> Response:
    """Whether a condition is valid, which keys it uses, and whether it is true in a run now."""
    if body.run is None:
        return json_response(check_rule(body.when))
    with state.readers.open() as opened:
        return json_response(check_rule(body.when, opened.reader, opened.run(body.run), state.now_ns()))


def _fields(name: str, body: NewRule) -> dict[str, Any]:
    """The fields to save: those that were given and are not empty."""
    fields = body.model_dump(by_alias=True, exclude_unset=True)
    empty = (None, "")
    return {"name": name, **{key: value for key, value in fields.items() if value not in empty}}


def _switch(state: StateOf, name: str, *, on: bool) -> bool | None:
    """The switch to save; None where it equals the rule's default. Raises NotFound."""
    with state.readers.open() as opened:
        live_rules = rules_of_live_runs(opened.runs.runs(), state.options.settings.alerts)
    page_rules = state.page_rules.read()
    if any(listed.rule.name == name for listed in page_rules.rules):
        return on
    # The rules as they would be without any switch of the page.
    others = list_rules(state.options.settings.alerts, type(page_rules)(), live_rules)
    default = next((listed.rule.enabled for listed in others if listed.rule.name == name), None)
    if default is None:
        raise NotFound(f"There is no rule {name!r}.")
    return None if default is on else on
