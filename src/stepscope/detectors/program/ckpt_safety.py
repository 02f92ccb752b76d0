"""Detects a run that would lose much work: no recent checkpoint, or no room for the next ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple

import numpy as np

from stepscope.analysis.remedies import remedies_in
from stepscope.analysis.wording import round_up, seconds
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector, TooLittleEvidence
from stepscope.number_format import number
from stepscope.schema.finding import Chart, Evidence, Finding, Remedy
from stepscope.schema.keys import STEP_SECONDS, phase_key

if TYPE_CHECKING:
    from stepscope.schema.finding import Severity
    from stepscope.schema.window import Floats, RankWindow, Window

SAVING, FREE, WRITTEN = phase_key("checkpoint"), "disk/free_bytes", "process/disk_write_bytes_per_second"
SETUP_EVENT, SAVE_EVENT = "census", "checkpoint"
BYTES = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2}

SHORTEST_S, LONG_S = 600.0, 7200.0
"""Runs of less than ten minutes can be repeated; two hours without a checkpoint are a warning."""

STOPPED = 3.0
"""Checkpoints have stopped if the newest one is older than this many times the longest time between two."""

BURST_READINGS = 30
"""Readings of what the process writes, one in a second, in which a checkpoint may be written."""

FOLLOWS, MIN_BYTES = 0.9, 1e6
"""Free space falls with each checkpoint if this part of its variance follows their number."""

ROTATE = """\
torch.save(state, f"checkpoint-{step}.pt")
for old in sorted(Path(".").glob("checkpoint-*.pt"), key=os.path.getmtime)[:-3]:
    old.unlink()  # keeps the newest three"""


class _Saves(NamedTuple):
    """When the checkpoints of a run were written, in seconds since the epoch."""

    began: float
    """When the first step began."""
    ended: float
    """When the newest step ended."""
    times: Floats

    @property
    def at_risk_s(self) -> float:
        """The time whose work would be lost."""
        return self.ended - (float(self.times[-1]) if len(self.times) else self.began)


