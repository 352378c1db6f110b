"""HTTP code that all routes share: authentication, admission control, errors, streaming."""
