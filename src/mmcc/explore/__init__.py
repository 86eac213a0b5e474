"""The page of `mmcc explore`: change a mechanism's parameters and watch its certified numbers.

    settings -> answers -> figures, texts -> page -> server

It needs dash (`pip install 'mmcc[explore]'`); settings, answers and texts do not.
"""
