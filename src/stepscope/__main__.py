"""Runs the command line as `python -m stepscope`."""

import sys

from stepscope.cli.main import main

sys.exit(main())
