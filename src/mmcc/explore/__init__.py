"""The page of `mmcc explore`: move a mechanism's parameters and see its certified numbers move.

    settings -> answers -> figures, texts -> page -> server

Needs dash (`pip install 'mmcc[explore]'`); settings, answers and texts do not.
"""
