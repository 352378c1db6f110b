"""How plans are computed: Arrow kernels for what is small, relational engines for what is not."""
