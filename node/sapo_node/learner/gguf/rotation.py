"""Finds the settings of the rotary embedding of a GGUF file.

Llama 3.1 and later slow some frequencies down. The file holds the factor of each frequency, and transformers takes the
settings from which the factors follow. This computes factors from settings, and compares them with those in the file.
"""

import math
from typing import Any

import numpy as np
from gguf.constants import GGMLQuantizationType

from sapo_node.learner.gguf.reader import GgufError, Header

FACTORS = "rope_freqs.weight"
_LOW, _HIGH, _CONTEXT = 1.0, 4.0, 8192
"""The settings of all Llama 3 models: wavelengths from _CONTEXT / _HIGH to _CONTEXT / _LOW are slowed down in part."""
_TOLERANCE = 1e-4
"""Relative error of a factor, which the file holds in float32."""


def rotation(header: Header, *, theta: float, size: int) -> dict[str, Any]:
    """Return the settings for heads of this size. Raises GgufError if the factors in the file follow from none."""
    tensor = header.tensors.get(FACTORS)
    if tensor is None:
        return {"rope_theta": theta}
    if tensor.kind != GGMLQuantizationType.F32 or tensor.shape != (size // 2,):
        raise GgufError(f"the tensor {FACTORS!r} is not {size // 2} numbers in float32")
    factors = np.fromfile(header.path, np.float32, size // 2, offset=tensor.offset)
    factor = float(factors.max())
    if not (factor >= 1 and np.allclose(factors, _llama3(theta, size, factor), rtol=_TOLERANCE, atol=0)):
        raise GgufError("it scales its rotary embedding in another way than Llama 3, which the node does not convert")
    settings = {"factor": factor, "low_freq_factor": _LOW, "high_freq_factor": _HIGH}
    kind = {"rope_type": "llama3", "rope_theta": theta, "original_max_position_embeddings": _CONTEXT}
    return {"rope_parameters": {**kind, **settings}}


def _llama3(theta: float, size: int, factor: float) -> Any:
    """Return the factor of each frequency, as llama.cpp computes it for the file."""
    turns = _CONTEXT / (2 * math.pi) * theta ** -(np.arange(0, size, 2) / size)
    smooth = np.clip((turns - _LOW) / (_HIGH - _LOW), 0, 1)
    return 1 / ((1 - smooth) / factor + smooth)
