"""Verified groups of peers as a data set: exported with the signed bytes, and verified again anywhere."""
