"""Faults of trainings with two ranks."""

from zoo.case import TORCHRUN, Case

CASES = (
    Case(
        "rank_with_slow_data",
        "data of rank 1 is 30 ms late",
        expects=(("dist.straggler",),),
        advice=("data|loader",),
        names=("rank 1|Rank 1",),
        also=("input.exposed_wait",),
        doses=(0.1, 0.3, 1.0, 3.0),
        launcher=TORCHRUN,
        has_control=True,
    ),
    Case(
        "rank_with_slow_backward",
        "backward of rank 1 is 30 ms longer",
        expects=(("dist.straggler",),),
        advice=("backward|rank",),
        names=("rank 1|Rank 1",),
        doses=(0.1, 0.3, 1.0, 3.0),
        launcher=TORCHRUN,
        has_control=True,
    ),
    Case(
        "replicas_not_synchronised",
        "the module is called instead of the wrapper",
        expects=(("dist.divergence",),),
        advice=("DistributedDataParallel|wrapper|module",),
        launcher=TORCHRUN,
    ),
    Case(
        "needless_search_for_unused",
        "find_unused_parameters without unused ones",
        expects=(("dist.ddp_config",),),
        advice=("find_unused_parameters",),
        launcher=TORCHRUN,
    ),
    Case(
        "same_order_each_epoch",
        "no set_epoch",
        expects=(("data.order",),),
        advice=("set_epoch",),
        launcher=TORCHRUN,
    ),
    Case(
        "rank_that_exits",
        "rank 1 exits at step 80",
        expects=(("status.failed", "status.crashed", "status.killed", "run.stall"),),
        begins=80,
        launcher=TORCHRUN,
    ),
)
