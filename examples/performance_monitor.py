"""The names of older documents together: a monitor, the machine, analysis, alert rules, advice."""

import math

from stepscope import (
    AlertSystem,
    MetricsDatabase,
    PerformanceAnalyzer,
    PerformanceMonitor,
    generate_performance_recommendations,
    monitor_resources,
    save_recommendations_report,
)


def main() -> None:
    """Trains on invented numbers, with one batch that goes wrong."""
    monitor = PerformanceMonitor(run="performance-monitor", project="examples")
    alerts = AlertSystem(monitor)
    alerts.add_alert_rule(
        name="spike",
        condition=lambda metrics: metrics.loss > 2,
        severity="warning",
        message="Loss is {loss:.2f}.",
    )
    monitor.start()
    for step in range(200):
        monitor.log_training_step(loss=9.0 if step == 150 else math.exp(-step / 100))
    print(f"loss {monitor.get_metrics()['loss']:.3f}, {monitor.get_summary()['steps']} steps")
    monitor.stop()

    with MetricsDatabase() as database:
        metrics = database.get_training_metrics(monitor.run_id)
    analyzer = PerformanceAnalyzer(metrics)
    trend = analyzer.analyze_loss_trend()
    print(f"the loss is {trend['trend']} ({trend['significance']}, robust: {trend['robust']['trend']})")
    for anomaly in analyzer.detect_anomalies():
        print(f"step {anomaly['index']}: loss {anomaly['loss']:.2f}")
    for alert in alerts.get_alerts():
        print(f"{alert['severity']}: {alert['message']}")
    recommendations = generate_performance_recommendations(metrics)
    for recommendation in recommendations:
        print(f"{recommendation.category}: {recommendation.problem}")
    save_recommendations_report(recommendations, "optimization_report.md")
    print(f"{monitor_resources(interval=0.1)['cpu_count']} processors")


if __name__ == "__main__":
    main()
