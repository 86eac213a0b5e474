"""What can be proven about a mechanism: one module or package for each bound."""
