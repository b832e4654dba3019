"""What infoform does, shown on digits and on a toy regression; `make demo` runs it."""
