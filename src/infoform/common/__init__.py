"""What every other room may use: checks, progress, files, bytes, random numbers, threads, processes."""
