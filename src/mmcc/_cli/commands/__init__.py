"""One module a command: parse, ask the library one question, print the answer."""
