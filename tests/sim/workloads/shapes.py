"""Compression and timestamps of the batches that clients send."""

from typing import TYPE_CHECKING, Any

from tests.sim.options.batch_options import FUTURE_MS, OLD_MS
from tests.sim.workloads.codecs import CODEC_NAMES

if TYPE_CHECKING:
    from random import Random

    from tests.sim.world import World


def shape_of(world: "World", rng: "Random") -> dict[str, Any]:
    """Return the timestamp and the codec of the next batch, as arguments of `encode_batch`."""
    now, options = world.timestamp(), world.options.batches
    if options is None:
        return {"timestamp": now}
    codec = rng.choice(options.codecs) if rng.random() < options.compressed else 0
    if codec:
        world.count(f"batch compressed with {CODEC_NAMES[codec]}")
    age = rng.random()
    if age < options.old:
        world.count("batch with an old timestamp")
        return {"timestamp": now - rng.randrange(1, OLD_MS), "codec": codec}
    if age > 1 - options.future:
        world.count("batch with a timestamp in the future")
        return {"timestamp": now + rng.randrange(1, FUTURE_MS), "codec": codec}
    return {"timestamp": now, "codec": codec}
