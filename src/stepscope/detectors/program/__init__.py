"""Problems of what the program does beside training: compiling, saving, evaluating, settings."""
