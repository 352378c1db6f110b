"""The interactive shell: statements, dot commands, completion, highlighting and the prompt."""
