"""The engine: turns laws of sensitivities into privacy losses on a grid, and composes them."""
