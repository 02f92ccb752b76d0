"""Inside training: TrainingMonitor, what it records and where, how a process ended."""
