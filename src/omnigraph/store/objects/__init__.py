"""Objects that are not Lance tables, on local disks and object stores."""
