"""What everybody who answers is told beside the question: a model that learns, an endpoint, a program, a person."""

SYSTEM = (
    "Answer the question. You may think first; then give only the final answer between <answer> and </answer> tags."
)
