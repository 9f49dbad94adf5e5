"""Options of `regard serve`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from regard.options import Positional
from regard.validate import check_fields, check_minimum


@dataclass(frozen=True)
class ServeOptions:
    """Models, network, limits and speed of a server."""

    models: Annotated[tuple[str, ...], Positional] = ()  # model folders or hub names; NAME=FOLDER chooses the name
    host: str = "127.0.0.1"  # address to listen on; 0.0.0.0 for all networks
    port: int = 8000  # port to listen on; 0 takes a free one
    api_key: str | None = None  # key that every request must send; better in the environment, as REGARD_API_KEY
    cors: tuple[str, ...] = ()  # origins of web pages that may call the server: https://example.com, or *
    allow_host: tuple[str, ...] = ()  # further host names under which clients reach the server
    languages: tuple[str, ...] = ()  # two codes: what translation models read and write (default: en de)
    detect: str | None = None  # folder of a classify model that names the language of a text
    speed: Literal["exact", "int8"] = "exact"  # exact = the tokens of float32; int8 = 8-bit weights, faster
    threads: int | None = None  # CPU threads; default: all cores
    reproducible: bool = False  # receipts, and the same bits in any batch also for tasks that do not generate; slower
    max_body_mb: float = 32.0  # megabytes of a request body, uploads included
    max_connections: int = 512  # open connections; further ones get status 503
    max_queue_tokens: int = 65_536  # tokens of all waiting requests of a model; further ones get status 429
    max_batch_tokens: int = 16_384  # tokens of all running requests of a model
    request_timeout: float = 300.0  # seconds from a request to the end of its answer
    header_timeout: float = 10.0  # seconds that a client has to send the headers
    body_timeout: float = 60.0  # seconds that a client has to send the body
    idle_unload: float | None = None  # seconds without a request after which a model leaves the memory
    reload_every: float = 2.0  # seconds between looks for a better checkpoint in the folders; 0 never looks
    drain_timeout: float = 30.0  # seconds that accepted requests have to finish after SIGTERM

    def __post_init__(self) -> None:
        check_minimum(self, 1, "threads", "max_connections", "max_queue_tokens", "max_batch_tokens")
        check_minimum(self, 0, "idle_unload", "reload_every", "drain_timeout")
        check_fields(
            self,
            port=(0 <= self.port < 2**16, "from 0 to 65535"),
            speed=(not self.reproducible or self.speed == "exact", "exact with --reproducible"),
            languages=(len(self.languages) in (0, 2), "two codes, such as en de"),
            api_key=(self.api_key is None or self.api_key.isascii(), "ASCII"),
            max_body_mb=(self.max_body_mb > 0, "above 0"),
            request_timeout=(self.request_timeout > 0, "above 0"),
            header_timeout=(self.header_timeout > 0, "above 0"),
            body_timeout=(self.body_timeout > 0, "above 0"),
        )

    @property
    def max_body(self) -> int:
        """Bytes of a request body."""
        return int(self.max_body_mb * 2**20)
