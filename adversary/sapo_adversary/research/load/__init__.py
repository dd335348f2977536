"""Load on a live node: locust in front, publishers with keys of their own behind it, and what arrived in between."""
