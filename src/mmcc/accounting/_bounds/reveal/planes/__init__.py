"""BLTs with two buffers: the state of the Gaussian chain has two coordinates."""
