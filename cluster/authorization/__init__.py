"""Authorization by the ACLs of the metadata image, with the semantics of Apache Kafka's StandardAuthorizer."""
