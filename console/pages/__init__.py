"""The pages. Each module has its routes as `ROUTES`, and those that change the cluster as `ACTIONS`."""
