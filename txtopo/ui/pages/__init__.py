"""Pages of runs and ensembles in a browser, with REST, server-sent events and metrics.

It needs the extra ``ui``; what it shows is kept by the board of each run.
"""
