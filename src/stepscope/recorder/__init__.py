"""The part that runs inside the training: TrainingMonitor, what it records, and how the process ended."""