@dataclass(frozen=True)
class CheckpointSafety(Detector):
    """Reads when any rank wrote a checkpoint, and how the free space has fallen with each of them."""

    id: ClassVar[str] = "ckpt.safety"
    title: ClassVar[str] = "Much work would be lost if the run stopped"
    sentence: ClassVar[str] = (
        "no checkpoint was written for half an hour or a fifth of the planned run, or checkpoints have "
        "stopped, or a file system has room for fewer than three more"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((SAVING,), (STEP_SECONDS,))
    courses: ClassVar[tuple[str, ...]] = (SAVING, STEP_SECONDS, FREE, WRITTEN)
    reads: ClassVar[tuple[str, ...]] = (FREE, WRITTEN)
    events: ClassVar[tuple[str, ...]] = (SETUP_EVENT, SAVE_EVENT)
    min_steps: ClassVar[int] = 0
    in_steady_state: ClassVar[bool] = False
    for_each_rank: ClassVar[bool] = False
    is_optional: ClassVar[bool] = True

    minutes: Annotated[float, Range(1)] = 30.0
    """Longest time without a checkpoint."""

    planned_share: Annotated[float, Range(0.01, 1)] = 0.2
    """The same as a share of the planned run, if that is known."""

    rare_hours: Annotated[float, Range(0.1)] = 3.0
    """Longest time after a single checkpoint."""

    checkpoints_left: Annotated[float, Range(1)] = 3.0
    """Minimum number of checkpoints for which there must be room."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Looks at the room for checkpoints, then at the age of the newest one."""
        saves = _saves(window)
        if saves is None:
            return TooLittleEvidence("No steps were timed.")
        full = self._full_disk(rank, window, saves)
        if full is not None:
            return full
        at_risk = saves.at_risk_s
        if not self._is_too_old(saves, window.remaining_s):
            count = len(saves.times)
            written = f"{count:,} checkpoint{'s were' if count != 1 else ' was'} written"
            return f"{written}; the work of {seconds(at_risk)} is not saved."
        if _may_have_saved(rank, window):
            return "The process wrote as much as a checkpoint to a disk, which may be one."
        return self._finding(rank, window, saves)

    def _is_too_old(self, saves: _Saves, remaining_s: float | None) -> bool:
        at_risk = saves.at_risk_s
        if not len(saves.times):
            planned = at_risk + remaining_s if remaining_s else float("inf")
            is_large_part = at_risk >= SHORTEST_S and at_risk > self.planned_share * planned
            return at_risk > 60 * self.minutes or is_large_part
        if remaining_s == 0:
            return False  # the run has ended, after its last checkpoint
        if len(saves.times) == 1:
            return at_risk > 3600 * self.rare_hours
        return at_risk > max(60 * self.minutes, STOPPED * float(np.diff(saves.times).max()))

    def _finding(self, rank: RankWindow, window: Window, saves: _Saves) -> Finding:
        at_risk, count = saves.at_risk_s, len(saves.times)
        (taken,) = rank.aligned(STEP_SECONDS, steady=False)
        every = round_up(0.5 * 60 * self.minutes / max(float(np.median(taken)), 1e-6))
        since = f"since the newest of {count:,}" if count > 1 else "since the only one" if count else ""
        planned = "" if not window.remaining_s else f", {seconds(window.remaining_s)} are left"
        severity: Severity = "warning" if at_risk >= LONG_S or count > 1 else "notice"
        return replace(
            self._described(rank),
            severity=severity,
            headline=f"No checkpoint was written in {seconds(at_risk)} of training"
            f"{f', {since}' if since else ''}.",
            detail="If the run stops, the work of this time is lost.",
            evidence=(
                Evidence("checkpoints", f"{count:,}", "calls of `torch.save`, or reported by a framework"),
                Evidence("not saved", seconds(at_risk), f"of {seconds(saves.ended - saves.began)}{planned}"),
            ),
            ruled_out=("A checkpoint that another rank has written: all ranks were examined.",),
            remedies=remedies_in(
                window.libraries(rank.rank),
                f"Save once in {every:,} steps, with the state of the optimizer and the scheduler.",
                {
                    "torch": f'if step % {every} == 0:\n    state = {{"step": step, "model": '
                    'model.state_dict(),\n             "optimizer": optimizer.state_dict()}\n'
                    '    torch.save(state, "new.pt")\n    os.replace("new.pt", "checkpoint.pt")',
                    "lightning": f"checkpoints = ModelCheckpoint(every_n_train_steps={every})",
                    "transformers": 'arguments = TrainingArguments(..., save_strategy="steps", '
                    f"save_steps={every})",
                },
            ),
            tries=(f"save once in {every:,} steps",),
        )

    def _full_disk(self, rank: RankWindow, window: Window, saves: _Saves) -> Finding | None:
        """Returns a finding if a file system has room for a few more checkpoints only."""
        if window.remaining_s == 0:
            return None
        for figures in window.figures(FREE, rank.host):
            each = _bytes_of_checkpoint(figures.times, figures.values, saves.times)
            free = float(figures.values[-1])
            if each is None or free >= self.checkpoints_left * each:
                continue
            left = int(free // each)
            return replace(
                self._described(rank),
                severity="critical" if left < 1 else "warning",
                headline=f"There is room for {left} more checkpoint{'s' if left != 1 else ''} in "
                f"{figures.device or 'the file system'}: {number(free / 2**30, 3)} GiB are free, and each "
                f"takes {number(each / 2**30, 3)} GiB.",
                detail="A checkpoint that does not fit raises an error in the training, or is incomplete.",
                evidence=(
                    Evidence("free", f"{number(free / 2**30, 3)} GiB", figures.device),
                    Evidence("a checkpoint", f"{number(each / 2**30, 3)} GiB", "by which free space falls"),
                    Evidence("checkpoints", f"{len(saves.times):,}"),
                ),
                ruled_out=("Other programs that fill the disk: free space falls with each checkpoint.",),
                remedies=(
                    *remedies_in(
                        window.libraries(rank.rank),
                        "Keep only the newest checkpoints.",
                        {
                            "torch": ROTATE,
                            "lightning": "checkpoints = ModelCheckpoint(..., save_top_k=3)",
                            "transformers": "arguments = TrainingArguments(..., save_total_limit=3)",
                        },
                    ),
                    Remedy("Or free some space, or save to another disk.", "df -h; du -sh *"),
                ),
                tries=("keep the newest checkpoints only", "free disk space"),
            )
        return None

    def _described(self, rank: RankWindow) -> Finding:
        """Returns what both findings have in common."""
        return Finding(
            id=self.id,
            title=self.title,
            headline="",
            detail="",
            severity="notice",
            confidence=0.85,
            first_step=int(rank.steps[0]),
            last_step=int(rank.steps[-1]),
            first_time=float(rank.times[0]),
            last_time=float(rank.times[-1]),
            chart=Chart((SAVING,)),
            how="Calls of `torch.save` are timed in all steps. Room: free space at the last reading, divided "
            "by what each checkpoint took, where the changes of free space follow the number of checkpoints.",
        )


def _saves(window: Window) -> _Saves | None:
    """Returns when any rank wrote a checkpoint, in the whole segment."""
    began, ended, times = [], [], [event.time_ns / 1e9 for event in window.events_of(SAVE_EVENT)]
    for rank in window.ranks:
        if not len(rank.steps) or not rank.has(STEP_SECONDS):
            continue
        taken = rank.columns[STEP_SECONDS]
        course = rank.course.get(STEP_SECONDS)
        first = float(rank.times[0] - (taken.values[0] if taken.finite[0] else 0.0))
        began.append(first if course is None or not len(course) else float(course.times[0]))
        ended.append(float(rank.times[-1]))
        if SAVING in rank.columns:
            times += rank.times[rank.columns[SAVING].values > 0].tolist()
        saved = rank.course.get(SAVING)
        if saved is not None:
            # Buckets also have the newest steps, whose times are known exactly.
            is_older = (saved.maximum > 0) & (saved.times < rank.times[0])
            times += saved.times[is_older].tolist()
    return _Saves(min(began), max(ended), np.unique(times)) if began else None


def _may_have_saved(rank: RankWindow, window: Window) -> bool:
    """Whether the process wrote as much as half of the parameters to a disk within half a minute."""
    setups = window.events_of(SETUP_EVENT, rank.rank)
    dtypes = setups[-1].fields.get("parameter_dtypes") if setups else None
    size = sum(BYTES.get(name, 1) * count for name, count in dtypes.items()) if dtypes else 0
    written = window.figures(WRITTEN, rank.host)
    for figures in written if size else ():
        passed = np.diff(figures.times, prepend=figures.times[0])
        sums = np.cumsum(np.r_[0.0, figures.values * passed])
        width = min(BURST_READINGS, len(figures.values))
        if float((sums[width:] - sums[:-width]).max()) >= 0.5 * size:
            return True
    return False


def _bytes_of_checkpoint(times: Floats, free: Floats, saves: Floats) -> float | None:
    """Returns by how much free space falls with each checkpoint; None if it does not follow their number."""
    written = np.searchsorted(saves, times, "right").astype(float)
    if len(times) < 5 or np.ptp(written) < 2:
        return None
    line = np.polynomial.Polynomial.fit(written, free, 1).convert()
    spread = float(free.var())
    rest = float((free - line(written)).var())
    each = -float(line.coef[1]) if len(line.coef) > 1 else 0.0
    return each if each >= MIN_BYTES and rest <= (1 - FOLLOWS) * spread else None
