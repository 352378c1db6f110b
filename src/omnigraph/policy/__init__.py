"""Access control: policy bundles of rules, evaluated by Cedar."""
