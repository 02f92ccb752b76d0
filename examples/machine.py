"""Reads what the machine did during a run: against time, against training steps, and what it cost."""

import time

import stepscope
from stepscope.config.find import settings_for
from stepscope.views import energy_of


def record() -> None:
    """Leaves a run of three seconds, watched five times a second."""
    config = {"samplers": {"default": {"interval_s": 0.2}}}
    with stepscope.TrainingMonitor(config, run="machine", project="examples") as monitor:
        for step in range(300):
            monitor.log({"loss": 1 / (step + 1)}, step=step)
            time.sleep(0.01)


def main() -> None:
    """Records a run and looks at its machine."""
    record()
    store = stepscope.open_store()
    run = store.run("machine")
    print(f"{len(run.machine_keys())} figures of the machine")

    memory = run.series("process/rss_bytes", rank=0, device="")
    print(f"memory of the training: {memory.values.max() / 2**20:.0f} MiB at most")

    busy = run.buckets("cpu/utilization_ratio", n=8, axis="step")
    for start, mean in zip(busy.starts, busy.mean, strict=True):
        print(f"  steps {start} to {start + busy.width - 1}: processors {mean:.0%} busy")

    for event in run.events("notice"):
        print(f"notice: {event.fields['text']}")

    energy = energy_of(run, settings_for().energy)
    print(f"energy: {energy.total.value} kWh ({energy.total.how})")
    store.close()


if __name__ == "__main__":
    main()
