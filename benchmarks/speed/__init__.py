"""How long fits, samples and new priors take, and how much memory, beside a plain gradient pass and beside peers.

    OMP_WAIT_POLICY=PASSIVE python -m benchmarks.speed              # writes benchmarks/results/speed.json
    OMP_WAIT_POLICY=PASSIVE python -m benchmarks.speed --missing    # goes on with an interrupted run
    python -m benchmarks.speed --page                               # writes docs/speed.md from it, runs nothing
    python -m benchmarks.speed --quick                              # all of it on tiny networks, into out/speed

Run it from the root of the repository, in an environment that has infoform and the extra `peers`; a peer that is not
there is left out, and said so. To measure another variant of ours, add one line to `OURS` in methods.py.
"""
