"""A deterministic scheduler: clients run real library code in turns, and a seed determines the order.

All clients are greenlets in one thread. A client runs until its store calls ``pause`` (every store call does, see
``store_for``) or its environment sleeps; then the scheduler chooses which client continues. Time is virtual, and each
client has its own clock, which is skewed and jumps. Nothing depends on the machine's clock, on threads or on the
iteration order of sets, so a seed gives the same interleaving on any machine.

    scheduler = Scheduler(seed=7)
    shared = MemoryStore(clock_ms=scheduler.time_ms)

    def write(client: Client) -> None:
        table = DeltaTable.open(store_for(client, shared), environment=client.environment())
        ...

    scheduler.spawn("writer", write)
    scheduler.run()

Needs the package greenlet. Store calls that the library makes from its own threads cannot be interleaved; they run
without a pause and without faults, so that the run remains deterministic.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Sequence

import greenlet

from deltalog.environment import Environment, RetryPolicy
from deltalog.storage.base import LogStore
from deltalog.testing.stores import Call, Decider, Fault, FaultyStore, SimulatedKill, no_faults

#: How the client that runs next is chosen. ``random``: any client runs next, all with equal probability. ``sticky``:
#: usually the client that made the last step, so that one client makes many steps in a row. ``priority``: the client
#: with the highest random priority; priorities are lowered at a few random steps (the PCT method, which finds bugs that
#: need a few context switches at the right places).
POLICIES = ("random", "sticky", "priority")

START_MS = 1_760_000_000_000


class ScheduleStuckError(Exception):
    """The schedule did not end within the allowed number of steps, because a client loops."""


class SkewedClock:
    """A virtual clock whose offset changes occasionally. ``readings`` contains the times that this clock has
    returned."""

    def __init__(self, true_ms: Callable[[], int], rng: random.Random, *, jump_rate: float = 0.05) -> None:
        self._true_ms = true_ms
        self._random = rng
        self._jump_rate = jump_rate
        self._offset_ms = rng.choice((0, 0, 1, -50, 50, -5_000, 5_000, 3_600_000, -86_400_000))
        self._stuck_ms: int | None = None
        self.readings: list[int] = []

    def __call__(self) -> int:
        if self._random.random() < self._jump_rate:
            kind = self._random.randrange(4)
            self._stuck_ms = None
            if kind == 0:
                self._stuck_ms = self._true_ms() + self._offset_ms
            else:
                self._offset_ms += self._random.choice((-1, 1)) * self._random.choice((1, 100, 10_000, 1_000_000))
        reading = self._true_ms() + self._offset_ms if self._stuck_ms is None else self._stuck_ms
        self.readings.append(reading)
        return reading


class Client:
    """One simulated process."""

    def __init__(self, scheduler: Scheduler, name: str, body: Callable[[Client], None]) -> None:
        self.scheduler = scheduler
        self.name = name
        self.random = random.Random(f"{scheduler.seed}/{name}")
        self.clock = SkewedClock(scheduler.time_ms, random.Random(f"{scheduler.seed}/{name}/clock"))
        self.killed = False
        self.failure: BaseException | None = None
        self.wake_ms = 0
        self._uuid_random = random.Random(f"{scheduler.seed}/{name}/uuid")
        self._body = body
        self.greenlet: greenlet.greenlet = greenlet.greenlet(self._run, parent=scheduler._hub)

    @property
    def done(self) -> bool:
        return bool(self.greenlet.dead)

    def sleep(self, seconds: float) -> None:
        """Let at least the given number of seconds of virtual time pass."""
        self.wake_ms = self.scheduler.time_ms() + int(seconds * 1000)
        self.scheduler.pause(f"sleep {seconds:.3f}")

    def new_uuid(self) -> str:
        return str(uuid.UUID(int=self._uuid_random.getrandbits(128), version=4))

    def environment(self, retry: RetryPolicy | None = None) -> Environment:
        """An environment in which this client has its own clock, UUIDs, sleep and randomness."""
        return Environment(
            clock_ms=self.clock,
            new_uuid=self.new_uuid,
            sleep=self.sleep,
            random=self.random.random,
            retry=retry or RetryPolicy(),
            background=False,
        )

    def _run(self) -> None:
        try:
            self._body(self)
        except SimulatedKill:
            self.killed = True
        except greenlet.GreenletExit:
            self.killed = True
        except BaseException as error:
            self.failure = error


class Scheduler:
    """Runs clients in an order determined by ``seed``.

    ``policy`` is one of POLICIES, or None to let the seed choose. ``choose`` is a function that replaces ``seed`` and
    ``policy``: it receives the names of the clients that can continue and the name of the client that ran last, and
    returns the index of the client that runs next. ``step`` is the number of the current step; ``trace`` has one line
    for each step. ``watchers`` are called after every step.
    """

    def __init__(
        self,
        seed: int,
        *,
        policy: str | None = None,
        choose: Callable[[Sequence[str], str], int] | None = None,
        max_steps: int = 20_000,
    ) -> None:
        self.seed = seed
        self._chooser = choose
        self.random = random.Random(f"{seed}/schedule")
        self.policy = policy or self.random.choice(POLICIES)
        self.max_steps = max_steps
        self.step = 0
        self.trace: list[str] = []
        self.clients: list[Client] = []
        self._alive: list[Client] = []
        self.current: Client | None = None
        self.watchers: list[Callable[[], None]] = []
        self._deferred: list[tuple[str, Callable[[], object]]] = []
        self._now_ms = START_MS
        self._hub = greenlet.getcurrent()
        self._last_name = ""
        self._priorities: dict[str, float] = {}
        self._changes = {self.random.randrange(1, 250) for _ in range(self.random.randrange(1, 6))}

    def time_ms(self) -> int:
        """True virtual time. Each step takes 0 to 3 ms of simulated time; when all clients sleep, the time advances to
        the end of the shortest sleep."""
        return self._now_ms

    def spawn(self, name: str, body: Callable[[Client], None]) -> Client:
        """Add a client, which starts when ``run`` first schedules it."""
        client = Client(self, name, body)
        self.clients.append(client)
        self._alive.append(client)
        self._priorities[name] = self.random.random()
        return client

    def defer(self, label: str, action: Callable[[], object]) -> None:
        """Run ``action`` at a later step that the scheduler chooses, like a request that is still in flight."""
        self._deferred.append((label, action))
        self._priorities[label] = self.random.random()

    def in_client(self) -> bool:
        """Whether the caller runs in the client that is currently scheduled, and not in a thread started by that
        client."""
        current = self.current  # read once: the scheduler may change it while another thread runs this method
        return current is not None and greenlet.getcurrent() is current.greenlet

    def pause(self, label: str) -> None:
        """Let others run. Called by clients; returns when the scheduler next lets the caller run."""
        if not self.in_client():
            return
        self._hub.switch(label)

    def run(self) -> None:
        """Run clients in turns until every client has ended and every deferred action has run.

        Raises ScheduleStuckError after ``max_steps``, and whatever a client's body raised.
        """
        waiting: dict[str, str] = {}
        while True:
            turns = self._turns()
            if not turns:
                break
            self.step += 1
            self._now_ms += self.random.randrange(4)
            if self.step > self.max_steps:
                raise ScheduleStuckError(
                    f"Seed {self.seed}: not done after {self.max_steps} steps. Last steps:\n"
                    + "\n".join(self.trace[-20:])
                )
            turn = self._choose(turns)
            if isinstance(turn, Client):
                self.note(f"{turn.name}: {waiting.pop(turn.name, 'begins')}")
                self.current = turn
                paused_at = turn.greenlet.switch()
                self.current = None
                if not turn.done:
                    waiting[turn.name] = str(paused_at)
                else:
                    self._alive.remove(turn)
                    if turn.failure is not None:
                        raise turn.failure
            else:
                self._deferred.remove(turn)
                self.note(turn[0])
                turn[1]()
            for watch in self.watchers:
                watch()

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        self.trace.append(f"{self.step:5d} {text}")

    def _turns(self) -> Sequence[Client | tuple[str, Callable[[], object]]]:
        awake = [client for client in self._alive if client.wake_ms <= self._now_ms]
        if self._alive and not awake and not self._deferred:
            self._now_ms = min(client.wake_ms for client in self._alive)
            awake = [client for client in self._alive if client.wake_ms <= self._now_ms]
        return [*awake, *self._deferred]

    def _choose(
        self, turns: Sequence[Client | tuple[str, Callable[[], object]]]
    ) -> Client | tuple[str, Callable[[], object]]:
        if self._chooser is not None:
            chosen = turns[self._chooser([_name(turn) for turn in turns], self._last_name)]
            self._last_name = _name(chosen)
            return chosen
        if self.policy == "sticky" and self.random.random() < 0.85:
            for turn in turns:
                if isinstance(turn, Client) and turn.name == self._last_name:
                    return turn
        if self.policy == "priority":
            if self.step in self._changes:
                self._priorities[_name(max(turns, key=self._priority))] = -self.step
            chosen = max(turns, key=self._priority)
        else:
            chosen = self.random.choice(turns)
        self._last_name = _name(chosen)
        return chosen

    def _priority(self, turn: Client | tuple[str, Callable[[], object]]) -> float:
        return self._priorities[_name(turn)]


def _name(turn: Client | tuple[str, Callable[[], object]]) -> str:
    return turn.name if isinstance(turn, Client) else turn[0]


def store_for(client: Client, shared: LogStore, decide: Decider = no_faults) -> FaultyStore:
    """A wrapper of ``shared`` for ``client``: every call is a scheduling point, and ``decide`` chooses the faults.

    Delayed requests take effect at a later step, even if the client is dead by then. Faults appear in the trace.
    """
    scheduler = client.scheduler

    def decide_in_turn(call: Call) -> Fault | None:
        if not scheduler.in_client():
            return None
        fault = decide(call)
        if fault is not None:
            scheduler.note(f"{client.name}: {call} -> {fault.value}")
        return fault

    return FaultyStore(
        shared,
        decide_in_turn,
        before=lambda call: scheduler.pause(str(call)),
        defer=scheduler.defer,
        now=lambda: scheduler.step,
    )
