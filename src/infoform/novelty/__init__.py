"""Is an input unlike the training data: what a fit has seen of every layer's inputs, and how strange an input looks.

pooled inputs of every layer -> moments -> sparse Gaussians -> log distances -> parts -> p-values -> novelty
   pooled.py                moments.py     sparse_gaussian.py   known_inputs.py  parts/     calibration.py
"""
