"""
Compute slowed by communication: kernels share a GPU's SMs and its memory.

A communication kernel holds its SMs from the moment it arrives, waiting or not, until it ends.
While it does, compute on that GPU progresses at the share of what limits it that is left:

- limited by arithmetic: (SMs - SMs held) / SMs;
- limited by memory: (bandwidth - what the kernels move) / bandwidth, for the ops that move their
  known bytes in more than half of their time at full bandwidth.

No share falls below a tenth. Power, caches and the launch order are not modelled.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import numpy as np

from commsim.arrays import Bools
from commsim.cluster import Cluster
from commsim.engine.clock import Clock
from commsim.engine.phase_facts import duration_of
from commsim.graph import Device, Graph
from commsim.libraries import Plan

__all__ = ["PS", "Sharing", "is_in_memory"]

_LEAST = 0.1  # share of a GPU that compute keeps whatever communicates
_MEMORY_BOUND = 0.5  # share of an op's time in which its bytes would pass at full bandwidth
PS = 1e12


def is_in_memory(graph: Graph, cluster: Cluster) -> Bools:
    """Return per op whether its bytes of memory take most of its time."""
    gpus = [cluster.gpu(rank) for rank in graph.lane_rank.tolist()]
    bandwidth = np.array([gpu.memory_bandwidth or np.inf for gpu in gpus])
    by_memory = graph.traffic / bandwidth[graph.lane] * PS
    found: Bools = by_memory > _MEMORY_BOUND * graph.duration
    return found


class _Job:
    """One compute op under way: ps of undisturbed work left at `settled`, and its speed."""

    __slots__ = ("alarm", "done", "in_memory", "left", "op", "settled", "speed")

    def __init__(
        self,
        op: int,
        duration: int,
        done: Callable[[Any], None],
        in_memory: bool,
        now: int,
    ) -> None:
        self.op, self.done, self.in_memory = op, done, in_memory
        self.left, self.settled, self.speed, self.alarm = float(duration), now, 1.0, 0


class _Gpu(msgspec.Struct):
    """What a lane's GPU has, what is taken of it (by op), and what computes on it."""

    sms: int
    bandwidth: float
    pace: float = 1.0
    taken: dict[int, tuple[float, float]] = msgspec.field(default_factory=dict)
    jobs: dict[int, _Job] = msgspec.field(default_factory=dict)

    def speed(self, *, in_memory: bool) -> float:
        """Return the share of its speed that compute keeps."""
        if not self.taken:
            return self.pace
        lost = sum([share[in_memory] for share in self.taken.values()])
        return self.pace * max(1.0 - lost, _LEAST)


class Sharing:
    """Runs the compute ops of all lanes, each as fast as communication leaves it."""

    def __init__(self, env: Clock, graph: Graph, cluster: Cluster) -> None:
        self._env = env
        self._lane: list[int] = graph.lane.tolist()
        self._on_gpu: list[bool] = (graph.device == Device.CUDA).tolist()
        gpus = [cluster.gpu(rank) for rank in graph.lane_rank.tolist()]
        self._gpus = [_Gpu(gpu.sm_count, gpu.memory_bandwidth) for gpu in gpus]
        self._in_memory: list[bool] = is_in_memory(graph, cluster).tolist()
        self._moved: dict[Plan, float] = {}  # bytes of memory per second, by plan

    def work(self, op: int, duration: int, done: Callable[[Any], None]) -> None:
        """Call `done` when `duration` ps of undisturbed work are done."""
        if not self._on_gpu[op]:
            self._env.call(done, duration)
            return
        gpu, env = self._gpus[self._lane[op]], self._env
        job = gpu.jobs[op] = _Job(op, duration, done, self._in_memory[op], env.now)
        if gpu.taken or gpu.pace != 1.0:
            job.speed = gpu.speed(in_memory=job.in_memory)
            self._set_alarm(gpu, job)
        else:
            env.call(partial(_ring, gpu, job, 0), duration)

    def take(self, op: int, plan: Plan) -> None:
        """Reserve the SMs and bandwidth that a communication op's plan needs of its lane's GPU."""
        gpu = self._gpus[self._lane[op]]
        if not plan.sms or not gpu.sms:
            return
        moved = self._moved.get(plan)
        if moved is None:
            moved = self._moved[plan] = plan.touched / plan.idle * PS if plan.idle else 0.0
        share = moved / gpu.bandwidth if gpu.bandwidth else 0.0
        gpu.taken[op] = (plan.sms / gpu.sms, share)
        if gpu.jobs:
            self._adjust(gpu)

    def set_pace(self, lane: int, pace: float) -> None:
        """Let a lane's GPU go at `pace` times its speed from now on."""
        self._gpus[lane].pace = pace
        self._adjust(self._gpus[lane])

    def give_back(self, op: int) -> None:
        """Return what a communication op reserved."""
        gpu = self._gpus[self._lane[op]]
        if gpu.taken and gpu.taken.pop(op, None) is not None and gpu.jobs:
            self._adjust(gpu)

    def _adjust(self, gpu: _Gpu) -> None:
        """Account for work done at the old speeds, and continue at the new ones."""
        now = self._env.now
        for job in gpu.jobs.values():
            speed = gpu.speed(in_memory=job.in_memory)
            if speed != job.speed:
                job.left = max(job.left - (now - job.settled) * job.speed, 0.0)
                job.settled, job.speed = now, speed
                self._set_alarm(gpu, job)

    def _set_alarm(self, gpu: _Gpu, job: _Job) -> None:
        """Wake when the job will be done; a newer alarm makes the older ones stale."""
        job.alarm += 1
        wait = duration_of(job.left, job.speed)
        self._env.call(partial(_ring, gpu, job, job.alarm), wait)


def _ring(gpu: _Gpu, job: _Job, alarm: int, _: object) -> None:
    if alarm == job.alarm:
        del gpu.jobs[job.op]
        job.done(None)
