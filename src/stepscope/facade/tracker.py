"""`init`, `log`, `finish`, …: the calls of a W&B or trackio script, so that it changes one import."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from stepscope.errors import ConfigError
from stepscope.facade.not_kept import (
    Api,
    Artifact,
    ArtifactTTL,
    Audio,
    Classes,
    CommError,
    Error,
    Graph,
    Histogram,
    Html,
    Image,
    JoinedTable,
    Markdown,
    Molecule,
    NotKept,
    Object3D,
    Plotly,
    Settings,
    Table,
    UsageError,
    Video,
    box3d,
    controller,
    data_types,
    guard,
    login,
    mark_preempting,
    plot,
    plot_table,
    require,
    restore,
    say_ignored,
    sdk,
    setup,
    sweep,
    termsetup,
    use_model,
    util,
)
from stepscope.facade.run_values import AttributeDict, understood
from stepscope.facade.tracker_run import AlertLevel, TrackerRun
from stepscope.guard import shown
from stepscope.recorder.identity.run_reservation import FOLDER as RUNS
from stepscope.recorder.monitor import TrainingMonitor
from stepscope.recorder.monitor_settings import STORE_FOLDER
from stepscope.schema.identity import run_id

__all__ = [
    "AlertLevel", "Api", "Artifact", "ArtifactTTL", "Audio", "Classes", "CommError", "Error",
    "Graph", "Histogram", "Html", "Image", "JoinedTable", "Markdown", "Molecule", "Object3D",
    "Plotly", "Run", "Settings", "Table", "UsageError", "Video", "alert", "box3d", "controller",
    "data_types", "define_metric", "finish", "init", "join", "link_model", "log", "log_artifact",
    "log_code", "log_gpu", "log_model", "log_system", "login", "mark_preempting", "plot",
    "plot_table", "require", "restore", "run", "save", "sdk", "setup", "show", "summary", "sweep",
    "teardown", "termerror", "termlog", "termsetup", "termwarn", "unwatch", "use_artifact",
    "use_model", "util", "watch",
]  # fmt: skip

Run = TrackerRun  # as scripts annotate it
run: TrackerRun | None = None
"""The run that the calls of this module record into; None before `init` and after `finish`."""
summary: AttributeDict | None = None
"""The summary of that run."""
_last_ended: str | None = None
"""The name of the last run that ended here; None before."""

ONLINE, OFF = ("online", "offline", "shared", "dryrun", "run"), "disabled"
RESUMES = ("allow", "must", "auto")
_NEEDLESS = (
    "allow_val_change", "anonymous", "auto_log_cpu", "auto_log_gpu", "embed", "force", "gpu_log_interval",
    "private",
)  # fmt: skip
"""Arguments whose loss needs no line: about questions that are not asked, and what is always recorded."""


def init(
    project: Any = None,
    name: Any = None,
    config: Any = None,
    *,
    directory: str | os.PathLike[str] | None = None,
    resume: Any = None,
    mode: Any = None,
    **others: Any,
) -> TrackerRun:
    """Starts a run and makes it the one that `stepscope.log` and the other calls record into.

        import stepscope as wandb

        run = wandb.init(project="demo", name="first", config={"lr": 0.1})
        for step in range(100):
            wandb.log({"loss": 1 / (step + 1)})
        wandb.finish()

    `config` has the hyper-parameters: a mapping, an argparse.Namespace, a dataclass or the path of a YAML
    file. With `resume="allow"` the newest run of that name continues if there is one; "must" raises
    ConfigError if there is none. `mode="disabled"` records nothing. `directory` is the store folder. Other
    arguments of `wandb.init` and `trackio.init` are used (`id`, `dir`, `tags`, `notes`, `group`, `job_type`,
    `reinit`) or accepted with a line that says so.
    """
    global run, summary
    name = _run_name(name, others.get("id"))
    reinit = others.pop("reinit", None)
    if run is not None and run.pid == os.getpid():
        if _is_wanted(run, project, name, reinit):
            run.config.update(config)
            return run
        if reinit != "create_new":
            run.finish()
    monitor = TrainingMonitor(
        {"recorder": {"enabled": False}} if _is_off(mode) else None,
        run=name,
        project=_text(project),
        directory=_store(directory, others.pop("dir", None)),
        resume=_resumes(resume, name),
    )
    if resume == "must" and not _exists(monitor):
        raise ConfigError(f"resume is 'must', but there is no run {name!r} in {monitor.directory}.")
    params = _params(config, others)
    monitor.start_monitoring()
    started = TrackerRun(monitor, params, {**others, "requested_name": name}, _forget)
    monitor.log_params({**_groups(others, params), **params})
    _say_ignored_arguments(others)
    if run is None or reinit != "create_new":
        run, summary = started, started.summary
        # The import system has set this attribute to the sub-package, which stays reachable through it.
        setattr(sys.modules["stepscope"], "config", started.config)  # noqa: B010 - no attribute for mypy
    return started


def _is_wanted(active: TrackerRun, project: Any, name: str | None, reinit: Any) -> bool:
    """Whether a second `init` means the active run, as W&B takes it, or another one, as trackio does."""
    if reinit in (True, "finish_previous", "create_new"):
        return False
    names, projects = (None, active.name, active.requested_name), (None, active.project)
    is_same = name in names and _text(project) in projects
    if is_same or reinit == "return_previous":
        say_ignored("A second init()", f"the run {active.name!r} is active; call finish() first for another.")
        return True
    return False


def _run_name(name: Any, run_id_given: Any) -> str | None:
    """One name from name and id: a run of stepscope is found by its name."""
    parts = [text for text in (_text(name), _text(run_id_given)) if text]
    return "-".join(dict.fromkeys(parts)) or None


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _is_off(mode: Any) -> bool:
    if mode not in (None, OFF, *ONLINE):
        guard.warn_once(
            "mode", f"mode is {shown(mode)}; expected disabled, online or offline. It is recorded."
        )
    return bool(mode == OFF)


def _resumes(resume: Any, name: str | None) -> bool:
    wants = resume is True or resume in RESUMES
    if not wants and resume not in (None, False, "never", ""):
        expected = "allow, must, never or true"
        guard.warn_once("resume", f"resume is {shown(resume)}; expected {expected}. A new run was started.")
    if wants and name is None:
        guard.warn_once("resume", "resume needs the name= or id= of a run. A new run was started.")
    return wants and name is not None


def _exists(monitor: TrainingMonitor) -> bool:
    identity = monitor.identity
    is_off = not monitor.settings.recorder.enabled
    return is_off or (monitor.directory / RUNS / run_id(identity.project, identity.name)).exists()


def _store(directory: str | os.PathLike[str] | None, parent: Any) -> str | os.PathLike[str] | None:
    """The store folder; W&B's `dir` is the folder that it is created in."""
    if directory is not None or parent is None:
        return directory
    folder = Path(str(parent)) / STORE_FOLDER
    guard.warn_once("dir", f"Runs are recorded in {folder}; read them with --store {folder}.")
    return folder


