"""Reads a run back: hyper-parameters, all points, buckets for a chart, events, a data frame.

The data frame needs pandas: pip install 'stepscope[pandas]'
"""

import math

import stepscope


def record() -> None:
    """Leaves a run of ten thousand steps to read."""
    params = {"optimizer": {"name": "sgd", "rate": 0.1}, "decay": 0.999}
    with stepscope.TrainingMonitor(run="read-back", project="examples", params=params) as monitor:
        for step in range(10_000):
            metrics = {"loss": 2 * math.exp(-step / 3000), "learning_rate": 0.1 * 0.999**step}
            monitor.log(metrics, step=step)
            if step % 2500 == 0:
                monitor.event("evaluation", step=step, accuracy=step / 10_000)


def main() -> None:
    """Records a run and reads it in every way there is."""
    record()
    store = stepscope.open_store()
    run = store.run("read-back")
    print(f"{run.name} in project {run.project}: {run.status}")

    print(f"optimizer: {run.params['optimizer']['name']}")

    for series in run.keys():
        print(f"  {series.key}: {series.points} points, last {series.last}")

    loss = run.series("loss")
    print(f"series: {len(loss)} points, loss {loss.values[0]:.2f} to {loss.values[-1]:.2f}")

    chart = run.buckets("loss", n=100)
    print(f"buckets: {len(chart)} of {chart.width} steps, greatest {chart.maximum.max():.2f}")

    for event in run.events("evaluation"):
        print(f"event at step {event.step}: accuracy {event.fields['accuracy']}")

    try:
        print(run.to_pandas(["loss", "learning_rate"]).tail(3))
    except stepscope.StepscopeError as error:
        print(error)
    store.close()


if __name__ == "__main__":
    main()
