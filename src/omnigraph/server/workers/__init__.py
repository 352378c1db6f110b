"""Worker processes: a parent that supervises, workers that read, and writers that commit."""