def _params(config: Any, others: dict[str, Any]) -> dict[str, Any]:
    params = understood(config)
    included, excluded = others.pop("config_include_keys", None), others.pop("config_exclude_keys", None)
    return {
        key: value
        for key, value in params.items()
        if (not included or key in included) and key not in (excluded or ())
    }


def _groups(others: dict[str, Any], params: dict[str, Any]) -> dict[str, Any]:
    """Group and job type, which are hyper-parameters here, so that runs can be filtered by them."""
    names = [name for name in ("group", "job_type") if others.get(name) and name not in params]
    return {name: str(others[name]) for name in names}


def _say_ignored_arguments(others: dict[str, Any]) -> None:
    used = {"id", "tags", "notes", "group", "job_type", *_NEEDLESS}
    given = [name for name, value in others.items() if value is not None and value is not False]
    ignored = sorted(name for name in given if name not in used)
    if ignored:
        guard.warn_once(
            f"arguments {ignored}", f"Arguments of init() without effect in stepscope: {', '.join(ignored)}."
        )


def _forget(ended: TrackerRun) -> None:
    global run, summary, _last_ended
    if run is ended:
        run, summary, _last_ended = None, None, ended.name


def _active(call: str) -> Any:
    """The run of this process; what has no effect if there is none, which is logged once."""
    if run is None:
        when = "before init()" if _last_ended is None else f"after the run {_last_ended!r} had ended"
        guard.warn_once(f"{call} {when}", f"stepscope.{call}() was called {when}, so nothing was recorded.")
        return NotKept()
    return run


