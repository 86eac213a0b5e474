"""A guarantee as one page to attach to a model release: HTML or Markdown, with all it assumes.

Needs jinja2 and, for pictures, matplotlib: `pip install 'mmcc[report]'`.  Both are imported when a
page is written.
"""

from mmcc.report._checkpoints import of_checkpoint
from mmcc.report._facts import Report
from mmcc.report._ledgers import of_ledger
from mmcc.report._mechanisms import of_mechanism

__all__ = ("Report", "of_checkpoint", "of_ledger", "of_mechanism")
