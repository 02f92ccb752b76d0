"""The checks of `doctor` and `config validate`."""
