"""Verified groups of peers as a data set: kept with the signed bytes, exported, and verified again anywhere."""
