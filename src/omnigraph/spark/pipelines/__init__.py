"""The DataFrames of pipelines: sources, views, and the rows of targets."""
