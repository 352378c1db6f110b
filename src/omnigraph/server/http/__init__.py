"""HTTP concerns shared by all routes: authentication, admission, errors, streaming."""
