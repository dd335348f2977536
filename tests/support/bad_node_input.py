"""What people get wrong with `sapo-node`: one command a line, its exit code, and what its error must say.

Files are those of `bad_files.py`; words are regular expressions, all of which must be found, whatever their case.
"""

FRESH = "--network manual --key new/own/node.key --state new/own/state"
NAMES = {
    "fresh": FRESH,
    "relay": f"start --no-train {FRESH}",
    "is-folder": "is a (folder|directory)",
    "no-folder": "(is no|not a) (folder|directory)",
    "no-file": r"(?<!there )is (a|an|no|not an?) ([\w-]+ ){0,2}(pipe|fifo|device|socket|file)\b",
    "no-state": "no state( at| database)",
    "absent": "(no such file|there is no)",
    "no-backup": "(no backup|not a backup|cannot (restore|be used)|damaged)",
    "no-toml": "(utf-8|not valid TOML)",
    "too-large": "(larger than|too (large|long)|more than)",
}
"""What the tables write in braces: the key and the state of a node that has never run; words for one meaning."""

ERRORS = r"""
# The command line itself.
strat                                       | 2 | no such command & strat & did you mean.*start
start --exteral 4                           | 2 | exteral & did you mean.*--external
start now                                   | 2 | unexpected extra argument & now
--verbos status                             | 2 | verbos & did you mean.*--verbose
status --key                                | 2 | --key & requires an argument

# Keys, as every command that needs one reads them.
status --key missing.key                    | 1 | no key file missing.key & keygen --key missing.key
status --key node.key/x                     | 1 | node.key/x & {no-folder}
status --key place                          | 1 | place & {is-folder}
status --key pipe                           | 1 | pipe & {no-file}
status --key socket                         | 1 | socket
status --key /dev/null                      | 1 | /dev/null & {no-file}
status --key dangling                       | 1 | dangling & {absent}|no key|nowhere
status --key loop                           | 1 | loop & symbolic links
status --key readable.key                   | 1 | other users can read readable.key & chmod 600 readable.key
status --key rsa.key                        | 1 | rsa.key & Ed25519
status --key public.key                     | 1 | public.key & private key|damaged
status --key truncated.key                  | 1 | truncated.key is damaged & restore your copy & new node & move it away
status --key empty.key                      | 1 | empty.key is & damaged|empty & restore your copy & move it away
status --key noise.key                      | 1 | noise.key is damaged & restore your copy & move it away
status --key huge.key                       | 1 | huge.key & damaged|{too-large}
status --key locked.key                     | 1 | locked.key & passphrase
status --key {bytes}.key                    | 1 | no key file & keygen
status --key {escape}.key                   | 1 | no key file & keygen
start --no-train --key place                | 1 | place & {is-folder}
start --no-train --key node.key/k           | 1 | node.key & {no-folder}
start --no-train --key /proc/k --state new/own/state | 1 | cannot write the key file /proc/k
start --no-train --key typo/node.key        | 1 | there is no folder typo & make the folder first & another path
start --no-train --key /no/such/folder/k    | 1 | there is no folder /no/such/folder & another path
contribute --program true --key typo/k      | 1 | there is no folder typo & another path
init new/n --key typo/k                     | 1 | there is no folder typo & another path
status --key ~nobody-has-this-name/k        | 1 | no home folder for ~nobody-has-this-name & write the whole path
start --no-train --key dangling             | 1 | dangling
start --no-train --key locked.key --passphrase wrong | 1 | locked.key & passphrase
start --no-train --key locked.key --passphrase-file passphrase.wrong | 1 | locked.key & passphrase
start --no-train --key locked.key --passphrase-file passphrase.readable | 1 | other users can read & chmod
start --no-train --key locked.key --passphrase-file empty | 1 | empty
start --no-train --key locked.key --passphrase-file missing | 1 | missing & {absent}
start --key locked.key --passphrase x --passphrase-file passphrase | 2 | either --passphrase or --passphrase-file
start --no-train --key locked.key --passphrase-file passphrase --state node.key | 1 | node.key & another --state


# keygen
keygen --key node.key                       | 1 | node.key exists & never overwritten & another path
keygen --key place                          | 1 | place & exists|{is-folder}
keygen --key node.key/k                     | 1 | node.key & {no-folder}
keygen --key /proc/k                        | 1 | cannot write the key file /proc/k
keygen --key typo/k                         | 1 | there is no folder typo & make the folder first & another path
keygen --key ~nobody-has-this-name/k        | 1 | no home folder for ~nobody-has-this-name
keygen --key dangling                       | 1 | dangling & exists|link
keygen --passphrase --key new/k             | 1 | passphrase & terminal
keygen new/k                                | 2 | unexpected extra argument

# Tasks
task show chain_summ                        | 1 | no dataset 'chain_summ' & did you mean chain_sum & path of its file
task show nothing-like-it                   | 1 | task list
task show place/own.py                      | 1 | no file place/own.py & Python file
task show chain_sum --seed -1               | 2 | seed
task show chain_sum --levels 256            | 2 | levels & 255
task show chain_sum --config "max = "       | 1 | --config is not valid TOML & --config 'max = 9
task show chain_sum --config "[1]"          | 1 | --config is & max = 9
task show chain_sum --config "min_terms = 9" | 1 | max_terms must be >= min_terms
task show interop_sum                       | 1 | give exactly max = 1 to 1000000
task show chain_sum --swarm interop         | 1 | 'interop' has no task 'chain_sum' & 'interop_sum'
task show own.py --swarm interop            | 1 | own.py & leave out --swarm
task check chain_sum --items 0              | 2 | items

# The swarm, as every command reads it.
manifest nowhere                            | 1 | no manifest 'nowhere' & starter & path of a TOML file
manifest place                              | 1 | place & {is-folder}
manifest pipe                               | 1 | pipe & {no-file}
manifest /dev/zero                          | 1 | /dev/zero & {no-file}
manifest empty                              | 1 | empty & missing
manifest noise                              | 1 | noise & not (valid|a|UTF)|decode
manifest latin.toml                         | 1 | latin.toml & utf-8
manifest mark.toml                          | 1 | mark.toml & byte order mark of UTF-8 & save it as UTF-8
manifest utf-16.toml                        | 1 | utf-16.toml & byte order mark of UTF-16 & save it as UTF-8
manifest utf-16-le.toml                     | 1 | utf-16-le.toml & zero byte & save it as UTF-8
manifest ~nobody-has-this-name/x.toml       | 1 | no home folder for ~nobody-has-this-name
manifest configs/section.toml               | 1 | unknown section 'node'
manifest huge                               | 1 | huge is larger than 65,?536 bytes & manifest
manifest deep.toml                          | 1 | deep.toml is not valid TOML
manifest digits.toml                        | 1 | digits.toml is not valid TOML
manifest configs/range.toml                 | 1 | configs/range.toml & unknown key 'local' & known keys are
manifest manifests/name.toml                | 1 | name & give 1 to 32 of a-z
manifest manifests/version.toml             | 1 | protocol version 1 & this is version 2
manifest manifests/genesis.toml             | 1 | genesis is -1 & whole number from 0
manifest manifests/epoch_seconds.toml       | 1 | epoch_seconds is 1 & from 5 to 86400
manifest manifests/max_rounds.toml          | 1 | max_rounds is 0 & from 1 to 100000
manifest manifests/completions.toml         | 1 | completions is 1 & from 2 to 16
manifest manifests/max_completion_bytes.toml | 1 | max_completion_bytes is 1 & from 16 to 65536
manifest manifests/max_message_bytes.toml   | 1 | max_message_bytes is 4000000 & to 1000000
manifest manifests/shards.toml              | 1 | shards is 33 & from 1 to 32
manifest manifests/reasoning_gym.toml       | 1 | reasoning_gym is a version such as 0.1.25
manifest manifests/predecessor.toml         | 1 | predecessor & 64 hexadecimal
manifest manifests/x.toml                   | 1 | x has more than 256 bytes
manifest manifests/x_type.toml              | 1 | x has the wrong type
manifest manifests/float.toml               | 1 | products & 2.5 is not text, a boolean or an unsigned integer
manifest manifests/weight.toml              | 1 | weight of products is 0 & from 1
manifest manifests/scorer.toml              | 1 | scorer of products is 0 & from 1
manifest manifests/dataset.toml             | 1 | dataset's name has 1 to 64 bytes
manifest manifests/config.toml              | 1 | task 1 & config has the wrong type
manifest manifests/task_key.toml            | 1 | task 1 & unknown key 'weigth' & weight
manifest manifests/type.toml                | 1 | shards has the wrong type
manifest manifests/missing.toml             | 1 | manifests/missing.toml & missing & shards
manifest manifests/unknown.toml             | 1 | unknown key 'shrads' & shards
manifest manifests/twice.toml               | 1 | not valid TOML & line 11 sets again.*shards = 1
manifest manifests/tasks.toml               | 1 | lists 0 tasks & give 1 to 64
manifest starter --encoded /proc/x          | 1 | cannot write /proc/x
manifest starter --encoded missing/x        | 1 | cannot write missing/x
manifest starter --encoded place            | 1 | cannot write place & {is-folder}
manifest starter --encoded node.key/x       | 1 | cannot write node.key/x & {no-folder}
manifest starter --encoded /dev/full        | 1 | cannot write /dev/full & no space
{relay} --swarm manifests/other_gym.toml     | 1 | pip install reasoning-gym==0.0.1
{relay} --swarm manifests/bidi_dataset.toml  | 1 | task 1 & cannot be built

# The configuration, as every command reads it.
config missing.toml                         | 1 | configuration & {absent}
config place                                | 1 | place & {is-folder}
config pipe                                 | 1 | pipe & {no-file}
config /dev/zero                            | 1 | /dev/zero & {no-file}
config huge                                 | 1 | huge & {too-large}
config noise                                | 1 | noise & {no-toml}
config latin.toml                           | 1 | latin.toml & {no-toml}
config deep.toml                            | 1 | deep.toml is not valid TOML
config digits.toml                          | 1 | digits.toml is not valid TOML
config {bytes}.toml                         | 1 | configuration & {absent}
config {bidi}.toml                          | 1 | configuration & {absent}
config configs/broken.toml                  | 1 | configs/broken.toml is not valid TOML
config configs/again.toml                   | 1 | line 3 sets again what was set before: local = 5
config configs/section.toml                 | 1 | configs/section.toml & no section \[node\]
config configs/mark.toml                    | 1 | configs/mark.toml & byte order mark of UTF-8 & save it as UTF-8
config configs/crlf_mark.toml               | 1 | byte order mark of UTF-8
config configs/zero.toml                    | 1 | zero byte in line 2
config utf-16.toml                          | 1 | byte order mark of UTF-16
config utf-32.toml                          | 1 | byte order mark of UTF-32
config configs/tilde.toml                   | 1 | no home folder for ~nobody-has-this-name
config ~nobody-has-this-name/n.toml         | 1 | no home folder for ~nobody-has-this-name
config configs/unknown.toml                 | 1 | unknown key 'extrenal' & did you mean 'external'
config configs/alien.toml                   | 1 | unknown key 'qqqq' & sapo-node config
config configs/red.toml                     | 1 | unknown key & sapo-node config
config configs/type.toml                    | 1 | local is .* & a whole number from 1 to 16
config configs/list.toml                    | 1 | trusted is .* & a list of strings
config configs/numbers.toml                 | 1 | listen is .* & a list of strings
config configs/yes.toml                     | 1 | sandbox is .* & true or false
config configs/range.toml                   | 1 | local is 0 & whole number from 1 to 16
config configs/rate.toml                    | 1 | learning_rate is nan & above 0
config configs/filters.toml                   | 1 | filters is .*'nonsense' & give some of & n-gram
config configs/choice.toml                  | 1 | external_objective is 'none' & positive-only
config configs/peer.toml                    | 1 | '12D3KooWnonsense' is not & peer id
config configs/base58.toml                  | 1 | '0OIl' is not a peer id & base58
config configs/both.toml                    | 1 | trusted and banned both hold {other} & out of one
config configs/external.toml                | 1 | external is & auto
start --config configs/unknown.toml         | 1 | unknown key 'extrenal' & did you mean 'external'

# The state, as every command reads it.
status --state missing                      | 1 | {no-state} missing & sapo-node start
status --state node.key                     | 1 | node.key & {no-folder}|no state at
status --key other.key                      | 1 | {no-state} & sapo-node start
status --state states/damaged               | 1 | node.sqlite is damaged & restore it from a backup
status --state states/noise                 | 1 | node.sqlite is damaged & restore it from a backup
status --state states/empty                 | 1 | node.sqlite & damaged|empty|older version
status --state states/alien                 | 1 | node.sqlite & not a database of sapo-node
status --state states/folder                | 1 | node.sqlite
start --no-train --state /proc/x            | 1 | cannot use the state folder /proc/x & another --state
start --no-train --state typo/state         | 1 | typo/state & typo does not exist & another --state
start {fresh} --state typo/state            | 1 | cannot use the state folder typo/state & typo does not exist
start --no-train --state ~nobody-has-this-name/x | 1 | no home folder for ~nobody-has-this-name
start --no-train --state node.key           | 1 | cannot use the state folder node.key & another --state
start --no-train                            | 1 | another node is running on & --key or --state
start --no-train --state states/damaged     | 1 | node.sqlite is damaged & restore it from a backup
start --no-train --state states/version     | 1 | another version of sapo-node & use the version that wrote it
start --no-train --state states/folder      | 1 | node.sqlite

# start
{relay} --listen 999.0.0.1:4001       | 1 | --listen '999.0.0.1:4001' is a name & IP address
{relay} --listen 127.0.0.1:{busy}     | 1 | tcp/{busy} is already in use & --listen
{relay} --dashboard :99999            | 1 | dashboard is ':99999' & 8080
{relay} --listen nonsense             | 1 | --listen 'nonsense' is not a usable address & /ip4/0.0.0.0/tcp/4001
{relay} --listen /ip4/127.0.0.1/tcp/{busy} | 1 | tcp/{busy} is already in use & --listen
{relay} --listen /ip4/192.0.2.1/tcp/4001   | 1 | cannot listen on /ip4/192.0.2.1/tcp/4001 & --listen
{relay} --announce nonsense           | 1 | --announce 'nonsense' & ^(?!.*0\.0\.0\.0) & write|others can
{relay} --bootstrap /ip4/1.2.3.4/tcp/1/p2p/12D3KooWx | 1 | cannot be dialled & /p2p/<peer id>
{relay} --bootstrap /ip4/127.0.0.1/tcp/1 | 1 | does not name the peer id & /p2p/<peer id>
{relay} --bootstrap /dnsaddr/a/tcp/1     | 1 | cannot be dialled & /p2p/<peer id>
{relay} --swarm manifests/hinted.toml    | 1 | manifest 'starter', bootstrap: & does not name the peer id
doctor --swarm manifests/hinted.toml     | 1 | manifest 'starter', bootstrap: & does not name the peer id
{relay} --dashboard nonsense          | 1 | dashboard is 'nonsense' & 127.0.0.1:8080 & off
{relay} --dashboard 127.0.0.1:{busy} | 1 | cannot listen on 127.0.0.1:{busy} & --dashboard
start {fresh} --local 0                     | 1 | local is 0 & from 1 to 16
start {fresh} --local four                  | 2 | --local & 'four' & whole number from 1 to 16
start {fresh} --external 257                | 1 | external is 257 & from 0 to 256
start {fresh} --external many               | 2 | --external & whole number & auto
start {fresh} --max-tokens 0                | 1 | max_tokens is 0 & from 1
start {fresh} --local 16 --max-tokens 65536  | 1 | may have 8,388,608 & lower --local or --max-tokens
start {fresh} --examples 9                  | 1 | examples is 9 & from 0 to 8
start {fresh} --examples few                | 2 | --examples & whole number & auto
start {fresh} --lora-layers -1              | 1 | lora_layers is -1 & from 0 to 1024
start {fresh} --thinking hard               | 2 | unexpected extra argument & hard
start {fresh} --rounds 0                    | 2 | --rounds & 0 is not in the range
{relay} --rounds 3                          | 2 | --rounds counts rounds of training & only relays
start {fresh} --dtype float16               | 2 | --dtype & bfloat16
start {fresh} --device gpu                  | 2 | --device & cuda
start {fresh} --model gpt2                  | 1 | gpt2 & owner/name|[a-z-]+/gpt2
start {fresh} --model smollm2               | 1 | smollm2 is not on this machine & sapo-node model fetch smollm2
start {fresh} --model missing.gguf          | 1 | there is no file missing.gguf
start {fresh} --model somebody/tiny         | 1 | somebody/tiny & cannot be downloaded & network

# Models: each starts a learner, which takes seconds; `test_learner_models.py` tries many more.
model eval --base --model somebody/tiny           | 1 | somebody/tiny & cannot be downloaded & network

# init
init node.key                               | 1 | node.key exists & --force
init place                                  | 1 | place & {is-folder}
init dangling --force                       | 1 | dangling & link & new file
init missing/node.toml                      | 1 | missing & {no-folder} & make it
init new/own/n/t                            | 1 | new/own/n is not a folder & make it
init new/n --local 0                        | 1 | local is 0 & from 1 to 16
init new/n --prompts 0                      | 2 | --prompts & 0 is not in the range
init new/n --key {bytes}                    | 1 | key is & not UTF-8
init new/n --swarm nowhere                  | 1 | no manifest 'nowhere'
init new/n --model smollm2                  | 1 | smollm2 is not on this machine & sapo-node model fetch smollm2
init new/n --model missing.gguf             | 1 | there is no file missing.gguf
init new/n --bootstrap nonsense             | 1 | 'nonsense' cannot be dialled & /p2p/<peer id>
init new/n --key readable.key               | 1 | other users can read readable.key & chmod 600
init new/n --state node.key                 | 1 | cannot write to the folder node.key & --state
init new/n --listen nonsense                | 1 | --listen 'nonsense' is not a usable address

# model fetch
model fetch smollm3                               | 1 | no model 'smollm3' & known are smollm2
model fetch smollm2 now                           | 2 | unexpected extra argument & now

# contribute
contribute                                  | 2 | --endpoint with --model & --program & --terminal
contribute --endpoint http://127.0.0.1:1/v1 | 2 | --endpoint with --model
contribute --program true --terminal        | 2 | give either
contribute {fresh} --endpoint ftp://127.0.0.1/v1 --model m | 1 | 'ftp://127.0.0.1/v1' & http://127.0.0.1:8000/v1
contribute {fresh} --endpoint http://[x/v1 --model m       | 1 | 'http://\[x/v1' & http://127.0.0.1:8000/v1
contribute {fresh} --endpoint http:// --model m            | 1 | 'http://' & http://127.0.0.1:8000/v1
contribute {fresh} --endpoint http://127.0.0.1:1/v1 --model m --temperature 3 | 2 | --temperature & 0<=x<=2
contribute {fresh} --program true --max-tokens 0           | 1 | max_tokens is 0
contribute {fresh} --program true --local 17               | 1 | local is 17 & from 1 to 16
contribute {fresh} --program true --rounds 0               | 2 | --rounds
contribute {fresh} --program ./missing                     | 1 | './missing' cannot be found & on PATH
contribute {fresh} --program ./node.key                    | 1 | ./node.key is not executable & chmod \+x
contribute {fresh} --program ./place                       | 1 | ./place is a folder
contribute {fresh} --program "'open"                       | 1 | --program & not a command line & quotation
contribute {fresh} --program "python3 missing.py"          | 1 | status 2: .*can't open file .*missing.py & never
contribute {fresh} --program true --examples 9             | 1 | examples is 9 & from 0 to 8
contribute {fresh} --program true --examples many          | 2 | --examples & 'many' & auto
contribute {fresh} --program true --extra-body {}          | 2 | --extra-body needs --endpoint
contribute {fresh} --endpoint http://127.0.0.1:1 --model m --extra-body '{' | 1 | no JSON object & reasoning_effort
contribute {fresh} --endpoint http://127.0.0.1:1 --model m --extra-body []           | 1 | --extra-body & no JSON object
contribute {fresh} --endpoint http://127.0.0.1:1 --model m --extra-body '{"n": 1}'   | 1 | --extra-body & 'n'
contribute {fresh} --terminal               | 1 | --terminal needs a terminal

# demo
demo --rounds 0                             | 2 | --rounds & x>=1
demo --prompts 0                          | 2 | --prompts & x>=1
demo --model gpt2                           | 1 | gpt2 & owner/name|[a-z-]+/gpt2
demo --swarm nowhere                        | 1 | no manifest 'nowhere'

# init
init --dry-run --prompts 0                           | 2 | --prompts & x>=1
init --dry-run --model gpt2                          | 1 | gpt2 & owner/name|[a-z-]+/gpt2
init --dry-run --model mixed                         | 1 | mixed & no usable causal language model
init --dry-run --examples 9                          | 1 | examples is 9 & from 0 to 8
init --dry-run --swarm nowhere                       | 1 | no manifest 'nowhere'
init --dry-run --swarm manifests/plugin.toml         | 1 | task & another package defines & install
init --dry-run --prompts 1 --max-tokens 60000        | 1 | 60000 leaves none for a prompt & give a lower --max-tokens

# status, peers, why
peers 12D3KooWnobody                        | 1 | 12D3KooWnobody & sapo-node peers
peers {other} --state states/judged         | 1 | {other} & sapo-node peers
peers 12D3KooW --state states/judged        | 1 | 3 peers & begin
peers --state missing                       | 1 | {no-state} missing & sapo-node start
why                                         | 2 | missing argument 'ENVELOPE_ID'
why abc                                     | 1 | at least 6 hexadecimal
why abcdef012345                            | 1 | the node knows no envelope abcdef012345
why {bidi}abcdef                            | 1 | hexadecimal
peers --evidence                            | 2 | need a PEER
peers 12D3KooWnobody --evidence             | 1 | 12D3KooWnobody & sapo-node peers
peers {escape} --evidence                   | 1 | no peer & sapo-node peers
peers {peer} --state states/judged --output /proc/x   | 1 | cannot write /proc/x
peers {peer} --state states/judged --output place     | 1 | cannot write place
status --rounds --state missing             | 1 | {no-state} missing & sapo-node start

# Decisions about peers. The states that are there are not written to: a row may only be refused.
peers ban                                         | 2 | missing argument 'PEER'
peers ban 12D3KooWnobody                          | 1 | 12D3KooWnobody & sapo-node peers
peers ban ''                                      | 1 | its beginning or its end & sapo-node peers
peers ban {escape}                                | 1 | no peer begins or ends & sapo-node peers
peers ban {peer}                                   | 1 | this node itself
peers ban {other} --state missing                 | 1 | {no-state} missing & sapo-node start
peers ban {other} --key missing.key               | 1 | no key file missing.key
peers ban {other} --state states/damaged          | 1 | damaged & backup
peers trust 12D3KooW --state states/judged        | 1 | 3 peers & begin
peers trust {peer}                                 | 1 | this node itself
peers unban {other}                               | 1 | {other} is not banned & sapo-node peers
peers untrust {other}                             | 1 | {other} is not trusted & sapo-node peers

# verify
verify                                      | 2 | missing argument 'FILE'
verify missing                              | 1 | missing & {absent}
verify place                                | 1 | place & {is-folder}
verify pipe                                 | 1 | pipe & {no-file}
verify socket                               | 1 | cannot read & socket
verify /dev/zero                            | 1 | /dev/zero & {no-file}
verify huge                                 | 1 | huge & {too-large}
verify message --swarm nowhere              | 1 | no manifest 'nowhere'
verify message --evidence                   | 1 | proves nothing in swarm 'starter'
verify proof --evidence --swarm interop     | 1 | proves nothing in swarm 'interop'
verify noise --evidence                     | 1 | proves nothing

# model
model eval --prompts 0                          | 2 | --prompts & x>=1
model eval --samples 65                           | 2 | --samples & 1<=x<=64
model eval --examples -1                          | 1 | examples is -1 & from 0 to 8
model eval --max-tokens 1.5                       | 2 | --max-tokens & whole number & auto
model eval --model somebody/tiny                  | 1 | belong to seed \(all weights\) & --model seed & start over
model chat --lora 4                               | 1 | belong to seed \(all weights\) & --lora 0 & start over
model eval --key missing.key                      | 1 | no key file missing.key
model eval --state missing                        | 1 | {no-state} missing & sapo-node start
model export                                      | 2 | missing argument 'OUTPUT'
model export place                                | 1 | place exists & name a new folder
model export new/x --adapter-only --push somebody/x | 1 | a folder of this machine & leave out --adapter-only & --push
model export new/x --state missing                | 1 | {no-state} missing & sapo-node start
model export new/x --lora nope                    | 2 | --lora & 'nope' & whole number & auto
model export new/x --lora-layers 2000             | 1 | lora_layers is 2000 & from 0 to 1024
model chat --state missing                        | 1 | {no-state} missing & sapo-node start
model chat --temperature 0                        | 2 | --temperature & 0<x<=2
model chat --temperature nan                      | 2 | --temperature & nan is not a finite number
start --log-to nowhere                      | 2 | --log-to & 'nowhere' is not one of & 'jsonl'
model export new/x --dtype float64                | 2 | --dtype & bfloat16

# state backup
state backup                                      | 2 | missing argument 'OUTPUT'
state backup backup.tar                           | 1 | backup.tar exists & name a new file
state backup place                                | 1 | place exists & name a new file
state backup /dev/full                            | 1 | /dev/full exists & name a new file
state backup missing/x.tar                        | 1 | missing/x.tar & no such (file|folder)|make|there is no
state backup node.key/x.tar                       | 1 | node.key/x.tar|node.key & {no-folder}
state backup /proc/x.tar                          | 1 | /proc/x.tar|/proc & cannot (write|be written)
state backup new/x.tar --key missing.key          | 1 | no key file missing.key
state backup new/x.tar --state missing            | 1 | {no-state} missing & sapo-node start
state backup new/x.tar --state states/damaged     | 1 | damaged
state backup new/x.tar --state states/noise       | 1 | damaged
state backup new/x.tar --state states/alien       | 1 | node.sqlite

# state restore
state restore                                     | 2 | missing argument 'FILE'
state restore backup.tar                          | 1 | holds a state & move it away first
state restore backup.tar --key other.key --state new/state | 1 | {peer} & {other}
state restore backup.tar --state /proc/x          | 1 | /proc/x & another --state|cannot
state restore backup.tar --state node.key         | 1 | node.key & another --state|cannot
state restore backup.tar --state typo/state       | 1 | typo does not exist & another --state
state restore missing.tar --state new/state       | 1 | missing.tar & {absent}
state restore place --state new/state             | 1 | place & {is-folder}
state restore pipe --state new/state              | 1 | pipe & {no-file}
state restore /dev/zero --state new/state         | 1 | /dev/zero & {no-file}|{no-backup}
state restore empty --state new/state             | 1 | empty & {no-backup}
state restore noise --state new/state             | 1 | noise & {no-backup}
state restore huge --state new/state              | 1 | {no-backup}|bytes.* free
state restore truncated.tar --state new/state     | 1 | truncated.tar & {no-backup}
state restore backup.tar.gz --state new/state     | 1 | backup.tar.gz & {no-backup}
state restore alien.tar --state new/state         | 1 | alien.tar is {no-backup}
state restore link.tar --state new/state          | 1 | link.tar is {no-backup}
state restore device.tar --state new/state        | 1 | device.tar is {no-backup}
state restore absolute.tar --state new/state      | 1 | absolute.tar & {no-backup}
state restore parent.tar --state new/state        | 1 | parent.tar & {no-backup}
state restore deep.tar --state new/state          | 1 | deep.tar & {no-backup}
state restore damaged.tar --state new/state       | 1 | damaged.tar & damaged & another backup
state restore version.tar --state new/state       | 1 | version.tar & another version of sapo-node
state restore cats.tar --state new/state          | 1 | cats.tar & {no-backup}


# doctor, where it cannot begin.
doctor --swarm nowhere                      | 1 | no manifest 'nowhere'
doctor --config missing.toml                | 1 | missing.toml & {absent}
doctor --network-off                        | 2 | no such option
"""

REPORTS = r"""
# What a command was asked to look at is bad: it says so where it answers.
verify message.flipped                      | 1 | refused: signature
verify message.truncated                    | 1 | refused
verify message.longer                       | 1 | refused
verify message --swarm interop              | 1 | refused: signature
verify empty                                | 1 | refused
verify noise                                | 1 | refused
verify proof                                | 1 | refused
doctor --config relay.toml --key empty.key --swarm manifests/plugin.toml --listen here | 1 | ✗ key & ✗ listen & ✗ tasks
doctor --config relay.toml --state states/damaged --listen /ip4/127.0.0.1/tcp/{busy} | 1 | ✗ state & damaged & ! listen
"""
