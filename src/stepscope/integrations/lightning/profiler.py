"""`ProfilerCallback`: records chosen steps of a fit with PyTorch's profiler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stepscope.integrations.lightning.feeding import feed
from stepscope.integrations.lightning.fit_clock import clock_of
from stepscope.integrations.lightning.framework import LightningCallback, guarded
from stepscope.integrations.lightning.options import (
    check_counts,
    check_flags,
    numbers_argument,
    path_argument,
    refuse,
)
from stepscope.integrations.lightning.trainer_facts import batches_stepped
from stepscope.number_format import duration
from stepscope.profiling.window.profiler_window import FOLDER, ProfilerWindow, WindowOptions
from stepscope.profiling.window.session import Detail
from stepscope.views.formatting import percent

if TYPE_CHECKING:
    from collections.abc import Iterable
    from os import PathLike

    from stepscope.profiling.window.window_profile import WindowProfile

ACTIVITIES = ("cpu", "cuda")


class ProfilerCallback(LightningCallback):
    """Profiles `profile_steps` batches of each epoch in `profile_epochs`, after `warmup_steps` batches.

        trainer = Trainer(callbacks=[ProfilerCallback(enabled=True, profile_epochs=[0, 5])])

    Epochs count from 0. Each window becomes a Chrome trace and a summary in `output_dir` (default: `profiles`
    in the store folder), and prints the operations that took most time. It is off by default: a profiled step
    takes longer than others.
    """

    def __init__(  # noqa: PLR0913 - all by name, and each optional
        self,
        *,
        enabled: bool = False,
        profile_epochs: Iterable[int] | int = (1,),
        profile_steps: int = 20,
        warmup_steps: int = 5,
        activities: Iterable[str] | str = ACTIVITIES,
        record_shapes: bool = False,
        with_stack: bool = False,
        output_dir: str | PathLike[str] | None = None,
        export_chrome_trace: bool = True,
        log_top_k_ops: int = 10,
    ) -> None:
        check_flags(self, enabled=enabled, record_shapes=record_shapes, with_stack=with_stack)
        check_flags(self, export_chrome_trace=export_chrome_trace)
        check_counts(self, 1, profile_steps=profile_steps)
        check_counts(self, 0, warmup_steps=warmup_steps, log_top_k_ops=log_top_k_ops)
        self._epochs = numbers_argument(self, "profile_epochs", profile_epochs)
        self._folder = path_argument(self, "output_dir", output_dir)
        super().__init__(enabled=enabled)
        self._steps, self._warmup, self._top = profile_steps, warmup_steps, log_top_k_ops
        self._writes_files = export_chrome_trace
        self._detail = Detail(
            shapes=record_shapes,
            stacks=with_stack,
            activities=self._checked_activities(activities),
        )
        self._window: ProfilerWindow | None = None
        self._module: Any = None
        self._trainer: Any = None

    def _checked_activities(self, activities: Any) -> tuple[str, ...]:
        names = [activities] if isinstance(activities, str) else list(activities)
        names = [name.lower() if isinstance(name, str) else name for name in names]
        if not names or any(name not in ACTIVITIES for name in names):
            raise refuse(self, "activities", activities, f"a list of {' and '.join(ACTIVITIES)}")
        return tuple(names)

    def state_to_pickle(self) -> dict[str, Any]:
        """Leaves out an open window, which belongs to this process."""
        return {**vars(self), "_window": None, "_module": None, "_trainer": None}

    @property
    def profiles(self) -> tuple[WindowProfile, ...]:
        """The profiles of this fit, or of the last one."""
        return () if self._window is None else self._window.profiles

    @guarded
    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Forgets the windows of an earlier fit."""
        self._window, self._trainer, self._module = None, trainer, pl_module

    @guarded
    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Begins, continues or ends a window."""
        if self._window is None:
            self._window = self._new_window(trainer)
        self._window.step(trainer.current_epoch, batches_stepped(trainer))

    def _new_window(self, trainer: Any) -> ProfilerWindow:
        monitor = clock_of(trainer).monitor
        folder = self._folder
        if folder is None and monitor is not None:
            folder = str(monitor.directory / FOLDER)
        options = WindowOptions(
            detail=self._detail,
            top=max(self._top, 1),
            write_files=self._writes_files,
            rank=trainer.global_rank if trainer.world_size > 1 else None,
            told=self._report,
        )
        return ProfilerWindow(
            self._epochs, active=self._steps, warmup=self._warmup, directory=folder, options=options
        )

    @guarded
    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Ends an open window."""
        if self._window is None:
            return
        self._window.close()
        if not self._window.profiles:
            epochs = ", ".join(map(str, self._epochs))
            pl_module.print(
                f"Profiler: nothing was profiled. Epochs {epochs} (from 0) were not reached, or had no more "
                f"than {self._warmup + 1} batches."
            )
        self._module = self._trainer = None

    @guarded
    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Ends an open window."""
        if self._window is not None:
            self._window.close()
        self._module = self._trainer = None

    def _report(self, profile: WindowProfile) -> None:
        """Prints the largest operations, and logs where the time went."""
        shares = profile.breakdown.shares()
        feed(self._trainer, {f"profiler/{name}_ratio": share for name, share in shares.items()}, self._guard)
        lines = [
            f"Profiler: {profile.steps} batches in {duration(profile.window_seconds)}. {profile.bottleneck}"
        ]
        operations = profile.device_operations or profile.operations
        width = max((len(operation.name) for operation in operations), default=0)
        for operation in operations[: self._top]:
            took, share = duration(operation.self_seconds), percent(operation.share_ratio)
            lines.append(f"  {operation.name:<{width}}  {operation.calls:>7,} calls  {took:>9}  {share:>5}")
        if profile.trace is not None:
            lines.append(f"  trace: {profile.trace} (open it at https://ui.perfetto.dev)")
        self._module.print("\n".join(lines))
