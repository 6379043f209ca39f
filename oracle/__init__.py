"""What decides: searches, intervals, conformance tests, audits and the command line."""
