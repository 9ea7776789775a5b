"""A cluster with a transactional load, and the console on it (`make console`)."""
