"""Other tools that watch the same training, each imported only where it is asked for."""
