"""The engine: laws of sensitivities become privacy losses on a grid, and are composed."""
