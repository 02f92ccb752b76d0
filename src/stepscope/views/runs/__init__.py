"""The list of runs and the home page: rows, filters, what needs attention."""
