"""How results look in terminals and notebooks."""
