"""Who answers in the place of a model: a real HTTP server on loopback that speaks chat completions, well or badly, and
notes what it was asked; and a program that solves what it can.
"""

import json
import re
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from loopback_server import LoopbackServer

SOLVER = f"""
import json, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from chat_server import work
for line in sys.stdin:
    text = work(json.loads(line)["prompt"])
    print(json.dumps([text] if text else []), flush=True)
"""
"""A program for `contribute --program`."""

_ASKED = re.compile(r"(\d+) ([*+-]) (\d+)")


def solve(prompt):
    """The result of a multiplication or sum in words of the starter swarm; None for any other question."""
    found = _ASKED.search(prompt)
    if found is None:
        return None
    left, sign, right = int(found[1]), found[2], int(found[3])
    return {"*": left * right, "+": left + right, "-": left - right}[sign]


def work(prompt):
    """Its answer as a model gives it that shows its work: from bare results a node with filters learns nothing."""
    found = _ASKED.search(prompt)
    return f"{found[1]}{found[2]}{found[3]}={solve(prompt)}. So <answer>{solve(prompt)}</answer>" if found else ""


def choice(text, finish="stop"):
    return {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}


def reply(*choices):
    """A successful answer: status, headers, body."""
    return 200, {"Content-Type": "application/json"}, json.dumps({"choices": choices}).encode()


def mostly_right(request):
    """Answers as a model does that is right every other time, as many as it is asked for."""
    prompt = request["messages"][-1]["content"]
    texts = [work(prompt) if number % 2 else "It is <answer>unknown</answer>" for number in range(8)]
    return reply(*[choice(text) for text in texts[: request.get("n", 1)]])


class ChatServer(LoopbackServer):
    """Serves in a thread of its own; `behaviour(request)` is (status, headers, body)."""

    def __init__(self, behaviour=mostly_right, tls=None):
        self.behaviour = behaviour
        self.requests = []
        self.headers = []
        self.together = self.most_together = 0
        super().__init__(tls)
        self.url += "/v1"

    def _handler(server):  # noqa: N805 - `self` is the handler below
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                server.requests.append((self.path, request))
                server.headers.append(dict(self.headers))
                server.together += 1
                server.most_together = max(server.most_together, server.together)
                status, headers, body = server.behaviour(request)
                server.together -= 1
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        return Handler
