"""`python -m mmcc` is the command `mmcc`."""

import sys

from mmcc.cli import main

sys.exit(main())
