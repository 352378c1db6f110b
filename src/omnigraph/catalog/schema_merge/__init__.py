"""Three-way merge of accepted schemas."""
