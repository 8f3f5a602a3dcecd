"""The command line: parse, call the study, print. Nothing is computed here."""
