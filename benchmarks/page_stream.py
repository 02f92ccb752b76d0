"""How far behind the training the clients of the web page are, many at once.

    PYTHONPATH=src python -m benchmarks.page_stream [--clients 50] [--seconds 20] [--steps-per-second 50]
        [--keys 8] [--slow 2]

A training process logs steps through a real monitor, an agent takes them in, a server of its own serves them,
and so many clients follow all keys over sockets. Each point carries the time of its log call; a client
compares it with its clock when the event arrives. `--slow` clients besides never read what they are sent.
Printed: the delay of the oldest point of each message, which is the worst one of them, and of the newest;
whether any client lost a point or got one twice; what the server took.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from stepscope.schema.identity import run_id

BOUND_S = 1.0

TRAINING = """
import sys, time
import stepscope
folder, seconds, rate, keys = sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
with stepscope.TrainingMonitor(run="bench", directory=folder) as monitor:
    begun = time.monotonic()
    step = 0
    while (passed := time.monotonic() - begun) < seconds:
        monitor.log({f"key{number}": float(step) for number in range(keys)}, step=step)
        step += 1
        time.sleep(max(0.0, step / rate - passed))
print(step)
"""


class Client:
    """One page: follows all keys of the run and notes how late each point is."""

    def __init__(self, link: str, keys: int) -> None:
        parts = urlsplit(link)
        self._host, self._port = str(parts.hostname), int(parts.port or 0)
        self._token = parts.query.removeprefix("token=")
        self._keys = ",".join(f"key{number}" for number in range(keys))
        self.oldest_s: list[float] = []
        self.newest_s: list[float] = []
        self.steps: list[int] = []
        self.resyncs = 0
        self.messages = 0

    async def follow(self, *, reads: bool = True) -> None:
        """Reads events until it is cancelled, or sends its question and reads nothing."""
        reader, writer = await asyncio.open_connection(self._host, self._port, limit=1 << 24)
        path = f"/api/v1/stream?run={run_id('default', 'bench')}&keys={self._keys}"
        writer.write(
            f"GET {path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\n"
            f"Authorization: Bearer {self._token}\r\n\r\n".encode()
        )
        event = b""
        try:
            while not reads:
                await asyncio.sleep(1)
            while line := await reader.readline():
                if line.startswith(b"event: "):
                    event = line[7:].strip()
                elif line.startswith(b"data: "):
                    self._take(event, line[6:])
        finally:
            writer.close()

    def _take(self, event: bytes, data: bytes) -> None:
        now = time.time()
        self.messages += 1
        self.resyncs += event == b"resync"
        if event != b"points":
            return
        for series in json.loads(data)["series"]:
            self.oldest_s.append(now - series["times"][0])
            self.newest_s.append(now - series["times"][-1])
            if series["key"] == "key0":
                self.steps += series["steps"]


def main() -> int:
    parser = argparse.ArgumentParser(description="How far behind the clients of the page are.")
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--slow", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--steps-per-second", type=float, default=50.0)
    parser.add_argument("--keys", type=int, default=8)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_measure(options, Path(folder)))


async def _measure(options: argparse.Namespace, folder: Path) -> int:
    seconds, rate, keys = options.seconds, options.steps_per_second, options.keys
    training = _start("-c", TRAINING, str(folder), str(seconds + 6), str(rate), str(keys))
    server = _start("-m", "stepscope", "serve", "--store", str(folder), "--port", "0")
    try:
        assert server.stdout is not None
        link = server.stdout.readline().split()[1]
        while not (folder / "store.sqlite").exists():
            await asyncio.sleep(0.1)
        await asyncio.sleep(2)
        process = psutil.Process(server.pid)
        clients = [Client(link, keys) for _ in range(options.clients)]
        slow = [Client(link, keys) for _ in range(options.slow)]
        tasks = [asyncio.create_task(client.follow()) for client in clients]
        tasks += [asyncio.create_task(client.follow(reads=False)) for client in slow]
        await asyncio.sleep(2)
        for client in clients:
            client.oldest_s.clear()
            client.newest_s.clear()
        before, began_at = sum(process.cpu_times()[:2]), time.monotonic()
        await asyncio.sleep(seconds)
        cpu = (sum(process.cpu_times()[:2]) - before) / (time.monotonic() - began_at)
        resident = process.memory_info().rss
        while training.poll() is None:
            await asyncio.sleep(0.1)
        await asyncio.sleep(2)  # what was logged last is on its way
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return _report(clients, cpu, resident, options)
    finally:
        for child in (training, server):
            child.terminate()
            child.communicate()


def _report(clients: list[Client], cpu: float, resident: int, options: argparse.Namespace) -> int:
    oldest = sorted(delay for client in clients for delay in client.oldest_s)
    newest = sorted(delay for client in clients for delay in client.newest_s)
    lost = sum(len(_gaps(client.steps)) for client in clients)
    twice = sum(len(client.steps) - len(set(client.steps)) for client in clients)
    pace = sum(client.messages for client in clients) / len(clients) / (options.seconds + 4)
    print(
        f"{len(clients)} clients and {options.slow} that never read, {options.keys} keys, "
        f"{options.steps_per_second:g} steps/s, {options.seconds:g} s, {os.cpu_count()} cores"
    )
    for name, delays in (("oldest point of a message", oldest), ("newest point of a message", newest)):
        shares = " ".join(f"p{share} {_at(delays, share):.2f} s" for share in (50, 95, 99))
        print(f"delay of the {name}: {shares} max {delays[-1]:.2f} s")
    print(f"points lost {lost}, sent twice {twice}, resyncs {sum(client.resyncs for client in clients)}")
    print(f"messages {pace:.1f} a second and client; steps for each {_steps(clients)}")
    print(f"server {cpu:.0%} of a core, {resident / 2**20:.0f} MiB")
    met = _at(oldest, 99) <= BOUND_S and lost == twice == 0
    print(f"bound of {BOUND_S:g} s for 99% of messages: {'met' if met else 'MISSED'}")
    return 0 if met else 3


def _gaps(steps: list[int]) -> list[int]:
    """Steps between the first and the last that never came."""
    return sorted(set(range(min(steps), max(steps) + 1)) - set(steps)) if steps else [0]


def _steps(clients: list[Client]) -> str:
    counts = [len(client.steps) for client in clients]
    return f"{min(counts)} to {max(counts)}, median {statistics.median(counts):g}"


def _at(ordered: list[float], share: int) -> float:
    return ordered[min(len(ordered) * share // 100, len(ordered) - 1)]


def _start(*arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True)


if __name__ == "__main__":
    sys.exit(main())
