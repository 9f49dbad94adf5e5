"""The fair lock: one holder at a time, in the order in which threads asked."""

import threading
import time
from collections.abc import Callable

import pytest

from regard.fair_lock import FairLock


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "the condition did not come true"
        time.sleep(0.001)


def queue_up(lock: FairLock, names: str, order: list[str]) -> list[threading.Thread]:
    """Threads that ask for the lock one after another, while somebody holds it."""

    def use(name: str) -> None:
        with lock:
            order.append(name)

    threads = []
    for count, name in enumerate(names, 1):
        threads.append(threading.Thread(target=use, args=(name,)))
        threads[-1].start()
        wait_for(lambda count=count: len(lock._waiting) == count)
    return threads


def join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_waiters_get_the_lock_in_their_order() -> None:
    lock, order = FairLock(), []
    with lock:
        threads = queue_up(lock, "abcdef", order)
        assert not order
    join(threads)
    assert order == [*"abcdef"]


def test_a_thread_that_asks_again_waits_for_the_others() -> None:
    """As a scheduler does between two steps."""
    lock, order = FairLock(), []
    with lock:
        threads = queue_up(lock, "ab", order)
    for _ in range(3):
        with lock:
            order.append("main")
    join(threads)
    assert order == ["a", "b", "main", "main", "main"]


def test_one_thread_holds_the_lock_at_a_time() -> None:
    lock, count, inside, most = FairLock(), 0, 0, 0

    def work() -> None:
        nonlocal count, inside, most
        for _ in range(200):
            with lock:
                inside += 1
                most = max(most, inside)
                value = count
                time.sleep(0)  # lets another thread run
                count = value + 1
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    join(threads)
    assert (count, most) == (1600, 1)


def test_an_error_releases_the_lock() -> None:
    lock = FairLock()
    with pytest.raises(ZeroDivisionError), lock:
        raise ZeroDivisionError
    with lock:
        pass