def log(data: Any = None, step: Any = None, commit: Any = None, **others: Any) -> None:
    """Records numbers of a step in the run that `init` has started; see `TrackerRun.log`."""
    (run or _active("log")).log(data, step, commit, **others)


def alert(title: Any, text: Any = "", level: Any = AlertLevel.INFO, **others: Any) -> None:
    """Sends an alert about the run; see `TrackerRun.alert`."""
    _active("alert").alert(title, text, level, **others)


def watch(models: Any, *arguments: Any, **options: Any) -> None:
    """Times steps and measures gradients of a model; see `TrackerRun.watch`."""
    _active("watch").watch(models, *arguments, **options)


def finish(exit_code: int | None = None, quiet: Any = None) -> None:
    """Ends the run; does nothing if none is active."""
    if run is not None:
        run.finish(exit_code, quiet)


join = finish


def teardown(exit_code: int | None = None) -> None:
    """The same as `finish`."""
    finish(exit_code)


def unwatch(models: Any = None) -> None:
    """Removes all hooks of `watch`."""
    _active("unwatch").unwatch(models)


def define_metric(name: Any, *arguments: Any, **options: Any) -> Any:
    """Accepts the description of a metric; see `TrackerRun.define_metric`."""
    return _active("define_metric").define_metric(name, *arguments, **options)


def save(glob_str: Any = None, *arguments: Any, **options: Any) -> Any:
    """Records the path of a file; see `TrackerRun.save`."""
    return _active("save").save(glob_str, *arguments, **options)


def log_artifact(artifact_or_path: Any, *arguments: Any, **options: Any) -> Any:
    """Records name and paths of an artifact; see `TrackerRun.log_artifact`."""
    return _active("log_artifact").log_artifact(artifact_or_path, *arguments, **options)


def log_model(path: Any, *arguments: Any, **options: Any) -> Any:
    """Records the path of a model; see `TrackerRun.log_model`."""
    return _active("log_model").log_model(path, *arguments, **options)


def link_model(*arguments: Any, **options: Any) -> None:
    """Accepts a model for a registry; there is none."""
    _active("link_model").link_model(*arguments, **options)


def use_artifact(artifact_or_name: Any, *arguments: Any, **options: Any) -> Any:
    """Records the name of an artifact that the run uses; see `TrackerRun.use_artifact`."""
    return _active("use_artifact").use_artifact(artifact_or_name, *arguments, **options)


def log_code(*_: Any, **__: Any) -> None:
    """Does nothing: the code is not kept."""
    say_ignored("log_code()", "stepscope keeps no source code.")


def log_system(metrics: Any) -> None:
    """Records numbers at the current step without counting one."""
    _active("log_system").log_system(metrics)


def log_gpu(*_: Any, **__: Any) -> dict[str, Any]:
    """Does nothing: GPUs are recorded always."""
    return {}


def show(*_: Any, **__: Any) -> str | None:
    """Starts the web page of the store, unless it is served already; prints its address and returns it."""
    from stepscope.facade.monitoring_dashboard import MonitoringDashboard  # lazy: the server's libraries

    return MonitoringDashboard(None if run is None else run.monitor.directory).start()


def termlog(string: Any = "", *_: Any, **__: Any) -> None:
    """Prints a line to standard error."""
    sys.stderr.write(f"{string}\n")


termwarn = termerror = termlog
