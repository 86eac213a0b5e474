"""Bridge to jax_privacy 2.0: its strategies and samplers, our certificates, our noise in JAX.

It needs the extra `mmcc[jax]` and Python 3.11.  Nothing here imports jax before it is used.
"""

from mmcc.bridge.jax_privacy._noise import noising_matrix, privatizer
from mmcc.bridge.jax_privacy._plans import PlannedMechanism, mechanism_from
from mmcc.bridge.jax_privacy._samplers import scheme_from, scheme_to
from mmcc.bridge.jax_privacy._strategies import strategy_from, strategy_to

__all__ = (
    "PlannedMechanism",
    "mechanism_from",
    "noising_matrix",
    "privatizer",
    "scheme_from",
    "scheme_to",
    "strategy_from",
    "strategy_to",
)
