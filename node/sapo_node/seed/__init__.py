"""The embedded default policy: weak, teachable, made by the project itself from tasks that it generates."""

from pathlib import Path

POLICY_DIR = Path(__file__).parent / "policy"
"""The packaged seed policy, a Hugging Face model directory."""
