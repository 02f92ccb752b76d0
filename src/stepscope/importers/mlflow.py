"""Imports the runs of an MLflow tracking folder, database file or server."""

from __future__ import annotations

import contextlib
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlparse

from stepscope.errors import MissingExtra, SourceError
from stepscope.importers.base import End, Importer, Params, Remark, Row, SourceRun, run_or_damage
from stepscope.source_files.cells import number_in, step_in, whole
from stepscope.source_files.read_only_database import ReadOnlyDatabase, is_database
from stepscope.source_files.source_folder import damaged, files_in, open_source
from stepscope.source_files.text_lines import lines_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from stepscope.importers.base import DamagedRun, Record

SERVERS = ("http", "https")
TABLES = {
    "experiments": ("experiment_id", "name"),
    "runs": ("run_uuid", "name", "status", "start_time", "end_time", "lifecycle_stage", "experiment_id"),
    "metrics": ("key", "value", "timestamp", "run_uuid", "step", "is_nan"),
    "params": ("key", "value", "run_uuid"),
}
MAX_DESCRIPTION_BYTES = 1 << 20
PAGE = 100
RETRIES_VARIABLE, MAX_RETRIES = "MLFLOW_HTTP_REQUEST_MAX_RETRIES", "3"
TIMEOUT_VARIABLE, TIMEOUT_S = "MLFLOW_HTTP_REQUEST_TIMEOUT", "30"
NUMBERED_STATUS = {1: "RUNNING", 2: "SCHEDULED", 3: "FINISHED", 4: "FAILED", 5: "KILLED"}
"""In folders a status is a number."""


class Mlflow(Importer):
    """Metrics with their steps and times, parameters and status; artifacts and models are left out."""

    title: ClassVar[str] = "MLflow"

    def recognises(self, place: str) -> bool:
        """Whether it is the address of a server, a database with MLflow's tables, or a tracking folder."""
        if urlparse(place).scheme in SERVERS:
            return True
        path = Path(place)
        if path.is_dir():
            return any(_run_folders(path))
        if not is_database(path):
            return False
        with contextlib.suppress(SourceError), contextlib.closing(ReadOnlyDatabase(path)) as database:
            return all(database.has(table, columns) for table, columns in TABLES.items())
        return False

    def runs(self, place: str) -> Iterator[SourceRun | DamagedRun]:
        """All runs that are not deleted; the experiment is the project."""
        if urlparse(place).scheme in SERVERS:
            yield from _runs_of_server(place)
            return
        path = Path(place)
        yield from _runs_of_folder(path) if path.is_dir() else _runs_of_database(path)


def _source_run(
    facts: Mapping[str, Any], project: str, place: str, records: Callable[[], Iterator[Record]]
) -> SourceRun:
    started_ms = whole(facts.get("start_time"))
    if started_ms is None or not 0 <= started_ms < 9 * 10**12:
        raise SourceError(
            f"The run {facts['id']} in {place} has the start time {facts.get('start_time')!r}, expected ms "
            "since 1970. Nothing of it was imported. Correct it there."
        )

    def with_end() -> Iterator[Record]:
        yield from records()
        yield _end(str(facts.get("status")), whole(facts.get("end_time")))

    return SourceRun(
        name=str(facts.get("name") or facts["id"]),
        identity=str(facts["id"]),
        place=place,
        started_ns=started_ms * 10**6,
        records=with_end,
        project=project,
        is_running=facts.get("status") == "RUNNING",
    )


def _end(status: str, ended_ms: int | None) -> End:
    time_ns = None if ended_ms is None or not 0 < ended_ms < 9 * 10**12 else ended_ms * 10**6
    if status == "FINISHED":
        return End("finished", "", time_ns)
    if status == "FAILED":
        return End("failed", "MLflow has the status FAILED", time_ns)
    if status == "KILLED":
        return End("crashed", "MLflow has the status KILLED", time_ns)
    return End("crashed", f"MLflow had the status {status} when it was imported", time_ns)


def _row(key: str, value: Any, timestamp_ms: Any, step: Any) -> Row:
    """A value of a metric; raises ValueError where one of its parts is not what it should be."""
    number, time_ms = number_in(value), whole(timestamp_ms)
    if number is None or time_ms is None or not 0 <= time_ms < 9 * 10**12:
        raise ValueError(
            f"the value {value!r} at the time {timestamp_ms!r}, expected a number and ms since 1970"
        )
    return Row(step_in(step), time_ms * 10**6, {key: number})


