"""The dashboards of trainings: an overview, and the ranks of a distributed training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepscope.grafana.gpu_dashboard import (
    GPU,
    GPU_MEMORY,
    GPU_POWER,
    GPU_TEMPERATURE,
    GPU_UTILIZATION,
    OF_GPUS,
    RATE,
)
from stepscope.grafana.layout import PAGE, Dashboard, Row, Variable
from stepscope.grafana.panels import NO_UNIT, Query, heat_map, stat, state_timeline, table, time_series

if TYPE_CHECKING:
    from stepscope.grafana.panels import Panel

RUN = '{project=~"$project", run=~"$run"}'
HOST = '{host=~"$host"}'
BY_RUN = "{{run}}"
BY_RANK = "{{run}} r{{rank}}"

OF_RUNS = (
    Variable("project", "label_values(training_steps_total, project)"),
    Variable("run", 'label_values(training_steps_total{project=~"$project"}, run)'),
)

STARTS = f"stepscope_run_info{RUN} unless stepscope_run_info{RUN} offset 1m"
MARKS = (
    ("Run started", STARTS, "{{run}} started"),
    ("Alerts", f"stepscope_alert_active{RUN}", "{{rule}} ({{severity}}): {{run}}"),
)


def _quantile(share: float, labels: str) -> str:
    buckets = f"rate(training_step_duration_seconds_bucket{RUN}{RATE})"
    return f"histogram_quantile({share:g}, sum by (le, {labels}) ({buckets}))"


def _phases(labels: str, legend: str, width: int = 8) -> Panel:
    seconds = f"sum by ({labels}, phase) (rate(stepscope_step_phase_seconds_total{RUN}{RATE}))"
    ranks = f"group by (project, run, rank) (stepscope_step_phase_seconds_total{RUN})"
    return time_series(
        "Time of a step by phase",
        "Share of time that goes into each phase; a mean over the ranks that are shown together.",
        Query(f"{seconds} / on ({labels}) group_left count by ({labels}) ({ranks})", legend),
        unit="percentunit",
        is_stacked=True,
        width=width,
    )


def overview() -> Dashboard:
    """What a training does, and its GPUs in short."""
    return Dashboard(
        "stepscope-overview",
        "stepscope: training and GPUs",
        "Loss, learning rate, step times and GPUs of live trainings.",
        (*OF_RUNS, *OF_GPUS),
        (
            Row("Now", _numbers_now()),
            Row("Training", _training_charts()),
            Row("GPUs", (GPU_UTILIZATION, GPU_MEMORY, GPU_TEMPERATURE, GPU_POWER, *_host())),
            Row("Progress and cost", _progress(), is_collapsed=True),
        ),
        MARKS,
    )


def _numbers_now() -> tuple[Panel, ...]:
    last_step = f"time() - max(stepscope_last_step_timestamp_seconds{RUN})"
    return (
        stat(
            "Runs",
            "Runs that are live, or ended less than ten minutes ago.",
            Query(f"count(stepscope_run_info{RUN})"),
            unit=NO_UNIT,
        ),
        stat("Loss", "Mean of the newest losses.", Query(f"avg(training_loss{RUN})"), unit=NO_UNIT),
        stat(
            "Steps per second",
            "Steps per second of all runs together.",
            Query(f"sum(max by (project, run) (rate(training_steps_total{RUN}{RATE})))"),
            unit=NO_UNIT,
        ),
        stat(
            "Since the last step",
            "Time since any of the runs has done a step.",
            Query(last_step),
            unit="s",
            thresholds=(("green", None), ("#EAB839", 60), ("red", 300)),
        ),
        stat(
            "GPU utilisation",
            "Mean over the GPUs.",
            Query(f"avg(gpu_utilization_percent{GPU})"),
            unit="percent",
            thresholds=(("red", None), ("#EAB839", 50), ("green", 80)),
        ),
        stat(
            "Alerts",
            "Alerts of stepscope that fire.",
            Query(f"count(stepscope_alert_active{RUN} == 1) or vector(0)"),
            unit=NO_UNIT,
            thresholds=(("green", None), ("red", 1)),
        ),
    )


def _training_charts() -> tuple[Panel, ...]:
    return (
        time_series(
            "Loss",
            "Last training loss of each rank. A gap is a value that is not a number.",
            Query(f"training_loss{RUN}", BY_RANK),
            unit=NO_UNIT,
            width=12,
        ),
        time_series(
            "Learning rate",
            "Of each parameter group of the optimizer.",
            Query(f"learning_rate{RUN}", "{{run}} {{group}}"),
            unit="sci",
            width=6,
        ),
        time_series(
            "Gradient norm",
            "Global L2 norm of the gradients, before clipping.",
            Query(f"gradient_norm{RUN}", BY_RANK),
            unit=NO_UNIT,
            width=6,
        ),
        heat_map(
            "Step duration",
            "How many steps took how long: a darker cell has more steps.",
            f"sum by (le) (increase(training_step_duration_seconds_bucket{RUN}{RATE}))",
            unit="s",
        ),
        time_series(
            "Step duration: median and 95%",
            "Half of the steps took no longer than the median, 95% no longer than the other line.",
            Query(_quantile(0.5, "run"), "{{run}} median"),
            Query(_quantile(0.95, "run"), "{{run}} 95%"),
            unit="s",
        ),
        _phases("project, run", "{{run}} {{phase}}"),
        time_series(
            "Steps per second",
            "Of the fastest rank of each run.",
            Query(f"max by (project, run) (rate(training_steps_total{RUN}{RATE}))", BY_RUN),
            unit=NO_UNIT,
        ),
        state_timeline(
            "Run state",
            "Whether a run does steps.",
            Query(f"max by (project, run) (rate(training_steps_total{RUN}{RATE})) > bool 0", BY_RUN),
            states={"0": ("no steps", "orange"), "1": ("training", "green")},
        ),
        table(
            "Findings",
            "Problems that stepscope has found in the runs.",
            f"stepscope_finding_active{RUN} == 1",
            ("run", "kind", "severity"),
            width=8,
        ),
    )


def _host() -> tuple[Panel, ...]:
    return (
        time_series(
            "Processors of the host",
            "Share of processor time in use.",
            Query(f"stepscope_system_cpu_ratio{HOST}", "{{host}}"),
            unit="percentunit",
            highest=1,
        ),
        time_series(
            "Memory of the host",
            "Memory that a program cannot allocate.",
            Query(f"stepscope_system_memory_used_bytes{HOST}", "{{host}}"),
            unit="bytes",
        ),
    )


def _progress() -> tuple[Panel, ...]:
    return (
        time_series(
            "Progress",
            "Steps done as a share of the total, where the total is known.",
            Query(f"stepscope_training_progress_ratio{RUN}", BY_RUN),
            unit="percentunit",
            highest=1,
        ),
        time_series(
            "Time left",
            "Until the last step, at the present speed.",
            Query(f"stepscope_eta_seconds{RUN}", BY_RUN),
            unit="s",
        ),
        time_series("Epoch", "Current epoch.", Query(f"training_epoch{RUN}", BY_RUN), unit=NO_UNIT),
        time_series(
            "Samples per second",
            "Of all ranks of a run together.",
            Query(f"sum by (project, run) (rate(stepscope_samples_total{RUN}{RATE}))", BY_RUN),
            unit=NO_UNIT,
        ),
        time_series(
            "Tokens per second",
            "Of all ranks of a run together.",
            Query(f"sum by (project, run) (rate(stepscope_tokens_total{RUN}{RATE}))", BY_RUN),
            unit=NO_UNIT,
        ),
        time_series(
            "Overhead of recording",
            "Share of the training thread's time.",
            Query(f"rate(stepscope_overhead_seconds_total{RUN}{RATE})", BY_RANK),
            unit="percentunit",
        ),
        table(
            "Runs",
            "What is known of each run; its id leads to its page.",
            f"stepscope_run_info{RUN}",
            ("run_id", "project", "run", "framework", "precision", "world_size"),
            link=f"${{{PAGE}}}/run/${{__value.raw}}",
            width=24,
        ),
    )


def distributed() -> Dashboard:
    """The ranks of a distributed training beside each other."""
    return Dashboard(
        "stepscope-distributed",
        "stepscope: distributed training",
        "Steps, step times, phases and memory of each rank of a training.",
        OF_RUNS,
        (
            Row("Ranks", _ranks()),
            Row("Phases", (_phases("project, run, rank", BY_RANK + " {{phase}}", width=24),)),
            Row("Processes", _processes(), is_collapsed=True),
        ),
        MARKS,
    )


def _ranks() -> tuple[Panel, ...]:
    return (
        time_series(
            "Steps behind the foremost rank",
            "A rank that stays behind delays all others.",
            Query(f"stepscope_rank_lag_steps{RUN}", BY_RANK),
            unit=NO_UNIT,
        ),
        time_series(
            "Median step duration by rank",
            "Ranks that wait for each other take equally long; the phases show which one works.",
            Query(_quantile(0.5, "run, rank"), BY_RANK),
            unit="s",
        ),
        time_series(
            "95% step duration by rank",
            "95% of the steps of a rank took no longer.",
            Query(_quantile(0.95, "run, rank"), BY_RANK),
            unit="s",
        ),
        time_series(
            "Loss by rank",
            "Each rank has the loss of its own batches.",
            Query(f"training_loss{RUN}", BY_RANK),
            unit=NO_UNIT,
        ),
        time_series(
            "Gradient norm by rank",
            "Global L2 norm before clipping; equal on all ranks after gradients were exchanged.",
            Query(f"gradient_norm{RUN}", BY_RANK),
            unit=NO_UNIT,
        ),
        state_timeline(
            "Ranks that do steps",
            "A rank without steps has stopped, or waits for another.",
            Query(f"rate(training_steps_total{RUN}{RATE}) > bool 0", BY_RANK),
            states={"0": ("no steps", "orange"), "1": ("training", "green")},
        ),
    )


def _processes() -> tuple[Panel, ...]:
    return (
        time_series(
            "Memory allocated by PyTorch",
            "Memory that the allocator has given to tensors, in MiB.",
            Query(f"memory_allocation_mb{RUN}", BY_RANK),
            unit="mbytes",
        ),
        time_series(
            "Memory reserved by PyTorch",
            "Memory that the allocator holds, in use or not.",
            Query(f"stepscope_torch_memory_reserved_bytes{RUN}", BY_RANK),
            unit="bytes",
        ),
        time_series(
            "Memory of the processes",
            "Memory of each training process, shared memory included.",
            Query(f"stepscope_process_resident_bytes{RUN}", BY_RANK),
            unit="bytes",
        ),
        time_series(
            "Processor time of the processes",
            "100% is one whole core.",
            Query(f"stepscope_process_cpu_ratio{RUN}", BY_RANK),
            unit="percentunit",
        ),
        time_series(
            "Batches ready in the data loader",
            "None at the end of a step means that the training waits for data.",
            Query(f"stepscope_dataloader_queue_depth{RUN}", BY_RANK),
            unit=NO_UNIT,
        ),
        time_series(
            "Records lost",
            "Records that could not be written, or were damaged, in the time between two points.",
            Query(f"increase(stepscope_points_dropped_total{RUN}{RATE})", BY_RANK),
            unit=NO_UNIT,
        ),
    )
