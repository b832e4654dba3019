"""Pages of the documentation that are written from results: one writer for experiments and benchmarks.

A page is a template, which is a Markdown file with `$names` (template.py), and a function that computes the values of
these names from results. numbers.py writes numbers, markdown.py tables and folded parts. A page has the answer first,
then what it means, then how it was measured; runs, versions and settings are folded at its end.
"""
