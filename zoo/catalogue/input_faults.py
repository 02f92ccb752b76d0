"""Faults of datasets and loaders."""

from zoo.case import Case

CASES = (
    Case(
        "slow_dataset",
        "each sample sleeps 0.5 ms, no workers",
        expects=(("input.exposed_wait",),),
        advice=("num_workers",),
        doses=(0.1, 0.5, 1.0, 4.0),
        has_control=True,
    ),
    Case(
        "heavy_transform",
        "loops over each sample, no workers",
        expects=(("input.exposed_wait",),),
        advice=("num_workers",),
        doses=(0.1, 0.5, 1.0, 4.0),
        has_control=True,
    ),
    Case(
        "rare_slow_samples",
        "one batch in twenty is late",
        expects=(("input.jitter", "step.outliers"),),
        advice=("worker|prefetch|sample",),
        doses=(0.25, 1.0, 4.0),
    ),
    Case(
        "one_slow_worker",
        "one of two workers is ten times slower",
        expects=(("input.jitter",),),
        advice=("worker",),
        names=("worker 1",),
        also=("input.exposed_wait", "step.outliers"),
        doses=(0.5, 1.0, 4.0),
    ),
    Case(
        "more_workers_than_processors",
        "twelve workers on two processors",
        expects=(("host.oversubscribed", "input.loader_config", "input.exposed_wait"),),
        advice=("fewer|cheaper|num_workers=1",),
        wrong_advice=("num_workers=12", "more workers will help"),
        also=("input.exposed_wait", "host.oversubscribed", "input.loader_config"),
        doses=(0.5, 1.0, 2.0),
    ),
    Case(
        "many_small_files",
        "each sample opens a file for 2 ms",
        expects=(("input.small_files", "input.exposed_wait"),),
        advice=("num_workers|larger",),
        doses=(0.1, 0.5, 1.0, 2.0),
    ),
    Case(
        "padded_to_the_longest",
        "60 tokens are padded to 512",
        expects=(("input.padding",),),
        advice=("length|pad",),
        doses=(0.25, 0.5, 1.0, 2.0),
    ),
    Case("sorted_by_class", "samples sorted by class", expects=(("data.order",),), advice=("shuffle",)),
    Case(
        "workers_restarted_each_epoch",
        "workers start anew every 20 steps",
        expects=(("input.loader_config",),),
        advice=("persistent_workers",),
        also=("input.exposed_wait", "step.outliers"),
        doses=(0.5, 1.0, 2.0),
    ),
    Case(
        "workers_copy_a_list",
        "workers copy a list of 600,000 dictionaries; each step sleeps 12 ms",
        expects=(("hostmem.cow", "hostmem.leak"), ("host.loop_code",)),
        advice=("array",),
        also=("input.exposed_wait",),
    ),
)
