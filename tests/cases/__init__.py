"""What the tests are about: mechanisms, models, ledgers, reports and programs to try mmcc with."""
