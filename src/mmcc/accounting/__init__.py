"""From a row's law to a guarantee.

Modules in the order of the data: participation, rows (with kernels), grid, compose, pld,
algorithm, solve, guarantee; each imports only what stands before it.
"""
