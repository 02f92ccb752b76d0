"""Starts a run twice: the second start goes on where the first one failed, as a further segment.

Nothing of the first segment is overwritten, also where the second repeats steps after its last checkpoint.
"""

import stepscope

CHECKPOINT_EVERY = 20


class OutOfLuck(Exception):
    """Stands for whatever ends a training."""


def train(first_step: int, fail_at: int | None) -> None:
    """Trains from a checkpoint on; fails at a given step if asked."""
    with stepscope.TrainingMonitor(run="resume", project="examples", resume=first_step > 0) as monitor:
        for step in range(first_step, 100):
            if step == fail_at:
                raise OutOfLuck(f"at step {step}")
            monitor.log({"loss": 1 / (1 + step)}, step=step)
            if step % CHECKPOINT_EVERY == 0:
                monitor.event("checkpoint", step=step, path=f"checkpoint-{step}.pt")


def main() -> None:
    """Fails at step 70, reads where the last checkpoint was, goes on from there."""
    try:
        train(first_step=0, fail_at=70)
    except OutOfLuck as error:
        print(f"The first start failed {error}.")
    saved = stepscope.open_store().run("resume").events("checkpoint")[-1]
    train(first_step=1 + (saved.step or 0), fail_at=None)
    run = stepscope.open_store().run("resume")
    for number, segment in enumerate(run.segments, 1):
        steps = run.series("loss", segment=segment.id).steps
        print(f"segment {number}: steps {steps[0]} to {steps[-1]}, {segment.status} {segment.reason}")


if __name__ == "__main__":
    main()
