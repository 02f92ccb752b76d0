"""What earlier runs of a project reached, and which advice helped them."""
