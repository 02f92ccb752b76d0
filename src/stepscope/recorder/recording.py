"""One segment of a run as this process records it: journal, maintenance thread, exit reason, agent."""

from __future__ import annotations

import contextlib
import os
import time
import weakref
from array import array
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stepscope.agent.process.start import database_of
from stepscope.errors import JournalError, TooManyKeys
from stepscope.guard import shown
from stepscope.journal import layout
from stepscope.journal.folder import JournalName, journals_of
from stepscope.journal.supply import SegmentSupply
from stepscope.journal.writer import JournalWriter
from stepscope.recorder import values
from stepscope.recorder.agent_watch import AgentWatch
from stepscope.recorder.anonymity import privacy_of
from stepscope.recorder.exit.exit_hooks import ExitHooks
from stepscope.recorder.exit.exit_reason import ExitReason, path_beside
from stepscope.recorder.folder_watch import FolderWatch
from stepscope.recorder.identity.facts import opening_of
from stepscope.recorder.key_names import KeyNames
from stepscope.recorder.maintenance_thread import MaintenanceThread
from stepscope.schema.redact import MAX_PARTS, Redaction, redact_mapping, redact_text, redact_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from stepscope.config.sections import Settings
    from stepscope.guard import Guard
    from stepscope.recorder.alert_system import AlertSystem
    from stepscope.recorder.deferred import Deferred
    from stepscope.recorder.monitor import TrainingMonitor
    from stepscope.schema.identity import Identity
    from stepscope.schema.run import Role

monitors: weakref.WeakSet[TrainingMonitor] = weakref.WeakSet()
"""Monitors that are recording; each separates from its journal when the process forks."""

MAX_EVENT_CHARACTERS = 64_000
"""Maximum text of one event; redacting it takes at most a tenth of a second."""


