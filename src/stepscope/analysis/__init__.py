"""Says why a run is slow or failing: windows of its newest steps, the detectors over them, a verdict."""
