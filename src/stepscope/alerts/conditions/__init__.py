"""The conditions of alert rules: their language, and the points they are evaluated with."""
