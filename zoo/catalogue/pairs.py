"""Two faults at once: both must be found, and the one found first must be one of them."""

from zoo.case import Case

CASES = (
    Case(
        "pair_checkpoints_and_evaluation",
        "large checkpoints, long evaluations",
        expects=(("ckpt.stall",), ("eval.dominates",)),
        advice=("save", "eval"),
        also=("ckpt.safety",),
    ),
    Case(
        "pair_early_schedule_and_new_head",
        "schedule ends early, optimizer without the new head",
        expects=(("lr.schedule",), ("opt.not_updating",)),
        advice=("epoch|T_max|scheduler", "optimizer"),
        also=("conv.plateau",),
    ),
    Case(
        "pair_evaluation_mode_and_anomaly_detection",
        "evaluation mode, anomaly detection",
        expects=(("mode.train_eval",), ("cfg.debug_left_on",)),
        advice=("model.train()", "set_detect_anomaly(False)"),
    ),
    Case(
        "pair_slow_dataset_and_logarithm",
        "late data, logarithm of zero from step 100",
        expects=(("num.nonfinite",), ("input.exposed_wait",)),
        advice=("anomaly|clamp|check", "cheaper|num_workers|worker"),
    ),
)
