"""One class per role of a Raft replica, and the table of role changes."""
