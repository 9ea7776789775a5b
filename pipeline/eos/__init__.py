"""The exactly-once campaign: a Spark driver that is killed, its brokers, its readers, and the judgment of its rows."""
