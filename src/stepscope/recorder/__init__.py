"""Inside training: TrainingMonitor, steps and phases, how a process ended."""
