"""Names that older documents use, each a few lines over the real thing."""
