"""The system prompt. Every answerer gets it with the task's prompt: model, endpoint, program or person."""

SYSTEM = (
    "Answer the question. You may think first; then give only the final answer between <answer> and </answer> tags."
)
