"""Logs through tensorboardX, the TensorBoard writer that needs no torch."""

from tensorboardX import SummaryWriter


class Writer:
    """A summary writer with its default queue and flush interval."""

    def __init__(self, folder: str) -> None:
        self._writer = SummaryWriter(folder)

    def log(self, step: int, metrics: dict[str, float]) -> None:
        """Add one scalar per key: the format has no row."""
        for key, value in metrics.items():
            self._writer.add_scalar(key, value, step)

    def finish(self) -> None:
        """Flush and close the event file."""
        self._writer.close()


def import_reader() -> None:
    """Load TensorBoard's reader, which a training process does without."""
    from tensorboard.backend.event_processing import event_accumulator  # noqa: F401


def read_series(folder: str, key: str) -> tuple[list[int], list[float]]:
    """Load the events with TensorBoard's own reader, without its sampling."""
    from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator

    events = EventAccumulator(folder, size_guidance={SCALARS: 0})
    events.Reload()
    if key not in events.Tags()[SCALARS]:
        return [], []
    scalars = events.Scalars(key)
    return [scalar.step for scalar in scalars], [scalar.value for scalar in scalars]
