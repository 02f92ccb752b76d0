"""Adapters, one file per peer: a `Writer` that logs and a `read_series` that reads back.

An adapter runs in its peer's own environment, so it imports that peer and the standard library
and nothing else. A `Writer` is made once, with an empty folder; after `finish` its points must be
durable and readable. A peer whose reader is not loaded with its writer also has `import_reader`,
and one that can log a long series in bulk gives its writer a `fill`.
"""
