"""Three-way merge of branches, and revert of commits."""
