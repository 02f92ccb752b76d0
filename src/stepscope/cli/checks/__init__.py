"""What `doctor` and `config validate` check."""
