"""Programs that measure the node, beside the packages: a checkout has them, the wheel does not.

Each is run from the root of the repository and has `--help`:

    python -m research.poison_search    search for the strongest poison that passes the filters
    python -m research.gossip_cost      estimate the cost of gossip in a large swarm
    python -m research.soak             run a swarm under faults for hours
    python -m research.policies         build the policies that some experiments and scenarios begin with
    python -m research.seed             build the seed policy of the package, and measure it

No package imports them. `make test` does not run their tests: `pytest research/tests` does.
"""
