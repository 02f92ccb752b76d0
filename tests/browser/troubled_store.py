"""Writes a store of trainings in trouble: failed, killed, with a loss that is NaN, and with odd sizes."""

from __future__ import annotations

import numpy as np

from stepscope.schema.record import Event
from stepscope.schema.series import Source
from stepscope.store.base import OpenAlert
from tests.browser.example_store import HOST, NS, ExampleStore

FAILED, SILENT, KILLED = "failed", "silent", "killed"
NAN, EXPLODED, LONG, FAST = "nan-loss", "exploded", "long-one", "fast-one"
WORDY = "wordy-" + "abcdefghij" * 18
"""A run whose name, and a key of its configuration, are longer than any place for them."""
REASON = "KeyError: 'mixup'"
TRACE = """Traceback (most recent call last):
  File "/home/someone/projects/vision/train.py", line 98, in <module>
    main(parsed_arguments, configuration, output_folder)
  File "/home/someone/projects/vision/train.py", line 61, in main
    batch = augment(batch, configuration["augmentation"]["policy"], generator=generator)
KeyError: 'mixup'"""


class TroubledStore(ExampleStore):
    """Small runs without a GPU, as people have them on their own machines."""

    def fill(self) -> TroubledStore:
        """Writes all of them; gives itself."""
        self.small(FAILED, "failed", 2 * np.exp(-np.arange(300) / 100), REASON)
        printed = "\n".join(f"epoch {epoch} loss {2 / (epoch + 1):.3f}" for epoch in range(30))
        self._event(FAILED, "console", text=f"{printed}\n{TRACE}\n")
        self.small(SILENT, "failed", np.linspace(2, 1, 300), REASON)
        self.small(KILLED, "crashed", np.linspace(2, 1, 300), "process 4000 was killed (no error message)")
        losses = np.linspace(2, 1, 300)
        losses[200:] = np.nan
        self.small(NAN, "finished", losses)
        self.small(EXPLODED, "finished", np.concatenate([1.5 ** np.arange(290.0), np.full(10, np.nan)]))
        self.small(LONG, "finished", 2 * np.exp(-np.arange(15_000) / 5_000))
        self.small(FAST, "finished", np.linspace(2, 1, 3_000), step_s=1 / 134_217.7)
        config = {"list": list(range(500)), "key_" * 45: 1, "text": "y" * 5_000, "last": 2}
        self.small(WORDY, "finished", np.linspace(2, 1, 100), config=config)
        for step in range(0, 15_000, 250):
            self._event(LONG, "checkpoint", step=step, path=f"checkpoint-{step}.pt")
        return self

    def small(
        self, name: str, status: str, losses: np.ndarray, reason: str = "", step_s: float = 0.002, config=None
    ) -> None:
        """A training of one process that logs its loss and learning rate."""
        count = len(losses)
        begun_ns = self.now_ns - 3_600 * NS
        times = begun_ns + (np.arange(1, count + 1) * step_s * NS).astype(np.int64)
        facts = {"command": ["python", "train.py"], "config": config or {}}
        self.processes(name, begun_ns, int(times[-1]), status, reason, facts, ranks=1)
        columns = {
            "loss": losses,
            "learning_rate": np.full(count, 1e-3),
            "step_seconds": np.full(count, step_s),
        }
        self.append(Source(name, "s1", 0, HOST), columns, np.arange(count), times)

    def alarms(self) -> None:
        """Alerts on a run that goes on, with more to say than fits into a line."""
        self.small("troubled", "running", np.linspace(2, 1, 50))
        details = {"recent": [0.1, 0.3, 0.41], "advice": "Raise num_workers to 12. " * 6, "rank": 0}
        long, short = "41% of the last 2 min were spent waiting for data. " * 3, "It is hot."
        with self.store.transaction():
            for rule, message, value in (("input_bound", long, 0.41), ("hot", short, 123_456.0)):
                fields = {**details, "value": value, "threshold": value / 2}
                alert = OpenAlert("troubled", rule, "warning", message, self.now_ns, fields)
                self.store.alert_book.fire(alert)

    def _event(self, run: str, kind: str, step: int | None = None, **fields: object) -> None:
        at_ns = self.now_ns - 3_600 * NS + int((step or 0) * 0.002 * NS)
        with self.store.transaction():
            self.store.put_event(run, Event(kind, at_ns, step, None, "s1", fields))
