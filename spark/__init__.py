"""A sink and a source for PySpark. The sink writes each micro-batch to Kafka topics exactly once, by transactions.

It needs pyspark 4.0 or later, and no jar. Mode txn works with every Kafka-compatible broker:

```python
from odradek.spark import OdradekDataSource, write_batch

options = {"kafka.bootstrap.servers": "127.0.0.1:9092", "topic": "delays", "sink": "delays"}
stream.writeStream.foreachBatch(lambda df, batch_id: write_batch(df, batch_id, options)).start()

spark.dataSource.register(OdradekDataSource)
stream.writeStream.format("odradek").options(**options).option("checkpointLocation", "...").start()
```

- `write_batch` writes with all tasks in parallel. Rows are shuffled, so that one task writes each target partition. In
  mode 2pc, each task has a transaction of its own instead.
- `OdradekDataSource` sends the rows through the driver. It suits small batches. It also reads topics:
  `spark.readStream.format("odradek").options(**{"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "delays"})`.
"""

from odradek.spark.batch import write_batch
from odradek.spark.datasource import OdradekDataSource
from odradek.spark.errors import BatchFailed, CheckpointMismatch, DataLoss, InvalidInput, SinkError, SinkInUse
from odradek.spark.exactly_once import STEPS, Step
from odradek.spark.two_phase import resolve_sink

__all__ = [
    "STEPS", "BatchFailed", "CheckpointMismatch", "DataLoss", "InvalidInput", "OdradekDataSource", "SinkError",
    "SinkInUse", "Step", "resolve_sink", "write_batch",
]  # fmt: skip
