"""To and from dp_accounting's privacy loss distributions; needs the extra `mmcc[bridge]`."""

from mmcc.bridge.crossing import from_dp_accounting, to_dp_accounting
from mmcc.bridge.gridded import GridDistribution

__all__ = ("GridDistribution", "from_dp_accounting", "to_dp_accounting")
