"""An idempotent and transactional producer, with record batches and the default partitioner."""
