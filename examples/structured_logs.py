"""Log files in which every line says which run, rank and step it belongs to, and no secret is to be found."""

import json
import logging
import tempfile
from pathlib import Path

import stepscope

log = logging.getLogger("train")


def main() -> None:
    """Logs three epochs and prints the lines."""
    log.setLevel(logging.INFO)
    log.propagate = False  # to the files alone, not to the console
    with tempfile.TemporaryDirectory() as folder:
        config = {"logging": {"directory": folder, "jsonl": True}}
        with stepscope.TrainingMonitor(config, run="structured-logs", project="examples") as monitor:
            monitor.logs.attach(log)
            log.info("connecting to https://user:hunter2@data.example.com/set")
            for epoch in range(3):
                for _ in range(10):
                    monitor.log_training_step(loss=1 / (epoch + 1), epoch=epoch)
                log.info("epoch %d done", epoch, extra={"val_loss": 0.5 / (epoch + 1)})
        for path in sorted(Path(folder).rglob("*.jsonl")):
            for line in path.read_text().splitlines():
                record = json.loads(line)
                print(
                    record["category"],
                    record["rank"],
                    record.get("step"),
                    record["message"],
                    record.get("fields", {}),
                )


if __name__ == "__main__":
    main()
