"""The tools of all tests: waiting, children, deaths, runs, servers, sessions and report pages."""
