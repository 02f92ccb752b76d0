"""Records any command as a run, without editing it."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.attach.environment import why_not_attached
from stepscope.cli.main import ALERTED, FINE, MISUSED
from stepscope.cli.options.prometheus_port import (
    add_port_argument,
    check_port,
    port_variables,
    with_port,
)
from stepscope.cli.output.text import safe, say
from stepscope.config.find import settings_for, why_disabled
from stepscope.launcher.command import CannotStart
from stepscope.launcher.observe import Observed
from stepscope.reading import open_store
from stepscope.schema.alert import SEVERITIES, Severity

if TYPE_CHECKING:
    from stepscope.config.sections import Settings
    from stepscope.launcher.observe import Attach


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the run's name and place, and the command."""
    parser.usage = (
        "stepscope run [--name NAME] [--resume] [--project PROJECT] [--store DIR] [--fail-on SEVERITY]"
        " [--no-attach] [--prometheus-port PORT] [--quiet] -- COMMAND [ARGUMENT ...]"
    )
    parser.add_argument("--name", help="name of the run (default: the script's, and the time)")
    parser.add_argument(
        "--resume", action="store_true", help="continue the newest run of that name with a new segment"
    )
    parser.add_argument("--project", help="project the run belongs to")
    parser.add_argument(
        "--store", metavar="DIR", help="store folder (default: STEPSCOPE_DIR, else .stepscope)"
    )
    parser.add_argument(
        "--fail-on",
        choices=SEVERITIES,
        help="exit with 3 when the command succeeds but an alert of this severity or worse has fired",
    )
    parser.add_argument(
        "--no-attach",
        action="store_true",
        help="do not look for a training in the command; record only the command itself",
    )
    add_port_argument(parser)
    parser.add_argument(
        "--quiet", action="store_true", help="print nothing of stepscope's own: no names, no verdict"
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="what to run")


def run(options: argparse.Namespace) -> int:
    """Runs the command and returns its exit code."""
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        say("Name a command to run, as in: stepscope run -- python train.py")
        return MISUSED
    settings = settings_for()
    folder = Path(options.store or settings.directory or ".stepscope").absolute()
    if options.resume and not (options.name or settings.run):
        say("Name the run to resume, as in: stepscope run --resume --name mnist -- python train.py")
        return MISUSED
    settings = replace(
        settings,
        run=options.name or settings.run,
        project=options.project or settings.project,
        agent=replace(settings.agent, verdict=settings.agent.verdict and not options.quiet),
    )
    settings = with_port(settings, options.prometheus_port)
    try:
        variables = port_variables(options.prometheus_port)
        observed = Observed(
            command, folder, settings, attach=_attach_option(options, settings), variables=variables
        )
    except CannotStart as error:
        say(str(error))
        return error.exit_code
    recorded = _can_record(observed, folder, options, enabled=settings.recorder.enabled)
    check_port(settings, options.prometheus_port, folder, recorded=recorded)
    if recorded and observed.attaches and not options.quiet and (reason := why_not_attached(command)):
        say(f"Steps are not recorded: {reason}.")
    code = observed.run(recorded=recorded)
    if code != FINE or options.fail_on is None or not recorded:
        return code
    return _exit_code_by_alerts(observed, folder, options.fail_on)


def _exit_code_by_alerts(observed: Observed, folder: Path, limit: Severity) -> int:
    """ALERTED where the run has an alert of the severity `limit` or worse."""
    severities = SEVERITIES[: SEVERITIES.index(limit) + 1]
    run = open_store(folder).run(observed.identity.run_id)
    alerts = [alert for alert in run.alerts() if alert["severity"] in severities]
    for alert in alerts:
        say(f"{alert['severity']}: {safe(alert['rule'])}: {safe(alert['message'])}")
    return ALERTED if alerts else FINE


def _attach_option(options: argparse.Namespace, settings: Settings) -> Attach:
    """Whether trainings in the command are watched, and whether they say so."""
    if options.no_attach or not settings.recorder.attach:
        return "no"
    return "quiet" if options.quiet else "yes"


def _can_record(observed: Observed, folder: Path, options: argparse.Namespace, *, enabled: bool) -> bool:
    """Prints where the run is recorded, or why it is not; the command runs in any case."""
    reason = observed.trouble() if enabled else why_disabled()
    if reason is not None:
        say(f"Nothing is recorded: {reason}. The command runs anyway.")
        return False
    observed.reserve_name(resume=options.resume)
    if not options.quiet:
        say(f"Run {observed.identity.name} in {folder}")
    return True
