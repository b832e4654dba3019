"""What infoform does, on digits and on a toy regression; run by `make demo`."""
