"""Conversion to and from dp_accounting's distributions; needs the extra `mmcc[bridge]`."""

from mmcc.accounting._losses.gridded import GridDistribution
from mmcc.bridge._crossing import from_dp_accounting, to_dp_accounting

__all__ = ("GridDistribution", "from_dp_accounting", "to_dp_accounting")
