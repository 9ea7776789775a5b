"""Known bugs of applications, each with its correction.

Each module has two tests with the same expectation: the buggy application fails it, its correction fulfills it.
`tests/interop/test_gallery.py` runs them in a project with the pytest plugin.
"""
