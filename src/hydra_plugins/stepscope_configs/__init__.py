"""Found by Hydra: adds the configurations of stepscope to the search path of every application."""
