"""Writes starts of runs into W&B; runs in a process of its own."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import wandb

from stepscope.mirrors.metric_names import FORBIDDEN_BY_WANDB
from stepscope.mirrors.tool_worker import OutOfOrder, Refused, ToolWriter

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_ID = MAX_PROJECT = 128
INIT_TIMEOUT_S = 30.0
SERVER = "https://api.wandb.ai"


class NotAnswered(OutOfOrder, ConnectionError):
    """The server of W&B did not answer."""


@dataclass
class _Copy:
    """The run of W&B that a start is written to."""

    run: Any
    config: dict[str, Any]
    name: str
    address: str
    is_over: bool = False
    left_out: int = 0


class WandbWriter(ToolWriter):
    """Writes a run of W&B for each start; all starts of a run are one group."""

    def __init__(self, project: str, entity: str, mode: str, directory: str, existing: str) -> None:
        """`existing`: whether to `continue` a run of the same start, to `refuse` it, or to `duplicate` it."""
        self._project, self._entity = project, entity
        self._mode: Any = mode  # checked by the exporter
        self._directory, self._existing = Path(directory).absolute(), existing
        self._copies: dict[str, _Copy] = {}

    def write(self, start: Mapping[str, Any], rows: list[list[Any]], arrays: list[dict[str, Any]]) -> None:
        """Writes rows, histograms and changed hyper-parameters. A run that has ended takes no more."""
        copy = self._copies.get(start["key"])
        if copy is None or (copy.is_over and not start["is_over"]):
            copy = self._open(start)
        if copy.is_over:
            return
        if copy.config != start["params"]:
            copy.config = start["params"]
            copy.run.config.update(start["params"], allow_val_change=True)
        if copy.name != start["name"]:
            copy.run.name = copy.name = start["name"]
        if copy.left_out != start["left_out"]:
            copy.run.summary["stepscope/left_out"] = copy.left_out = start["left_out"]
        for axis, at, time_s, values in rows:
            step = {"stepscope/step": at} if axis == "step" else {"stepscope/system/seconds": at}
            copy.run.log({**values, **step, "_timestamp": time_s})
        for array in arrays:
            histogram = wandb.Histogram(np_histogram=(array["counts"], array["limits"]))
            step = {"stepscope/step": array["step"], "_timestamp": array["time_s"]}
            copy.run.log({array["name"]: histogram, **step})

    def end(self, start: Mapping[str, Any]) -> None:
        """Ends the run with an exit code, which W&B shows as finished or failed."""
        copy = self._copies[start["key"]]
        if not copy.is_over:
            copy.run.summary.update(
                {"stepscope/status": start["status"], "stepscope/reason": start["reason"]}
            )
            copy.run.finish(exit_code=start["exit_code"])
            copy.is_over = True

    def address(self, start: Mapping[str, Any]) -> str:
        """The page of the run; of one that is not uploaded, its folder."""
        return self._copies[start["key"]].address

    def close(self) -> None:
        """Completes the runs that are open; one that still trains is continued by the next process."""
        for copy in self._copies.values():
            if not copy.is_over:
                copy.run.finish()

    def _open(self, start: Mapping[str, Any]) -> _Copy:
        known = self._copies.get(start["key"])
        run_id = f"{start['run_id']}-{start['segment']}"[:MAX_ID]
        if self._existing == "duplicate" and known is None:
            run_id = f"{run_id[: MAX_ID - 9]}-{os.urandom(4).hex()}"
        if self._existing == "refuse" and known is None:
            self._check_new(run_id)
        self._prepare_directory()
        try:
            run = self._init(start, run_id if known is None else known.run.id, is_new=known is None)
        except Exception as error:
            # W&B keeps the id of a run that could not be started, and would refuse it the next time.
            if isinstance(error, wandb.errors.CommError):
                server = os.environ.get("WANDB_BASE_URL", SERVER)
                raise NotAnswered(
                    f"W&B at {server} cannot be reached: {error}. Check the address and the network, or set "
                    "mode: offline and run `wandb sync` later."
                ) from error
            raise OutOfOrder(str(error) or repr(error)) from error
        # With steps of its own, the steps of other metrics of the run are never disturbed.
        run.define_metric("stepscope/step", hidden=True)
        run.define_metric("stepscope/*", step_metric="stepscope/step", step_sync=False)
        run.define_metric("stepscope/system/seconds", hidden=True)
        run.define_metric("stepscope/system/*", step_metric="stepscope/system/seconds", step_sync=False)
        address = str(Path(run.dir).parent) if run.offline else str(run.url)
        copy = _Copy(run, start["params"], start["name"], address)
        self._copies[start["key"]] = copy
        return copy

    def _prepare_directory(self) -> None:
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            if not os.access(self._directory, os.W_OK):  # W&B would use a temporary folder
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        except OSError as error:
            raise OSError(
                f"The folder {self._directory} for W&B cannot be written: {error.strerror}. Choose another."
            ) from error

    def _init(self, start: Mapping[str, Any], run_id: str, *, is_new: bool) -> Any:
        return wandb.init(
            project=self._project
            or FORBIDDEN_BY_WANDB.sub("_", start["project"])[:MAX_PROJECT]
            or "stepscope",
            entity=self._entity or None,
            mode=self._mode or None,
            dir=str(self._directory),
            id=run_id,
            name=start["name"],
            group=start["name"],
            config=start["params"],
            resume="never" if self._existing == "refuse" and is_new else "allow",
            reinit="create_new",
            settings=wandb.Settings(
                console="off",
                disable_code=True,
                disable_git=True,
                disable_job_creation=True,
                init_timeout=INIT_TIMEOUT_S,
                silent=True,
                symlink=False,  # `latest-run` is that of the training
                x_disable_machine_info=True,
                x_disable_meta=True,  # it would describe this process, not the training
                x_disable_stats=True,
            ),
        )

    def _check_new(self, run_id: str) -> None:
        folders = sorted((self._directory / "wandb").glob(f"*run-*-{run_id}"))
        if folders:
            raise Refused(
                f"This run was exported to W&B already: {folders[0]}. Delete it there, or use --force for "
                "another copy."
            )
