"""The strongest poison that passes the filters: how much of it an attacker who knows the filters can teach.

`search` varies the options of an attack, `victim` measures one try, `play` runs all, `plot` draws them. Imports
`attacks`, `scoring` and `research.policies`.
"""
