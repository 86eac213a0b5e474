"""What stands behind the command line: words into a mechanism, answers into print."""
