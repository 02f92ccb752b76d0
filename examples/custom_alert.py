"""Alert rules of your own: one is a function of the metrics, one an expression. Both are sent and stored."""

import math
import time

import stepscope


def main() -> None:
    """Trains something whose loss jumps, and prints who was notified."""
    settings = {"agent": {"interval_s": 0.1}, "alerts": {"channels": {"console": {"enabled": False}}}}
    with stepscope.TrainingMonitor(settings, run="custom_alert", project="examples") as monitor:
        monitor.alert_system.add_alert_rule(
            name="high_loss",
            condition=lambda metrics: metrics.loss > 2,
            severity="warning",
            message="High validation loss: {loss:.2f}",
            cooldown_seconds=300,
        )
        monitor.alert_system.add_alert_rule(
            name="low_accuracy",
            condition="mean(accuracy, 20 points) < 0.5 and count(accuracy, 20 points) >= 20",
            severity="critical",
            message="Accuracy is {accuracy:.0%}.",
        )
        for step in range(60):
            loss = 1 / math.sqrt(step + 1) if step < 40 else 2.5
            monitor.log_training_step(loss=loss, accuracy=0.9 if step < 20 else 0.3)
            time.sleep(0.01)

    for alert in stepscope.open_store().run("custom_alert").alerts():
        print(f"{alert['severity']}: {alert['message']}")


if __name__ == "__main__":
    main()
