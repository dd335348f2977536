"""Who answers in the place of the hub: the login page of a network, or a proxy. Each request gets the same reply."""

from http.server import BaseHTTPRequestHandler

from loopback_server import LoopbackServer

REPLIES = {
    "a login page": b"<html>log in</html>",
    "a list": b"[]",
    "null": b"null",
    "deep JSON": b"[" * 100_000,
    "a number too large": b"1" * 6_000,
    "an empty object": b"{}",
    "a file with odd sizes": b'{"id": "a/b", "siblings": [{"rfilename": "model.safetensors", "size": "large"}]}',
    "a file without a name": b'{"id": "a/b", "siblings": [{"rfilename": 7}]}',
    "no commit": b'{"id": "a/b", "siblings": [{"rfilename": "model.safetensors", "size": 5}]}',
}


class NoHub(LoopbackServer):
    """Answers every request with `reply`."""

    def __init__(self, reply):
        self.reply = reply
        super().__init__()

    def _handler(server):  # noqa: N805 - `self` is the handler below
        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self):
                self.do_GET()

            def do_POST(self):
                self.do_GET()

            def do_GET(self):
                self.rfile.read(int(self.headers["Content-Length"] or 0))
                self.send_response(200)
                self.end_headers()
                self.wfile.write(server.reply if self.command != "HEAD" else b"")

            def log_message(self, *_):
                pass

        return Handler