def _param(text: Any) -> Any:
    """A parameter, which MLflow keeps as text; a number where that is how Python writes it."""
    for kind in (int, float):
        with contextlib.suppress(TypeError, ValueError):
            if str(kind(text)) == text:
                return kind(text)
    return text


def _runs_of_database(path: Path) -> list[SourceRun | DamagedRun]:
    with contextlib.closing(ReadOnlyDatabase(path)) as database:
        missing = [table for table, columns in TABLES.items() if not database.has(table, columns)]
        if missing:
            raise SourceError(
                f"{path} is not a database of MLflow: it has no table {missing[0]} with the columns "
                f"{', '.join(TABLES[missing[0]])}. Check the path, or name the kind with --kind."
            )
        projects = dict(database.rows("SELECT experiment_id, name FROM experiments"))
        query = (
            "SELECT run_uuid, name, status, start_time, end_time, experiment_id FROM runs "
            "WHERE lifecycle_stage = 'active' ORDER BY start_time, run_uuid"
        )
        runs: list[SourceRun | DamagedRun] = []
        for run_id, name, status, start, end, experiment in database.rows(query):
            facts = {"id": run_id, "name": name, "status": status, "start_time": start, "end_time": end}
            records = _records_of_database(path, run_id)
            read = partial(_source_run, facts, str(projects.get(experiment, "")), str(path), records)
            runs.append(run_or_damage(str(name or run_id), path, read))
        return runs


def _records_of_database(path: Path, run_id: str) -> Callable[[], Iterator[Record]]:
    def records() -> Iterator[Record]:
        with contextlib.closing(ReadOnlyDatabase(path)) as database:
            params = database.rows("SELECT key, value FROM params WHERE run_uuid = ? ORDER BY key", (run_id,))
            yield Params({str(key): _param(value) for key, value in params})
            query = (
                "SELECT key, value, timestamp, step, is_nan FROM metrics WHERE run_uuid = ? "
                "ORDER BY timestamp, step, key"
            )
            for key, value, timestamp, step, is_nan in database.rows(query, (run_id,)):
                try:
                    yield _row(str(key), "nan" if is_nan else value, timestamp, step)
                except ValueError as error:
                    raise damaged(path, f"the metric {key!r} of {run_id}", error) from error

    return records


def _run_folders(root: Path) -> Iterator[Path]:
    """The folders of runs: each has a description and a folder of metrics or parameters."""
    for path in files_in(root, lambda name: name == "meta.yaml"):
        if any((path.parent / part).is_dir() for part in ("metrics", "params")):
            yield path.parent


def _runs_of_folder(root: Path) -> Iterator[SourceRun | DamagedRun]:
    folders = list(_run_folders(root))
    if not folders:
        raise SourceError(f"{root} has no runs of MLflow. Name the tracking folder, which is often mlruns.")
    for folder in folders:
        run = run_or_damage(folder.name, folder, partial(_run_of_folder, folder))
        if run is not None:
            yield run


def _run_of_folder(folder: Path) -> SourceRun | None:
    """The run of a folder; None for one that is deleted."""
    facts = _description(folder / "meta.yaml")
    if facts.get("lifecycle_stage") == "deleted":
        return None
    experiment = folder.parent / "meta.yaml"
    project = _description(experiment).get("name", "") if experiment.is_file() else ""
    status = facts.get("status")
    named = {
        **facts,
        "id": facts.get("run_id") or facts.get("run_uuid") or folder.name,
        "name": facts.get("run_name"),
        "status": NUMBERED_STATUS.get(status, status) if isinstance(status, int) else status,
    }
    return _source_run(named, str(project), str(folder), _records_of_folder(folder))


def _description(path: Path) -> dict[str, Any]:
    import yaml  # lazy: only folders need it

    with open_source(path) as file:
        text = file.read(MAX_DESCRIPTION_BYTES + 1)
    if len(text) > MAX_DESCRIPTION_BYTES:
        raise damaged(path, "its end", f"it is longer than {MAX_DESCRIPTION_BYTES:,} bytes")
    try:
        facts = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise damaged(path, "its start", f"it is not YAML ({str(error).splitlines()[0]})") from error
    if not isinstance(facts, dict):
        raise damaged(path, "its start", "expected names and values")
    return facts


