"""Access to Lance datasets: addresses, file names, filters, errors."""
