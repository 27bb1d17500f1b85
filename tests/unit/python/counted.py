"""Runs a file's unittest cases and ends with the line that tools/test counts: 'N passed, N failed, N skipped'."""

import sys
import unittest


def main():
    program = unittest.main(module="__main__", exit=False, verbosity=1)
    result = program.result
    for case, reason in result.skipped:
        print(f"skipped {case}: {reason}")
    failed = len(result.failures) + len(result.errors)
    skipped = len(result.skipped)
    print(f"{result.testsRun - failed - skipped} passed, {failed} failed, {skipped} skipped", flush=True)
    sys.exit(1 if failed or not result.testsRun else 0)
