"""An HTTP server on loopback that serves in a thread of its own while it is entered."""

import threading
from http.server import ThreadingHTTPServer


class LoopbackServer:
    """Answers at `url`. A subclass makes the class of its handlers in `_handler`."""

    def __init__(self, tls=None):
        """Serves over TLS if a context for it is given."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # a client that refuses the certificate is no error of a test
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        if tls:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
            self.url = f"https://localhost:{self._server.server_port}"

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
