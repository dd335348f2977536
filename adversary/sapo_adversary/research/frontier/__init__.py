"""The strongest poison that passes the gates: how much of it an attacker who knows the gates can teach.

`search` varies the options of an attack, `victim` measures one try, `play` runs all, `plot` draws them. Imports
`attacks`, `scoring` and `policies`; the command `frontier` calls `play`.
"""
