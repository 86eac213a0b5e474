"""Lets `python -m mmcc` run the command `mmcc`."""

import sys

from mmcc._cli.app import main

sys.exit(main())
