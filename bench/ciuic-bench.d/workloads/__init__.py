"""One module a subject: its Workload class, and the benchmarks that it runs."""