class Recording:
    """The state between start and stop of a monitor."""

    def __init__(
        self,
        identity: Identity,
        folder: Path,
        settings: Settings,
        guard: Guard,
        role: Role = "rank",
        command: Sequence[str] | None = None,
    ) -> None:
        self._identity, self._folder, self._settings = identity, folder, settings
        self._guard, self._role, self._command = guard, role, command
        self._privacy = privacy_of(settings.privacy)
        self._user_privacy = self._privacy.for_names()
        self._key_names = KeyNames(self._user_privacy)
        self._lazy_writer: JournalWriter | None = None
        self._deferred: dict[Any, Deferred] = {}
        self.has_ended = False
        """Whether the end of the run is being written, or is."""
        self.alerts: AlertSystem | None = None
        """Evaluates alert rules written in Python on each row."""
        self.on_resolved: Callable[[Mapping[Any, Any]], None] = lambda _: None
        """Called with rows whose numbers were copied from a GPU."""
        self._maintenance: MaintenanceThread | None = None
        self._folder_watch: FolderWatch | None = None
        self._exit_reason: ExitReason | None = None
        self._agent = AgentWatch(folder, settings, lambda: self.writer.trouble is None, guard.tell)

    @classmethod
    def of_worker(cls, identity: Identity, folder: Path, settings: Settings, guard: Guard) -> Recording:
        """The recording of a loader worker or another child, which opens its journal when it first logs."""
        return cls(identity, folder, settings, guard, role="worker")

    @property
    def writer(self) -> JournalWriter:
        """The journal, opened on first use."""
        if self._lazy_writer is None:
            self._lazy_writer = self._open()
            if self._role == "worker":
                self._start_maintenance(lambda: None)
        return self._lazy_writer

    def begin(
        self, on_end: Callable[[str, str], None], on_failure: Callable[[BaseException], None] = lambda _: None
    ) -> None:
        """Starts what only a rank needs: an agent, a maintenance thread, handlers for the exit reason."""
        self._keep_out_of_version_control()
        self._agent.ensure()
        self._ensure_page()
        name = self._journal_name().path(journals_of(self._folder))
        hooks = ExitHooks(self._record_exit, self._record_exec, self.writer.position)
        self._exit_reason = ExitReason(path_beside(name), on_end, on_failure, hooks)
        self._exit_reason.install()
        self._start_maintenance(self._check_agent)

    def _start_maintenance(self, ensure_agent: Callable[[], None]) -> None:
        """Starts the maintenance thread; a worker has its own, but uses the agent of its parent."""
        folder, database, tell = self._folder, database_of(self._folder), self._guard.tell
        self._folder_watch = watch = FolderWatch(folder, database, self.writer, tell, self._on_new_folder)
        self._maintenance = MaintenanceThread(
            self.writer, watch.check, self._drain, ensure_agent, self._guard
        )

    def sample_by(self, sample: Callable[[], float]) -> None:
        """Has the maintenance thread call this, each time after as many seconds as it returned last."""
        if self._maintenance is not None:
            self._maintenance.sample = sample

    def _on_new_folder(self) -> None:
        """Restores the other files in a store folder that was recreated."""
        if self._role == "worker":
            return
        self._keep_out_of_version_control()
        if self._exit_reason is not None:
            self._exit_reason.reopen()
        self._agent.write_private(self._journal_name())
        self._agent.ensure()
        if self._settings.dashboard.enabled:
            from stepscope.recorder.page_server import forget_server  # lazy: rarely used

            forget_server(self._folder)
        self._ensure_page()

    def _record_exit(self, exit_code: int) -> None:
        """Records the end of a process that calls `os._exit`, which runs no exit handlers."""
        self._drain()
        if self._folder_watch is not None:
            self._folder_watch.check_at_end()
        status, reason = ("failed", f"exit code {exit_code}") if exit_code else ("finished", "")
        self.writer.end_soon({"status": status, "reason": reason, "exit_code": exit_code})

    @contextlib.contextmanager
    def _record_exec(self) -> Iterator[None]:
        """Ends the journal of a process that calls `os.exec*`; continues if the call fails."""
        self._flush()
        reason = "replaced itself by another program (exec)"
        with self.writer.closed_for({"status": "finished", "reason": reason, "exit_code": None}):
            yield

    def child(self) -> Recording:
        """The recording of a forked child, which does not use the parent's files."""
        if self._exit_reason is not None:
            self._exit_reason.forget_signals()
        return Recording.of_worker(self._identity, self._folder, self._settings, self._guard)

    def end(self, status: str, reason: str, exit_code: int | None = None) -> None:
        """Closes the journal and waits until all records are stored; a launcher passes an exit code, too."""
        if self._maintenance is not None:
            self._maintenance.stop()
        if self._lazy_writer is None:
            return
        self._flush()
        if self._folder_watch is not None:
            self._folder_watch.check_at_end()
        safe_reason = self._user_privacy.text(redact_text(reason))
        self.has_ended = True
        unwritten_end = self.writer.close({"status": status, "reason": safe_reason, "exit_code": exit_code})
        if self._exit_reason is not None:
            self._exit_reason.uninstall(unwritten_end)
        if unwritten_end is not None:
            return  # the journal has reported what is lost
        if self._role != "worker" and not self.writer.unsaved:
            self._agent.wait_until_stored(self._unread, lambda: bool(self.writer.sealed.uncertain()))
        if self.writer.unsaved:  # also after the wait, during which the folder may have been deleted
            self._guard.tell(
                f"{self.writer.unsaved:,} records of this process are lost, because the journal could not be "
                f"written: {self.writer.trouble}."
            )

    def settle(self) -> None:
        """Waits for numbers from GPUs, and evaluates alert rules on them before recording ends."""
        self._flush()
        if self.alerts is not None:
            self.alerts.judge()

    def _flush(self) -> None:
        try:
            for deferred in self._deferred.values():
                deferred.flush()
        except Exception as error:  # noqa: BLE001 - a failed GPU raises in the training as well
            self._guard.complain("deferred", f"The last numbers on the GPU are lost: {shown(error)}", error)

    def record_event(self, kind: str, fields: Mapping[str, Any], step: int | None = None) -> None:
        """Records an event of stepscope's own."""
        try:
            safe = self._user_privacy.nested(redact_mapping(fields))
            self.writer.append_event(kind, safe, step)
        except Exception as error:  # noqa: BLE001 - a field's own text may raise anything
            self._guard.complain("event", f"The event {shown(kind)} is lost: {shown(error)}", error)

    def record_user_event(self, kind: object, fields: Mapping[str, Any], step: int) -> None:
        """Records an event of the user, with any field names."""
        try:
            redaction = Redaction(MAX_EVENT_CHARACTERS)
            event = {"kind": layout.clean(kind), "fields": fields}
            safe = self._user_privacy.nested(redaction.mapping(event))
            self.writer.append_user_event(safe["kind"], safe["fields"], step)
        except Exception as error:  # noqa: BLE001 - a field's own text may raise anything
            self._guard.complain("event", f"The event {shown(kind)} is lost: {shown(error)}", error)
        else:
            if redaction.is_cut:
                limit = f"at most {MAX_EVENT_CHARACTERS:,} characters and {MAX_PARTS:,} values"
                self._guard.complain("long event", f"The event {shown(kind)} was cut to {limit}.")

    def defer(self, metrics: Mapping[Any, Any], step: int) -> None:
        """Records a row with numbers on a GPU, once they have been copied."""
        at_ns = time.monotonic_ns()
        values = dict(metrics)
        keys = [key for key, value in values.items() if getattr(value, "is_cuda", False) is True]
        tensors = [values[key] for key in keys]
        # The order of keys is kept; the tensors are dropped, because they may hold a whole graph in memory.
        values.update(dict.fromkeys(keys))

        def arrived(numbers: list[float]) -> None:
            values.update(zip(keys, numbers, strict=True))
            self._append_late(values, step, at_ns)

        dtype = tensors[0].dtype
        if any(tensor.dtype != dtype for tensor in tensors):
            tensors = [tensor.double() for tensor in tensors]
        self._deferral(tensors[0].device).put(tensors, arrived)

    def read_later(self, values: Any, then: Callable[[list[float]], None]) -> None:
        """Calls back with the elements of a tensor: immediately on the host, later on a GPU."""
        if getattr(values, "is_cuda", False) is True:
            self._deferral(values.device).put_vector(values, then)
        else:
            then(values.detach().reshape(-1).tolist())

    def record_tensor(self, keys: Sequence[str], values: Any, step: int) -> None:
        """Records the elements of a tensor under these keys."""
        at_ns = time.monotonic_ns()
        self.read_later(
            values, lambda numbers: self._append_late(dict(zip(keys, numbers, strict=True)), step, at_ns)
        )

    def record_array(self, key: str, values: Any, step: int) -> None:
        """Records a whole tensor under one key."""
        shape = tuple(values.shape)
        header = {"key": self._key_names(key), "step": step, "dtype": "<f8", "shape": shape}
        self.read_later(
            values, lambda numbers: self.writer.append_array(header, array("d", numbers).tobytes())
        )

    def _deferral(self, device: Any) -> Deferred:
        if device not in self._deferred:
            from stepscope.recorder.deferred import Deferred  # lazy: only where there is a GPU

            self._deferred[device] = Deferred(device)
        return self._deferred[device]

    def _drain(self) -> None:
        for deferred in list(self._deferred.values()):
            deferred.drain()
        if self.alerts is not None:
            self.alerts.judge()

    def row_appender(self) -> Callable[..., None]:
        """The function that appends a row to the journal, and evaluates alert rules if there are some."""
        if self.alerts is None:
            return self.writer.append_row
        append, take = self.writer.append_row, self.alerts.take

        def append_and_judge(metrics: Mapping[Any, Any], step: int, at_ns: int | None = None) -> None:
            append(metrics, step, at_ns)
            take(metrics, step)

        return append_and_judge

    def _append_late(self, metrics: Mapping[Any, Any], step: int, at_ns: int) -> None:
        """Records numbers of an earlier time; the log call has returned, so failures are only logged."""
        try:
            self.writer.append_row(metrics, step, at_ns)
            self.on_resolved(metrics)
            if self.alerts is not None:
                self.alerts.take(metrics, step)
        except Exception as error:  # noqa: BLE001 - users may log anything together with a tensor
            self._guard.complain("late", f"Figures of step {step} were not recorded: {shown(error)}", error)

    def append_any(self, metrics: Any, step: int) -> None:
        """Records numbers, arrays and texts of any types, and warns of values that cannot be kept."""
        if not isinstance(metrics, Mapping):
            self._guard.complain(
                "metrics", f"log() was given {shown(metrics)}; it takes a mapping of names to numbers."
            )
            return
        sorted_values = values.sort_values(metrics)
        self._append_split(sorted_values.numbers, step)
        for key, (shape, raw) in sorted_values.arrays.items():
            header = {"key": self._key_names(key), "step": step, "dtype": "<f8", "shape": shape}
            try:
                self.writer.append_array(header, raw)
            except JournalError as error:
                self._guard.complain("too long", str(error), error)
        for key, text in sorted_values.texts.items():
            self.record_event("text", {"key": key, "value": text}, step)
            # Redacted before it is truncated: half a secret would not be recognised.
            name, visible = redact_text(key), redact_value(text, key)[:60]
            self._guard.complain(
                f"text {key}",
                f"{name!r} is {visible!r}, not a number; it is kept as a text event, not as a series.",
            )
        if sorted_values.failure is not None:
            self._guard.complain(
                "mapping",
                f"log() was given {shown(metrics)}, which raised {shown(sorted_values.failure)}; "
                "its values before that were recorded.",
                sorted_values.failure,
            )

    def _append_split(self, numbers: dict[str, float], step: int) -> None:
        """Records a row, or its halves if it is too long; keys beyond the limit are counted as dropped."""
        if not numbers:
            return
        try:
            self.writer.append_row(numbers, step)
        except TooManyKeys as error:
            known_numbers = {key: number for key, number in numbers.items() if key in error.known}
            self.writer.dropped += len(numbers) - len(known_numbers)
            self._guard.complain("keys", str(error), error)
            if known_numbers:
                self.writer.append_row(known_numbers, step)
        except JournalError as error:
            if len(numbers) == 1:
                self._guard.complain("too long", str(error), error)
                return
            items = list(numbers.items())
            self._append_split(dict(items[: len(items) // 2]), step)
            self._append_split(dict(items[len(items) // 2 :]), step)

    def _open(self) -> JournalWriter:
        recorder = self._settings.recorder
        is_rank = self._role == "rank"
        supply = SegmentSupply(
            self._folder,
            self._journal_name(),
            segment_bytes=recorder.segment_bytes if is_rank else max(recorder.segment_bytes // 4, 65536),
            unread_bytes=recorder.unread_bytes,
            mapping=recorder.mapping,
        )
        if self._role != "worker":
            self._agent.write_private(self._journal_name())  # before the opening record: its reader needs it
        opening = opening_of(self._identity, self._settings, self._privacy, self._role, self._command)
        return JournalWriter(
            supply,
            opening,
            max_keys=recorder.max_keys,
            warn=self._guard.tell,
            name_of=self._key_names,
        )

    def _check_agent(self) -> None:
        if self._exit_reason is not None:
            self._exit_reason.reopen_if_closed()
        self._agent.write_private(self._journal_name())
        self._agent.check()

    def _journal_name(self) -> JournalName:
        identity = self._identity
        return JournalName(identity.run_id, identity.segment, identity.rank, os.getpid())

    def _ensure_page(self) -> None:
        """Starts the web page's server if that is enabled; only in rank 0."""
        if not self._settings.dashboard.enabled or self._identity.rank != 0:
            return
        from stepscope.recorder.page_server import ensure_server  # lazy: rarely used

        ensure_server(self._folder, self._settings)

    def _unread(self) -> list[Path]:
        """The files that are not in the store yet, or may not be."""
        if self._folder_watch is not None:
            self._folder_watch.check()
        return [*self.writer.supply.unread(), *self.writer.sealed.uncertain()]

    def _keep_out_of_version_control(self) -> None:
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            ignore = self._folder / ".gitignore"
            if not ignore.exists():
                ignore.write_text("*\n")


def _separate_from_parent() -> None:
    for monitor in list(monitors):
        monitor.continue_in_child()


os.register_at_fork(after_in_child=_separate_from_parent)
