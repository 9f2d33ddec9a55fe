"""The busy engine of ``benchmarks.check``: prints its URL, and serves until it is ended."""

import http.server
import itertools

from benchmarks.vllm_pages import vllm_page

_TURNS = itertools.count(1)


class _Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        page = vllm_page(1, turn=next(_TURNS))
        self.send_response(200)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_: object) -> None:
        return


def main() -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
