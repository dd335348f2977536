"""Measures every dataset of the catalogue, and writes the page that lists them."""
