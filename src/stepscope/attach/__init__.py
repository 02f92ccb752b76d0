"""Records the steps of a training whose script does not mention stepscope."""
