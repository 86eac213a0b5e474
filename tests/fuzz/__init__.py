"""Fuzzing of everything that is read: matrix files, ledgers, checkpoints, command-line words.

`PYTHONPATH=tests python -m fuzz FORMAT --inputs 100000 --seed 0`; docs/fuzzing.md says what counts
as a failure and what is real.
"""
