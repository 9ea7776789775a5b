"""Commands and replies of the controller."""
