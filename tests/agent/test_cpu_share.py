"""Work that costs more rests longer, up to a limit."""

from stepscope.agent.cpu_share import CpuShare


class Clock:
    """Both clocks of a machine that does nothing else."""

    def __init__(self) -> None:
        self.now_s = self.cpu_s = 0.0

    def work(self, seconds: float) -> None:
        self.now_s += seconds
        self.cpu_s += seconds


def made(share: float, max_pause_s: float) -> tuple[CpuShare, Clock]:
    clock = Clock()
    return CpuShare(share, max_pause_s, lambda: clock.now_s, lambda: clock.cpu_s), clock


def rounds_of(share: CpuShare, clock: Clock, work_s: float, round_s: float, rounds: int) -> int:
    """How often the work is done in so many rounds of the agent."""
    done = 0
    for _ in range(rounds):
        if share.is_due:
            done += 1
            with share.measure():
                clock.work(work_s)
        clock.now_s += round_s
    return done


def test_cheap_work_is_done_in_every_round() -> None:
    share, clock = made(0.003, 2.5)
    assert rounds_of(share, clock, 0.0002, 0.5, 100) == 100


def test_expensive_work_keeps_to_its_share() -> None:
    share, clock = made(0.01, 60.0)
    rounds_of(share, clock, 0.02, 0.5, 100)
    before = clock.cpu_s, clock.now_s
    rounds_of(share, clock, 0.02, 0.5, 400)
    assert (clock.cpu_s - before[0]) / (clock.now_s - before[1]) < 0.0105


def test_work_is_never_put_off_for_longer_than_its_limit() -> None:
    share, clock = made(0.001, 2.5)
    assert rounds_of(share, clock, 1.0, 0.5, 100) >= 16
    assert share.pause_s == 2.5
