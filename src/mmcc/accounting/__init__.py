"""From a row's law to a guarantee.

Modules in the order of the data: participation, laws (with kernels), grid, rows, compose,
pld, algorithm, guarantee, solve; each imports only what stands before it.
"""