def _records_of_folder(folder: Path) -> Callable[[], Iterator[Record]]:
    def records() -> Iterator[Record]:
        params = folder / "params"
        values = {}
        for path in files_in(params, lambda _: True):
            with open_source(path) as file:
                text = file.read(MAX_DESCRIPTION_BYTES).decode("utf-8", "backslashreplace")
            values[path.relative_to(params).as_posix()] = _param(text.strip())
        yield Params(values)
        for path in files_in(folder / "metrics", lambda _: True):
            key = path.relative_to(folder / "metrics").as_posix()
            for number, line, is_complete in lines_of(path):
                parts = line.split()
                if not is_complete and len(parts) < 3:
                    yield Remark(f"the last line of the metric {key!r} is cut off and was left out")
                    break
                try:
                    timestamp, value, step = parts if len(parts) == 3 else (*parts, 0)
                    row = _row(key, value, timestamp, step)
                except ValueError as error:
                    raise damaged(path, f"line {number}", error) from error
                yield row

    return records


def _runs_of_server(address: str) -> Iterator[SourceRun | DamagedRun]:
    """The runs of a tracking server, read with MLflow's own client."""
    try:
        from mlflow import MlflowClient
    except ImportError as error:
        raise MissingExtra("mlflow", needed_for="Importing from an MLflow server") from error
    has_own_retries = RETRIES_VARIABLE in os.environ
    os.environ.setdefault(RETRIES_VARIABLE, "0")  # first: whether the server answers at all
    os.environ.setdefault(TIMEOUT_VARIABLE, TIMEOUT_S)
    client = MlflowClient(address)
    with _reporting(address):
        client.search_experiments(max_results=1)
        if not has_own_retries:
            os.environ[RETRIES_VARIABLE] = MAX_RETRIES  # MLflow's own number takes four minutes
        experiments = list(
            _pages(lambda token: client.search_experiments(max_results=PAGE, page_token=token))
        )
    for experiment in experiments:
        with _reporting(address):
            search = partial(client.search_runs, [experiment.experiment_id], max_results=PAGE)
            runs = list(_pages(lambda token: search(page_token=token)))  # noqa: B023 - called at once
        for run in runs:
            facts = {
                "id": run.info.run_id,
                "name": run.info.run_name,
                "status": run.info.status,
                "start_time": run.info.start_time,
                "end_time": run.info.end_time,
            }
            records = _records_of_server(client, run, address)
            read = partial(_source_run, facts, experiment.name, address, records)
            yield run_or_damage(str(run.info.run_name or run.info.run_id), address, read)


def _records_of_server(client: Any, run: Any, address: str) -> Callable[[], Iterator[Record]]:
    def records() -> Iterator[Record]:
        yield Params({key: _param(value) for key, value in sorted(run.data.params.items())})
        for key in sorted(run.data.metrics):
            with _reporting(address):
                history = client.get_metric_history(run.info.run_id, key)
            for point in history:
                try:
                    yield _row(key, point.value, point.timestamp, point.step)
                except ValueError as error:
                    raise damaged(address, f"the metric {key!r} of {run.info.run_id}", error) from error

    return records


def _pages(request: Callable[[str | None], Any]) -> Iterator[Any]:
    token = None
    while True:
        page = request(token)
        yield from page
        token = page.token
        if not token:
            return


@contextlib.contextmanager
def _reporting(address: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # a client raises whatever its transport raises
        if _is_timeout(error):
            limit = os.environ[TIMEOUT_VARIABLE]
            raise SourceError(
                f"The MLflow server {address} has not answered within {limit} s. Check the address and that "
                f"the server runs, or raise the limit with {TIMEOUT_VARIABLE}."
            ) from error
        first = (str(error).splitlines() or [repr(error)])[0][:200]
        raise SourceError(
            f"The MLflow server {address} cannot be read: {first}. Check that it runs."
        ) from error


def _is_timeout(error: BaseException | None) -> bool:
    """Whether an error comes from a request that took too long."""
    while error is not None and not isinstance(error, TimeoutError):
        error = error.__cause__ or error.__context__
    return error is not None
