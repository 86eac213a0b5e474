"""The model zoo: what people train, what goes wrong with it, and private runs beside an oracle."""
