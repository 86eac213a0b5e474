"""Claim: the executor changes where work is done and nothing else; a dead worker is no loss."""

from __future__ import annotations

import os
import signal
import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import cache
from multiprocessing import get_context

import numpy as np
import pytest

import mmcc
from mmcc import sampling, strategies
from mmcc._simulation import verify as verdicts
from mmcc._simulation.claims import Claim, Work

pytestmark = pytest.mark.filterwarnings("ignore")  # of distributed and its web server


def cyclic() -> tuple:
    """A dense matrix without structure: every group of examples is analysed on its own."""
    matrix = np.tril(np.random.default_rng(5).random((12, 12))) + 0.5 * np.eye(12)
    return strategies.dense(matrix), sampling.CyclicPoisson(0.3, 3)


@cache
def here() -> tuple[tuple[float, float], mmcc.Estimate]:
    """Both answers without an executor."""
    return bracket(), estimate()


@cache
def blocks_here() -> list:
    """Every block of a verdict, drawn without an executor."""
    return blocks()


def bracket(executor=None) -> tuple[float, float]:
    found = mmcc.bracket(*cyclic(), sigma=6.0, delta=1e-6, method="projection", executor=executor)
    return found.lower, found.upper


def estimate(executor=None, progress=None) -> mmcc.Estimate:
    return mmcc.estimate(
        strategies.continual_counting(12),
        sampling.MinSeparation(0.15, 3),
        sigma=8.0,
        delta=1e-5,
        width=0.02,
        samples=20_000,
        seed=3,
        executor=executor,
        progress=progress,
    )


def blocks(executor=None, progress=None) -> list:
    """Every block of a verdict with given seeds: bets, sums of logarithms and masses."""
    at = {"sigma": 4.0, "epsilon": 1.2, "delta": 1e-3, "failure": 1e-4}
    mechanism = strategies.continual_counting(16), sampling.MinSeparation(0.1, 3)
    claim, work = Claim.about(*mechanism, 1, **at), Work(executor, progress)
    attempt, _ = verdicts._prepared(claim, 1, 5, 6, work)
    verdicts._run(attempt, work, lambda: None)
    assert attempt.passed
    assert len(attempt.states[0].blocks) > 16
    return [(state.trial.bets, state.blocks) for state in attempt.states]


@pytest.mark.slow
def test_a_pool_of_processes_comes_to_the_same_verdict():
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        assert blocks(pool) == blocks_here()


@pytest.mark.parametrize("workers", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_a_pool_of_processes_gives_the_same_numbers(workers):
    with ProcessPoolExecutor(workers) as pool:
        assert (bracket(pool), estimate(pool)) == here()


def test_a_plot_is_the_same_on_a_pool(tmp_path, monkeypatch):
    from mmcc import plots

    monkeypatch.setattr(plots, "POINTS", 3)
    drawn = []
    mechanism = strategies.identity(6), sampling.BallsInBins(3)
    for name, pool in (("here", None), ("pool", ThreadPoolExecutor(2))):
        file = tmp_path / f"{name}.png"
        plots.epsilon_against_sigma(*mechanism, sigma=2.0, delta=1e-4, file=file, executor=pool)
        drawn.append(file.read_bytes())
    assert drawn[0] == drawn[1]


@pytest.fixture
def cluster():
    """A real scheduler and two real worker processes, however long they take to start."""
    import dask
    from distributed import LocalCluster

    patient = dict.fromkeys(("connect", "tcp"), "1800s")
    with (
        warnings.catch_warnings(),
        dask.config.set({"distributed.comm.timeouts": patient}),
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as made,
    ):
        warnings.simplefilter("ignore")
        yield made


@pytest.mark.slow  # once in several runs a future that was lost with its worker never ended
def test_a_dask_cluster_comes_to_the_same_verdict_though_a_worker_is_killed(cluster):
    from distributed import Client

    killed = []
    with Client(cluster) as client:
        client.wait_for_workers(2)

        def kill_one(what: str, done: float) -> None:
            if what.startswith("verify: samples,") and not killed:
                address, pid = next(iter(client.run(os.getpid).items()))
                os.kill(pid, signal.SIGKILL)
                killed.append(address)

        found = blocks(client.get_executor(), kill_one)
    assert killed
    assert found == blocks_here()


def test_a_dask_cluster_gives_the_same_numbers_and_a_killed_worker_is_no_loss(cluster):
    from distributed import Client

    killed = []
    with Client(cluster) as client:
        client.wait_for_workers(2)
        executor = client.get_executor()
        assert (bracket(executor), estimate(executor)) == here()

        def kill_one(what: str, done: float) -> None:
            if what == "estimate: simulated outputs" and not killed:
                address, pid = next(iter(client.run(os.getpid).items()))
                os.kill(pid, signal.SIGKILL)
                killed.append(address)

        found = estimate(executor, progress=kill_one)
    assert killed
    assert found == here()[1]
