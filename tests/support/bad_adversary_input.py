"""What people get wrong with `sapo-adversary`: see `bad_node_input.py`."""

ERRORS = r"""
# The command line itself.
marix                                       | 2 | no such command & marix & did you mean.*matrix
run false-claim --shar .5                   | 2 | --shar & did you mean.*--share
list extra                                  | 2 | unexpected extra argument & extra

# run
run                                         | 2 | missing argument 'SCENARIO'
run false-clam                              | 1 | no scenario '?false-clam & false-claim & TOML file
run missing.toml                            | 1 | missing.toml & no scenario|no text file
run place                                   | 1 | no scenario '?place
run pipe                                    | 1 | no scenario '?pipe
run {bidi}                                  | 1 | no scenario
run latin.toml                              | 1 | latin.toml & {no-toml}
run mark.toml                               | 1 | mark.toml & byte order mark of UTF-8
run utf-16.toml                             | 1 | utf-16.toml & byte order mark of UTF-16
run twice.toml                              | 1 | line 2 sets again what was set before: title
run ~nobody-has-this-name/x.toml            | 1 | no home folder for ~nobody-has-this-name
run false-claim --output typo/results       | 1 | there is no folder typo & another
run false-claim --output ~nobody-has-this-name/x | 1 | no home folder for ~nobody-has-this-name
run deep.toml                               | 1 | deep.toml & not valid TOML|nested
run digits.toml                             | 1 | digits.toml is not valid TOML
run scenarios/broken.toml                   | 1 | scenarios/broken.toml is not valid TOML
run scenarios/empty.toml                    | 1 | empty & lacks & ^(?!.*__init__)
run scenarios/key.toml                      | 1 | extra & harm
run scenarios/attack.toml                   | 1 | no attack 'nonsense' & false-claim
run scenarios/defence.toml                  | 1 | no defence '?nonsense & re-verification
run scenarios/bound.toml                    | 1 | bound & at_least, at_most or both
run scenarios/list.toml                     | 1 | undefended
run scenarios/table.toml                    | 1 | harm
run scenarios/node.toml                     | 1 | nonsense
run scenarios/scenario.toml                 | 1 | scenario
run false-claim --share 0                   | 2 | --share & 0.01<=x<=0.95
run false-claim --share half                | 2 | --share & 'half' is not a valid float
run false-claim --seeds 0                   | 2 | --seeds & not in the range
run false-claim --jobs 0                    | 2 | --jobs & not in the range
run false-claim --engine cluster            | 2 | --engine & local
run false-claim --keys 0                    | 2 | --keys & not in the range
run eclipse --keys 64                       | 1 | each key is a host & leave the number of keys away
run false-claim --without nonsense          | 2 | --without & 'nonsense' is not one of
run hollow --share 0.5                      | 2 | number of attackers of its own & leave --share away
run false-claim --device cuda               | 2 | no language model learns & leave --device away
run false-claim --device gpu                | 2 | --device & cuda
run false-claim --output /proc/x            | 1 | cannot .*/proc/x
run false-claim --output node.key           | 1 | node.key & folder|directory
run false-claim --output missing/node.key --records node.key | 1 | node.key & folder|directory
run false-claim --records /proc/x --output new/x             | 1 | cannot .*/proc/x

# matrix, report
matrix small                                | 2 | 'small' is not one of & quick
matrix --seeds 0                            | 2 | --seeds & not in the range
matrix quick --keys 64                      | 2 | --keys & matrices keys and ablation
matrix keys --keys 0                        | 2 | --keys & not in the range
matrix keys --only false-claim              | 1 | no false-claim & poison-text-adaptive
matrix ablation --only poison-text          | 1 | no poison-text & poison-text-adaptive
matrix models --output new/x              | 1 | new/x/matrix.json & sapo-adversary matrix
matrix quick --output /proc/x             | 1 | cannot .*/proc/x
matrix quick --output node.key            | 1 | node.key & folder|directory
report                                      | 1 | no results/matrix.json & report results/SCENARIO.json
report missing.json                         | 1 | missing.json & sapo-adversary matrix
report place                                | 1 | place & no results|is a directory
report pipe                                 | 1 | pipe & {no-file}
report huge                                 | 1 | huge
report noise                                | 1 | noise & no results|no UTF-8
report empty                                | 1 | empty & no results
report deep.json                            | 1 | deep.json
report list.json                            | 1 | list.json
report other.json                           | 1 | other.json
report results.json --pictures /proc/x                      | 1 | cannot .*/proc/x
report results.json --pictures node.key                     | 1 | node.key & folder|directory
report results.json --pictures new/x --only nonsense        | 1 | no nonsense & poison-text

# experiment
experiment                                  | 2 | missing argument 'NAME'
experiment sapo-tabel                       | 1 | no experiment '?sapo-tabel & sapo-table
experiment sapo-table draw                  | 2 | 'draw' is not one of 'run', 'plot'
experiment sapo-table --seeds 0             | 2 | --seeds & not in the range
experiment sapo-table --arm nonsense        | 1 | nonsense
experiment sapo-table plot --output new/x   | 1 | new/x/sapo_table.json & run|writes
experiment sapo-table --output /proc/x      | 1 | cannot .*/proc/x
experiment sapo-table --records node.key --output new/x | 1 | node.key & folder|directory
experiment scenarios/broken.toml            | 1 | not valid TOML
experiment scenarios/empty.toml             | 1 | empty & lacks & ^(?!.*__init__)
experiment deep.toml                        | 1 | deep.toml & not valid TOML|nested
experiment mark.toml                        | 1 | mark.toml & byte order mark of UTF-8
experiment twice.toml                       | 1 | line 2 sets again what was set before: title
experiment sapo-table --output typo/results | 1 | there is no folder typo
experiment latin.toml                       | 1 | latin.toml & {no-toml}

# load-keys
load-keys --users 0                         | 2 | --users
load-keys --users 100000000                 | 2 | --users & 100000000
load-keys --users five                      | 2 | --users & 'five' is not a valid integer
"""
