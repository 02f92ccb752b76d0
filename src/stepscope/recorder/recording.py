"""One segment as this process records it: journal, keeper, last words, agent."""

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
from stepscope.recorder.keeper import Keeper
from stepscope.recorder.key_names import KeyNames
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
"""Monitors that are recording; each parts from its journal when the process forks."""

MAX_EVENT_CHARACTERS = 64_000
"""Text of one event that is kept; redacting that takes a tenth of a second at worst."""


class Recording:
    """What is open between start and stop."""

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
        self._alerts: AlertSystem | None = None
        self.on_resolved: Callable[[Mapping[Any, Any]], None] = lambda _: None
        """Told of rows that came late from a GPU."""
        self._keeper: Keeper | None = None
        self._watch: FolderWatch | None = None
        self._last_words: ExitReason | None = None
        self._agent = AgentWatch(folder, settings, lambda: self.writer.trouble is None, guard.tell)

    @classmethod
    def of_worker(cls, identity: Identity, folder: Path, settings: Settings, guard: Guard) -> Recording:
        """The recording of a loader worker or another child, which opens its journal when it logs."""
        return cls(identity, folder, settings, guard, role="worker")

    @property
    def writer(self) -> JournalWriter:
        """The journal, opened at first use."""
        if self._lazy_writer is None:
            self._lazy_writer = self._open()
            if self._role == "worker":
                self._keep(lambda: None)
        return self._lazy_writer

    def begin(
        self, on_end: Callable[[str, str], None], on_failure: Callable[[BaseException], None] = lambda _: None
    ) -> None:
        """Starts what a rank has and a worker has not: an agent, a keeper, last words."""
        self._keep_out_of_version_control()
        self._agent.ensure()
        self._ensure_page()
        name = self._journal_name().path(journals_of(self._folder))
        hooks = ExitHooks(self._leave, self._leave_by_exec, self.writer.position)
        self._last_words = ExitReason(path_beside(name), on_end, on_failure, hooks)
        self._last_words.install()
        self._keep(self._look_after_agent)

    def _keep(self, ensure_agent: Callable[[], None]) -> None:
        """Starts what looks after the journal; a worker has its own, with an agent of its parent's."""
        database = database_of(self._folder)
        self._watch = FolderWatch(
            self._folder, database, self.writer, self._guard.tell, self._begin_in_new_folder
        )
        self._keeper = Keeper(self.writer, self._watch.look, self._drain, ensure_agent, self._guard)

    def _begin_in_new_folder(self) -> None:
        """Puts into a store folder that was made again what else was in it."""
        if self._role == "worker":
            return
        self._keep_out_of_version_control()
        if self._last_words is not None:
            self._last_words.begin_anew()
        self._agent.write_private(self._journal_name())
        self._agent.ensure()
        if self._settings.dashboard.enabled:
            from stepscope.recorder.page_server import forget_server  # lazy: few have it served with a run

            forget_server(self._folder)
        self._ensure_page()

    def _leave(self, exit_code: int) -> None:
        """Says how a process ended that leaves by `os._exit`, which runs nothing else."""
        self._drain()
        if self._watch is not None:
            self._watch.look()
        status, reason = ("failed", f"exit code {exit_code}") if exit_code else ("finished", "")
        self.writer.end_soon({"status": status, "reason": reason, "exit_code": exit_code})

    @contextlib.contextmanager
    def _leave_by_exec(self) -> Iterator[None]:
        """Ends the journal of a process that becomes another program; goes on if it does not."""
        self._flush()
        reason = "replaced itself by another program (exec)"
        with self.writer.closed_for({"status": "finished", "reason": reason, "exit_code": None}):
            yield

    def child(self) -> Recording:
        """What a forked child records with; the parent's files are left alone."""
        if self._last_words is not None:
            self._last_words.forget_signals()
        return Recording.of_worker(self._identity, self._folder, self._settings, self._guard)

    def end(self, status: str, reason: str, exit_code: int | None = None) -> None:
        """Closes the journal and waits until the store has it all; a launcher knows an exit code too."""
        if self._keeper is not None:
            self._keeper.stop()
        if self._lazy_writer is None:
            return
        self._flush()
        if self._watch is not None:
            self._watch.look()
        safe_reason = self._user_privacy.text(redact_text(reason))
        untold = self.writer.close({"status": status, "reason": safe_reason, "exit_code": exit_code})
        if self._last_words is not None:
            self._last_words.uninstall(untold)
        if untold is not None:
            return  # the journal has said what is lost
        if self.writer.unsaved:
            self._guard.tell(
                f"{self.writer.unsaved:,} records of this process are lost, because the journal could not be "
                f"written: {self.writer.trouble}."
            )
        elif self._role != "worker":
            self._agent.wait_until_stored(self._unread)

    def settle(self) -> None:
        """Waits for numbers on their way and judges them, while there can still be something to tell."""
        self._flush()
        if self._alerts is not None:
            self._alerts.judge()

    def _flush(self) -> None:
        try:
            for deferred in self._deferred.values():
                deferred.flush()
        except Exception as error:  # noqa: BLE001 - a GPU that has failed tells so in its own way
            self._guard.complain("deferred", f"The last numbers on the GPU are lost: {shown(error)}", error)

    def note(self, kind: str, fields: Mapping[str, Any], step: int | None = None) -> None:
        """Records an event of stepscope's own."""
        try:
            safe = self._user_privacy.nested(redact_mapping(fields))
            self.writer.append_event(kind, safe, step)
        except Exception as error:  # noqa: BLE001 - a field's own text may raise anything
            self._guard.complain("event", f"The event {shown(kind)} is lost: {shown(error)}", error)

    def note_of_user(self, kind: object, fields: Mapping[str, Any], step: int) -> None:
        """Records an event of the user's, whatever its fields are called."""
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
        """Records a row of which some numbers lie on a GPU, when they have come from there."""
        at_ns = time.monotonic_ns()
        values = dict(metrics)
        keys = [key for key, value in values.items() if getattr(value, "is_cuda", False) is True]
        tensors = [values[key] for key in keys]
        # Each keeps its place; the tensor, which may hold a whole graph in memory, is not kept for that.
        values.update(dict.fromkeys(keys))

        def arrived(numbers: list[float]) -> None:
            values.update(zip(keys, numbers, strict=True))
            self._append_late(values, step, at_ns)

        dtype = tensors[0].dtype
        if any(one.dtype != dtype for one in tensors):
            tensors = [one.double() for one in tensors]
        self._deferral(tensors[0].device).put(tensors, arrived)

    def read_later(self, values: Any, then: Callable[[list[float]], None]) -> None:
        """Hands over the elements of a tensor: at once from the host, later from a GPU."""
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
        """Records a tensor whole, under one key."""
        described = {
            "key": self._key_names(key),
            "step": step,
            "dtype": "<f8",
            "shape": tuple(values.shape),
        }
        self.read_later(
            values, lambda numbers: self.writer.append_array(described, array("d", numbers).tobytes())
        )

    def _deferral(self, device: Any) -> Deferred:
        if device not in self._deferred:
            from stepscope.recorder.deferred import Deferred  # lazy: only where there is a GPU

            self._deferred[device] = Deferred(device)
        return self._deferred[device]

    def _drain(self) -> None:
        for deferred in list(self._deferred.values()):
            deferred.drain()
        if self._alerts is not None:
            self._alerts.judge()

    @property
    def judges(self) -> bool:
        """Whether each row is judged by rules of the training's own."""
        return self._alerts is not None

    def judge_by(self, alerts: AlertSystem) -> Callable[..., None]:
        """Has rows judged by rules of the training's own; gives what appends a row from now on."""
        self._alerts = alerts
        append, take = self.writer.append_row, alerts.take

        def append_and_judge(metrics: Mapping[Any, Any], step: int, at_ns: int | None = None) -> None:
            append(metrics, step, at_ns)
            take(metrics, step)

        return append_and_judge

    def _append_late(self, metrics: Mapping[Any, Any], step: int, at_ns: int) -> None:
        """Records numbers of an earlier moment; whoever logged them can no longer be told of a failure."""
        try:
            self.writer.append_row(metrics, step, at_ns)
            self.on_resolved(metrics)
            if self._alerts is not None:
                self._alerts.take(metrics, step)
        except Exception as error:  # noqa: BLE001 - what is logged beside a tensor may be anything
            self._guard.complain("late", f"Figures of step {step} were not recorded: {shown(error)}", error)

    def append_with_care(self, metrics: Any, step: int) -> None:
        """Records numbers, arrays and texts each in their way, and says what cannot be kept."""
        if not isinstance(metrics, Mapping):
            self._guard.complain(
                "metrics", f"log() was given {shown(metrics)}; it takes a mapping of names to numbers."
            )
            return
        found = values.sort(metrics)
        self._append_split(found.numbers, step)
        for key, (shape, raw) in found.arrays.items():
            described = {"key": self._key_names(key), "step": step, "dtype": "<f8", "shape": shape}
            try:
                self.writer.append_array(described, raw)
            except JournalError as error:
                self._guard.complain("too long", str(error), error)
        for key, text in found.texts.items():
            self.note("text", {"key": key, "value": text}, step)
            # Redacted before it is cut: half a secret would not be recognised in a log.
            name, visible = redact_text(key), redact_value(text, key)[:60]
            self._guard.complain(
                f"text {key}",
                f"{name!r} is {visible!r}, not a number; it is kept as a text event, not as a series.",
            )
        if found.failure is not None:
            self._guard.complain(
                "mapping",
                f"log() was given {shown(metrics)}, which raised {shown(found.failure)}; "
                "what it gave before that was recorded.",
                found.failure,
            )

    def _append_split(self, numbers: dict[str, float], step: int) -> None:
        """Records a row, or its halves where it is too long for one; keys beyond the limit are counted."""
        if not numbers:
            return
        try:
            self.writer.append_row(numbers, step)
        except TooManyKeys as error:
            known = {key: number for key, number in numbers.items() if key in error.known}
            self.writer.dropped += len(numbers) - len(known)
            self._guard.complain("keys", str(error), error)
            if known:
                self.writer.append_row(known, step)
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
            self._agent.write_private(self._journal_name())  # before the opening, whose reader looks for it
        opening = opening_of(self._identity, self._settings, self._privacy, self._role, self._command)
        return JournalWriter(
            supply,
            opening,
            max_keys=recorder.max_keys,
            warn=self._guard.tell,
            name_of=self._key_names,
        )

    def _look_after_agent(self) -> None:
        if self._last_words is not None:
            self._last_words.reopen_closed()
        self._agent.write_private(self._journal_name())
        self._agent.look_after()

    def _journal_name(self) -> JournalName:
        one = self._identity
        return JournalName(one.run_id, one.segment, one.rank, os.getpid())

    def _ensure_page(self) -> None:
        """Has the web page served, where that is wanted; by one process of all ranks."""
        if not self._settings.dashboard.enabled or self._identity.rank != 0:
            return
        from stepscope.recorder.page_server import ensure_server  # lazy: few have it served with a run

        ensure_server(self._folder, self._settings)

    def _unread(self) -> list[Path]:
        """The files the store does not have, wherever their folder is by now."""
        if self._watch is not None:
            self._watch.look()
        return self.writer.supply.unread()

    def _keep_out_of_version_control(self) -> None:
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            ignore = self._folder / ".gitignore"
            if not ignore.exists():
                ignore.write_text("*\n")


def _part_from_parent() -> None:
    for monitor in list(monitors):
        monitor.continue_in_child()


os.register_at_fork(after_in_child=_part_from_parent)
