"""What is shown, computed once: commands, pages and reports only draw it."""
