"""The process that converts a GGUF file: `python -m sapo_node.learner.from_gguf FILE FOLDER PARENT_PID`.

transformers reads the file. This process writes the model as a folder of safetensors with its tokenizer, under limits
of time and memory. If that fails, it writes one line to stdout that says why.
"""

import resource
import sys
from contextlib import suppress
from pathlib import Path

import torch
from gguf import GGUFReader
from tokenizers import pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from sapo_node.learner.model import hide_kernels
from sapo_node.processes.launch import die_with_parent
from sapo_node.processes.limits import mapped_bytes
from sapo_protocol.errors import LocalError
from sapo_protocol.files import open_regular
from sapo_protocol.printable import line_of

SECONDS = 300
"""Seconds of processor time for a small file. Building a tokenizer with 50,000 merges takes 20 s on a slow core."""
SECONDS_PER_GIB = 600
"""Seconds of processor time for each GiB of the file. A slow core takes 200 s."""
MEMORY = 8 * 2**30
"""Bytes that the process may map, beyond GROWTH for each byte of the file."""
GROWTH = 16
"""Bytes that a byte of the file may become. A number in 4.5 bits becomes 2 bytes, in two copies."""
_ROTATION = "rope_freqs.weight"
_DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16}
"""Format of all matrices of a file -> format of the weights. Every other file becomes float16."""


def main(file: Path, folder: Path, parent: int) -> int:
    """Convert `file` to a model folder. Return the exit status."""
    die_with_parent(parent)
    hide_kernels()  # with this package, transformers would keep some weights quantised
    _limit_resources(file.stat().st_size)
    try:
        write_folder(file, folder)
    except LocalError as error:
        sys.stdout.write(str(error))
    except MemoryError:
        sys.stdout.write("it takes too much memory")
    except Exception as error:  # noqa: BLE001 - the libraries that read the file share no class of errors
        sys.stdout.write(f"transformers cannot read it ({line_of(error)}); copy it again, or give another model")
    else:
        return 0
    return 1


def _limit_resources(size: int) -> None:
    """Limit processor time, memory and the size of written files, for a file of so many bytes."""
    room = MEMORY + GROWTH * size
    _set(resource.RLIMIT_CORE, 0)
    _set(resource.RLIMIT_CPU, SECONDS + SECONDS_PER_GIB * size // 2**30)
    _set(resource.RLIMIT_FSIZE, room)
    with suppress(OSError):  # of a system without /proc
        _set(resource.RLIMIT_AS, mapped_bytes() + room)


def _set(what: int, bound: int) -> None:
    # A system may lack a limit, or have a lower one. Only the soft limit is set.
    with suppress(OSError, ValueError):
        resource.setrlimit(what, (bound, resource.getrlimit(what)[1]))


def write_folder(file: Path, folder: Path) -> None:
    """Write settings, tokenizer and weights to `folder`. Raises LocalError, or any error of transformers."""
    with open_regular(file, "GGUF file") as opened:
        if opened.read(4) != b"GGUF":
            raise LocalError("it does not begin with GGUF, so it is no GGUF file")
    reader = GGUFReader(file)
    if any(tensor.name == _ROTATION for tensor in reader.tensors):
        raise LocalError(
            f"it has the tensor {_ROTATION}, as Llama 3.1 and later, and transformers ignores it; give the model's "
            "folder or its name on the hub"
        )
    formats = {tensor.tensor_type.name for tensor in reader.tensors if len(tensor.shape) > 1}
    dtype = _DTYPES.get(formats.pop(), torch.float16) if len(formats) == 1 else torch.float16
    source = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name, "local_files_only": True}
    tokenizer = PreTrainedTokenizerFast.from_pretrained(**source)
    field = reader.get_field("tokenizer.ggml.pre")
    if field and field.contents() == "smollm":
        # transformers does not know this split, and would join spaces with the digits that follow them.
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    config = AutoConfig.from_pretrained(**source)
    read, found = AutoModelForCausalLM.from_pretrained(**source, config=config, dtype=dtype, output_loading_info=True)
    if missing := found["missing_keys"]:
        raise LocalError(f"it lacks weights that its settings describe: {min(missing)}")
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    # transformers writes no model that it has read from GGUF, so its weights go into a new one.
    model.load_state_dict(read.state_dict(), assign=True)
    model.tie_weights()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])))
