"""The live page of `veilmq ingest dashboard`: one process looks, any number of browsers watch.

Everything comes from this process, nothing from elsewhere: the page works without the Internet. The page has no
login. It listens on loopback unless told otherwise, and then refuses names other than this machine's, so that a
foreign page cannot read the figures through the visitor's browser. `board` chooses the content, `html` draws it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from datetime import datetime
from html import escape
from pathlib import Path

from nicegui import app, ui
from starlette.middleware.trustedhost import TrustedHostMiddleware

from spark_ingest.dashboard.board import Board
from spark_ingest.dashboard.feed import Scraper, SpoolFeed
from spark_ingest.dashboard.html import TITLES, cards
from spark_ingest.errors import BadOption, IngestError
from spark_ingest.secrets import read_grants

LOOK_S = 2.0
LOOPBACK = ("127.0.0.1", "localhost")
CSS = Path(__file__).with_name("dashboard.css")
_log = logging.getLogger(__name__)


class PageWatch:
    """The looking: every LOOK_S seconds, in a thread, whether somebody watches or not."""

    def __init__(self, feed: SpoolFeed, scraper: Scraper, board: Board) -> None:
        self._feed, self._scraper, self._board = feed, scraper, board
        self._task: asyncio.Task[None] | None = None
        self.cards = dict.fromkeys(TITLES, "")
        self.status = "looking for the first time"

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._look_repeatedly(), name="looks")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._scraper.close()

    async def _look_repeatedly(self) -> None:
        while True:
            try:
                await self._once()
            except Exception as error:  # noqa: BLE001  a look that fails may not end the page
                _log.exception("a look failed")
                self.status = f'<span class="trouble">a look failed: {escape(str(error)[:200])}</span>'
            await asyncio.sleep(LOOK_S)

    async def _once(self) -> None:
        look, scrapes = await asyncio.gather(
            asyncio.to_thread(self._feed.next_look), asyncio.to_thread(self._scraper.scrape)
        )
        now = time.time()
        self._board.take_look(look, now)
        self._board.scraped(scrapes)
        shown = self._board.shown_figures()
        self.cards = cards(shown, now)
        told = f"Looked at {datetime.fromtimestamp(now).astimezone():%H:%M:%S}"
        self.status = f'{told}. <span class="trouble">{escape(shown.trouble)}</span>' if shown.trouble else f"{told}."


def page(watch: PageWatch) -> None:
    """A browser's page; its timer writes what has changed."""
    ui.add_css(CSS)
    dark = ui.dark_mode(None)
    with ui.element("main").classes("veil"):
        with ui.element("header"):
            ui.html("<h1>VeilMQ ingest</h1>", sanitize=False)
            button = ui.element("button").props('type="button"')
            button.on("click", lambda: dark.set_value(not dark.value))
            with button:
                ui.html("Dark or light", sanitize=False, tag="span")
        status = ui.html(watch.status, sanitize=False, tag="p").classes("status").props('role="status"')
        shown = {}
        with ui.element("div").classes("grid"):
            for name, title in TITLES.items():
                with ui.element("section").classes(name).props(f'aria-label="{title}"'):
                    ui.html(title, sanitize=False, tag="h2")
                    shown[name] = ui.html(watch.cards[name], sanitize=False)

    def update() -> None:
        status.set_content(watch.status)
        for name, html in shown.items():
            if html.content != watch.cards[name]:
                html.set_content(watch.cards[name])

    ui.timer(LOOK_S / 2, update)


def serve(spool: Path, grants: Path, metrics: list[str], bind: str, cap_bytes: int | None) -> int:
    """Until SIGTERM or SIGINT. Raises IngestError for what cannot be used."""
    host, port = _address(bind)
    if not spool.is_dir():
        raise BadOption(f"{spool} is no spool: there is no such directory; name the one that a receiver writes")
    read_grants(grants)
    # Rows that stay closed are on the page.
    logging.getLogger("spark_ingest.opening.rows").setLevel(logging.ERROR)
    watch = PageWatch(SpoolFeed(spool, grants), Scraper(metrics), Board(cap_bytes))
    app.on_startup(watch.start)
    app.on_shutdown(watch.stop)
    if host in LOOPBACK:
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(LOOPBACK))
    else:
        print(f"veilmq: whoever reaches {bind} sees this page; put a proxy that asks for a login before it", flush=True)
    print(f"dashboard: http://{host}:{port}/", flush=True)
    ui.run(
        lambda: page(watch), host=host, port=port, title="VeilMQ ingest", dark=None, reload=False, show=False,
        tailwind=False, show_welcome_message=False, language="en-US", favicon=FAVICON,
    )  # fmt: skip
    return 0


FAVICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect width="16" height="16" rx="3" fill="#1558b0"/>'
    '<path d="M3 4l5 8 5-8" fill="none" stroke="#fff" stroke-width="2"/></svg>'
)


def _address(bind: str) -> tuple[str, int]:
    """Raises BadOption; IngestError for an address that cannot be had."""
    host, _, port = bind.rpartition(":")
    if not host or ":" in host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise BadOption(f"bind={bind!r} is no HOST:PORT; write 127.0.0.1:8090")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, int(port)))
        except OSError as error:
            raise IngestError(f"cannot bind {bind}: {error.strerror or error}; take another --bind") from None
    return host, int(port)
